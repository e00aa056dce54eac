"""Which trials go on. Verdicts are pure functions of rows, taken in sweep order: a trial is judged by the trials before
it in its arm, and waits until they can be compared. So the same trials stop at the same steps whatever the order of
completion, and a scheduler needs no state: it is rebuilt by reading the rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from disentune.config import TrialConfig
from disentune.randomness import stream
from disentune.settings import Asha, Median, Pbt
from disentune.space import draw
from disentune.sweepfile import Domain

Verdict = Literal["go", "stop", "wait"]


@dataclass
class History:
    """One trial as its scheduler sees it. Values are oriented so that larger is better; NaN counts as the worst."""

    values: dict[int, float] = field(default_factory=dict)
    ended: bool = False

    def add(self, step: int, value: float, mode: str) -> None:
        oriented = value if mode == "max" else -value
        self.values[step] = -math.inf if math.isnan(oriented) else oriented

    def settled(self, step: int) -> bool:
        return self.ended or step in self.values


def milestones(scheduler: Any, config: TrialConfig, metric: str) -> list[int]:
    """Steps below the end at which a trial stops to be judged, on steps that report the metric."""
    steps, interval = config.training.steps, config.reporting_interval(metric)
    if isinstance(scheduler, Asha):
        rungs, rung = [], float(scheduler.grace)
        while rung < steps:
            rungs.append(math.ceil(rung / interval) * interval)
            rung *= scheduler.reduction
        return [rung for rung in dict.fromkeys(rungs) if rung < steps]
    if isinstance(scheduler, Median):
        return list(range(scheduler.grace, steps, interval))
    if isinstance(scheduler, Pbt):
        return list(range(scheduler.every, steps, scheduler.every))
    return []


def verdict(scheduler: Asha | Median, trial: History, before: Sequence[History], step: int) -> Verdict:
    """Whether a trial that has reached a milestone goes on, given the trials before it in the sweep."""
    if not all(history.settled(step) for history in before):
        return "wait"
    peers = [history for history in before if step in history.values]
    keeps = _in_best_fraction if isinstance(scheduler, Asha) else _above_median
    return "go" if keeps(scheduler, trial, peers, step) else "stop"


def _in_best_fraction(scheduler: Any, trial: History, peers: Sequence[History], step: int) -> bool:
    better = sum(peer.values[step] > trial.values[step] for peer in peers)
    return better < max(1, math.floor((len(peers) + 1) / scheduler.reduction))


def _above_median(scheduler: Any, trial: History, peers: Sequence[History], step: int) -> bool:
    if len(peers) < scheduler.min_trials:
        return True
    means = sorted(_mean_to(peer, step) for peer in peers)
    middle = len(means) // 2
    median = means[middle] if len(means) % 2 else (means[middle - 1] + means[middle]) / 2
    return max(value for at, value in trial.values.items() if at <= step) >= median


def _mean_to(history: History, step: int) -> float:
    values = [value for at, value in sorted(history.values.items()) if at <= step]
    return sum(values) / len(values)


# ---- population based training


@dataclass(frozen=True)
class Member:
    """A trial of a population at a milestone: its value there (larger is better) and its changeable keys."""

    trial_id: str
    value: float
    values: Mapping[str, float]


def moves(
    scheduler: Pbt, population: str, step: int, members: Sequence[Member], domains: Mapping[str, Domain]
) -> dict[str, dict[str, Any]]:
    """{trial: {source, values}} for the members that copy a better one; equal inputs, equal moves."""
    ranked = sorted(members, key=lambda member: (-member.value, member.trial_id))
    count = min(len(ranked) // 2, max(1, math.floor(scheduler.quantile * len(ranked))))
    rng = stream(scheduler.seed, f"pbt/{population}", step)
    chosen = {}
    for loser in ranked[len(ranked) - count :]:
        source = ranked[int(rng.integers(count))]
        values = {}
        for key in scheduler.keys:
            anew, up, number = rng.uniform() < scheduler.resample, rng.uniform() < 0.5, int(rng.integers(2**31))
            domain = domains[key]
            if anew:
                values[key] = draw(domain, scheduler.seed, f"pbt/{key}", number)
            else:
                values[key] = _within(domain, source.values[key], 1.2 if up else 0.8)
        chosen[loser.trial_id] = {"source": source.trial_id, "values": values}
    return chosen


def _within(domain: Domain, value: float, factor: float) -> float:
    """The perturbed value, kept inside its domain and of its own type."""
    moved: float = value * factor
    if domain.kind in ("grid", "choice"):
        return min(domain.values, key=lambda option: abs(option - moved))
    if domain.kind != "normal":
        moved = min(max(moved, domain.values[0]), domain.values[1])
    return round(moved) if isinstance(value, int) else float(moved)
