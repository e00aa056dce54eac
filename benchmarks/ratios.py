"""Interleaved timing: things take turns in one run, so that a noisy machine disturbs all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping


def taking_turns(timers: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each timer says in each round; every second round goes backwards, and the first only warms up."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(rounds + 1):
        for name in list(timers)[:: 1 if number % 2 else -1]:
            times[name].append(timers[name]())
    return {name: seconds[1:] for name, seconds in times.items()}


def ratio_of_neighbours(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def interleaved(ours: Callable[[], object], rival: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Medians of both in seconds of CPU time, and the median of the ratios of neighbours."""
    times = taking_turns({"ours": lambda: cpu_seconds(ours), "rival": lambda: cpu_seconds(rival)}, rounds)
    medians = (statistics.median(times[name]) for name in ("ours", "rival"))
    return (*medians, ratio_of_neighbours(times["ours"], times["rival"]))


def cpu_seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def verdict(name: str, ratio: float, limit: float) -> bool:
    """Prints one line; a ratio above its limit is a failure."""
    return _line(name, ratio, ratio <= limit, f"limit {limit}")


def gain(name: str, ratio: float, goal: float) -> bool:
    """Prints one line; a ratio below its goal is a failure."""
    return _line(name, ratio, ratio >= goal, f"goal {goal}")


def _line(name: str, ratio: float, good: bool, bound: str) -> bool:
    print(f"{'ok  ' if good else 'FAIL'}  {name}: {ratio:.3f} ({bound})")
    return good
