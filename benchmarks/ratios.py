"""Interleaved timing, and a book of what was measured.

Things take turns in one run, so that a noisy machine disturbs all of them alike. A script tells each measurement to its
`Bench`: people read a line at once, `page.py` reads all of them later from one JSON file.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "kept"
"""Of runs that are too long for every day; in git."""
LONG = bool(os.environ.get("BENCH_LONG"))
"""More rounds and larger sizes, for a quiet hour."""


def results_folder() -> Path:
    return Path(os.environ.get("DISENTUNE_BENCH_RESULTS", ROOT / "runs" / "bench"))


# ---- timing


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a number that was measured in so many rounds."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def times(self, factor: float) -> "Spread":
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.rounds)

    def inverse(self) -> "Spread":
        return Spread(1 / self.median, 1 / self.high, 1 / self.low, self.rounds)


def taking_turns(timers: Mapping[str, Callable[[], float]], rounds: int, warm: bool = True) -> dict[str, list[float]]:
    """What each timer says in each round; every second round goes backwards. To warm up, one more goes before."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(rounds + warm):
        for name in list(timers)[:: 1 if number % 2 else -1]:
            times[name].append(timers[name]())
    return {name: seconds[warm:] for name, seconds in times.items()}


def ratio_of_neighbours(above: Sequence[float], below: Sequence[float]) -> Spread:
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def interleaved(ours: Callable[[], object], rival: Callable[[], object], rounds: int) -> tuple[float, float, Spread]:
    """Medians of both in seconds of CPU time, and the ratios of neighbours: ours / rival."""
    times = taking_turns({"ours": lambda: cpu_seconds(ours), "rival": lambda: cpu_seconds(rival)}, rounds)
    mine, theirs = (statistics.median(times[name]) for name in ("ours", "rival"))
    return mine, theirs, ratio_of_neighbours(times["ours"], times["rival"])


def cpu_seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


# ---- the book


@dataclass(frozen=True)
class Measurement:
    """`goal` is for the ratio where there is one, else for ours. A ratio with a goal `at least`, or with none, is
    rival / ours: above 1 ours is the better one. One `at most` is what ours adds: ours / rival."""

    group: str
    name: str
    ours: float | None
    rival: float | None
    ratio: float | None
    quartiles: tuple[float, float] | None
    rounds: int
    bound: str
    goal: float | None
    unit: str
    note: str

    @property
    def judged(self) -> float:
        value = self.ratio if self.ratio is not None else self.ours
        assert value is not None
        return value

    @property
    def good(self) -> bool:
        if self.goal is None:
            return True
        return self.judged <= self.goal if self.bound == "at most" else self.judged >= self.goal

    @property
    def rival_wins(self) -> bool:
        return self.ratio is not None and self.bound != "at most" and self.ratio < 1

    @property
    def verdict(self) -> str:
        if self.rival_wins:
            return "behind: the rival wins" if self.goal is not None else "the rival wins"
        if self.goal is None:
            return ""
        return "ahead" if self.good else "behind"


class Bench:
    """The measurements of one script, in a group of the page unless one says otherwise. A result of an earlier run is
    removed at once, so that a script that breaks leaves none."""

    def __init__(self, group: str, name: str = "", keep: bool = False):
        self.group, self.name = group, name or Path(sys.argv[0]).stem.removeprefix("bench_")
        self.path = (KEPT if keep else results_folder()) / f"{self.name}.json"
        self.measurements: list[Measurement] = []
        self.load, self.began = os.getloadavg()[0], time.time()
        self.path.unlink(missing_ok=True)

    def ratio(
        self,
        name: str,
        value: Spread | float,
        at_most: float | None = None,
        at_least: float | None = None,
        *,
        ours: float | None = None,
        rival: float | None = None,
        unit: str = "",
        note: str = "",
        group: str = "",
    ) -> None:
        """`unit` is that of ours and the rival's."""
        facts = {"ratio": _median(value), "ours": ours, "rival": rival, "unit": unit, "note": note}
        self._add(name, value, at_most, at_least, group=group or self.group, **facts)

    def number(
        self,
        name: str,
        value: Spread | float,
        unit: str,
        at_most: float | None = None,
        at_least: float | None = None,
        *,
        note: str = "",
        group: str = "",
    ) -> None:
        """Something that has no rival."""
        facts = {"ratio": None, "ours": _median(value), "rival": None, "unit": unit, "note": note}
        self._add(name, value, at_most, at_least, group=group or self.group, **facts)

    def _add(
        self, name: str, value: Spread | float, at_most: float | None, at_least: float | None, **facts: Any
    ) -> None:
        spread = value if isinstance(value, Spread) and value.rounds > 1 else None
        measurement = Measurement(
            name=name,
            quartiles=(spread.low, spread.high) if spread else None,
            rounds=spread.rounds if spread else 1,
            bound="at most" if at_most is not None else "at least" if at_least is not None else "",
            goal=at_most if at_most is not None else at_least,
            **facts,
        )
        self.measurements.append(measurement)
        print(_line(measurement), flush=True)

    def close(self) -> NoReturn:
        """Writes all of it; ends the script with 1 where a goal was missed."""
        content = {
            "benchmark": self.name,
            "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began, 1),
            "load_before": self.load,
            "machine": machine(),
            "measurements": [asdict(one) for one in self.measurements],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1) + "\n")
        sys.exit(not all(one.good for one in self.measurements))


def _median(value: Spread | float) -> float:
    return value.median if isinstance(value, Spread) else float(value)


def _line(one: Measurement) -> str:
    mark = "    " if one.goal is None else "ok  " if one.good else "FAIL"
    unit = "" if one.ratio is not None else f" {one.unit}"
    spread = f" [{one.quartiles[0]:.3f} to {one.quartiles[1]:.3f}]" if one.quartiles else ""
    goal = f" ({one.bound} {one.goal:g})" if one.goal is not None else ""
    wins = ", the rival wins" if one.rival_wins else ""
    return f"{mark}  {one.name}: {one.judged:.3f}{unit}{spread}{goal}{wins}"


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    from disentune.environment import environment  # loads torch, which a script may want to do in its own time

    facts = environment()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kept = {key: facts[key] for key in ("cpu", "cores", "gpus", "python", "packages", "commit")}
    return {**kept, "memory_gb": round(memory / 2**30, 1)}
