"""Decides which trials continue. Verdicts are pure functions of rows in sweep order: the seeds of a point are judged
together, against the earlier points of the arm, and wait until all of them can be compared. So the same trials stop at
the same steps whatever the order of completion, and a scheduler has no state: it is rebuilt from the rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from disentune.maths.randomness import stream
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Asha, Median, Pbt
from disentune.spec.space import draw
from disentune.spec.sweepfile import Domain

LISTS = ("grid", "choice")
"""Domains that list their values."""
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


@dataclass
class Replicates:
    """The seeds of one point, judged as one: its value at a step is the mean over the seeds that have one there."""

    seeds: list[History] = field(default_factory=list)

    def settled(self, step: int) -> bool:
        return all(seed.settled(step) for seed in self.seeds)

    def at(self, step: int) -> float | None:
        """The mean over seeds; None if no seed has a value at this step."""
        values = [seed.values[step] for seed in self.seeds if step in seed.values]
        return _mean(values) if values else None

    def up_to(self, step: int) -> list[float]:
        steps = sorted({at for seed in self.seeds for at in seed.values if at <= step})
        return [value for at in steps if (value := self.at(at)) is not None]


def _mean(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return -math.inf if math.isnan(mean) else mean  # the mean of infinities of both signs


def milestones(scheduler: Any, config: TrialConfig, metric: str) -> Sequence[int]:
    """Sorted steps before the end at which a trial pauses to be judged; all of them report the metric. Regular steps
    are a range, because there may be a billion of them."""
    steps, interval = config.training.steps, config.reporting_interval(metric)
    if isinstance(scheduler, Asha):
        return rungs(scheduler, steps, interval)
    if isinstance(scheduler, Median):
        return range(scheduler.grace, steps, interval)
    if isinstance(scheduler, Pbt):
        return range(scheduler.every, steps, scheduler.every)
    return range(0)


def rungs(scheduler: Asha, steps: int, interval: int) -> list[int]:
    """The milestones of successive halving for `steps` of training, at multiples of `interval`."""
    found, rung = [], float(scheduler.grace)
    while rung < steps:
        found.append(math.ceil(rung / interval) * interval)
        rung *= scheduler.reduction
    return [rung for rung in dict.fromkeys(found) if rung < steps]


def verdict(scheduler: Asha | Median, point: Replicates, before: Sequence[Replicates], step: int) -> Verdict:
    """Whether the seeds of a point that has reached a milestone continue, given the earlier points of the sweep."""
    if not all(one.settled(step) for one in (point, *before)):
        return "wait"
    peers = [one for one in before if one.at(step) is not None]
    keeps = _in_best_fraction if isinstance(scheduler, Asha) else _above_median
    return "go" if keeps(scheduler, point, peers, step) else "stop"


def _in_best_fraction(scheduler: Any, point: Replicates, peers: Sequence[Replicates], step: int) -> bool:
    own = point.at(step)
    better = sum(peer.at(step) > own for peer in peers)  # type: ignore[operator]  # all have a value here
    found: bool = better < max(1, math.floor((len(peers) + 1) / scheduler.reduction))
    return found


def _above_median(scheduler: Any, point: Replicates, peers: Sequence[Replicates], step: int) -> bool:
    if len(peers) < scheduler.min_trials:
        return True
    means = sorted(_mean(peer.up_to(step)) for peer in peers)
    middle = len(means) // 2
    median = means[middle] if len(means) % 2 else (means[middle - 1] + means[middle]) / 2
    return max(point.up_to(step)) >= median


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
    """{trial: {source, values}} for the members that copy a better one; equal inputs give equal moves."""
    ranked = sorted(members, key=lambda member: (-member.value, member.trial_id))
    count = min(len(ranked) // 2, max(1, math.floor(scheduler.quantile * len(ranked))))
    rng = stream(scheduler.seed, f"pbt/{population}", step)
    chosen: dict[str, dict[str, Any]] = {}
    for loser in ranked[len(ranked) - count :]:
        source = ranked[int(rng.integers(count))]
        values, others = {}, {}
        for key in scheduler.keys:
            anew, up, number = rng.uniform() < scheduler.resample, rng.uniform() < 0.5, int(rng.integers(2**31))
            domain = domains[key]
            if anew:
                values[key] = draw(domain, scheduler.seed, f"pbt/{key}", number)
            else:
                values[key] = _within(domain, source.values[key], up)
            if domain.kind in LISTS:
                others[key] = [_within(domain, source.values[key], not up), *domain.values]
        move = {"source": source.trial_id, "values": values}
        chosen[loser.trial_id] = _unlike(source, list(chosen.values()), move, others)
    return chosen


def _unlike(
    source: Member, made: Sequence[Any], move: dict[str, Any], others: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The move, or one with another value of one key if an earlier move of this generation is the same: both members
    would be the same from then on. Ranges keep the published rule."""
    if move not in made:
        return move
    changed = ({**move, "values": move["values"] | {key: value}} for key in others for value in others[key])
    return next((one for one in changed if one not in made and one["values"] != source.values), move)


def _within(domain: Domain, value: float, up: bool) -> float:
    """The perturbed value, inside its domain: x 1.2 or x 0.8 in a range, the next value of a list, a step of at least
    one for whole numbers. At the end of a list or of whole numbers it moves inward: members of a population share their
    seed, so a copy that kept its value would be identical to its source."""
    if domain.kind in ("grid", "choice", "int"):
        neighbours = (_neighbour(domain, value, direction) for direction in (up, not up))
        return next((other for other in neighbours if other != value), value)
    moved: float = value * (1.2 if up else 0.8)
    if domain.kind != "normal":
        moved = min(max(moved, domain.values[0]), domain.values[1])
    return round(moved) if isinstance(value, int) else float(moved)


def _neighbour(domain: Domain, value: float, up: bool) -> float:
    """The neighbouring value; the value itself at the end of its domain. Values of a list are ordered by size, however
    they are written; `space` refuses keys with other domains."""
    if domain.kind == "int":
        moved = round(value * (1.2 if up else 0.8))
        moved = moved if moved != value else int(value) + (1 if up == (value >= 0) else -1)
        return type(value)(min(max(moved, domain.values[0]), domain.values[1]))
    if up:
        return min((other for other in domain.values if other > value), default=value)
    return max((other for other in domain.values if other < value), default=value)
