"""Interleaved timing: two things take turns in one run, so that a noisy machine disturbs both alike."""

import statistics
import time
from collections.abc import Callable


def interleaved(ours: Callable[[], object], rival: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Medians of both in seconds of CPU time, and the median of the ratios of neighbours; the first round warms up."""
    times: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        pair = (ours, rival) if number % 2 else (rival, ours)
        spent = {function: _cpu_seconds(function) for function in pair}
        times.append((spent[ours], spent[rival]))
    kept = times[1:]
    ratio = statistics.median(a / b for a, b in kept)
    return statistics.median(a for a, _ in kept), statistics.median(b for _, b in kept), ratio


def _cpu_seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def verdict(name: str, ratio: float, limit: float) -> bool:
    """Prints one line; a ratio above its limit is a failure."""
    good = ratio <= limit
    print(f"{'ok  ' if good else 'FAIL'}  {name}: {ratio:.3f} (limit {limit})")
    return good
