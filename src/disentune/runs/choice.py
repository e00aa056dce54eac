"""Which trials of a sweep a session runs: the filters --only and --limit."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from disentune.errors import ConfigError
from disentune.runs.trial_folder import Status
from disentune.spec.selection import select
from disentune.spec.settings import Asha, Median, NoScheduler, OptunaSearch
from disentune.spec.space import Point
from disentune.spec.sweepfile import SweepFile


@dataclass(frozen=True)
class Choice:
    """Ids of trials, None for all of them. A model-based search does not know its ids beforehand: `most` of the trials
    that were unfinished when the session began run, in the order of their suggestions."""

    ids: frozenset[str] | None = None
    most: int | None = None

    def has(self, trial_id: str) -> bool:
        return self.ids is None or trial_id in self.ids


EVERY_TRIAL = Choice()


def choose(
    points: Iterable[Point],
    statuses: Mapping[str, Status],
    selected: Callable[[Mapping[str, Any]], bool] | None = None,
    limit: int | None = None,
) -> Choice:
    """The points that a filter selects, and of those with a limit the first that are not finished."""
    if selected is None and limit is None:
        return EVERY_TRIAL
    found = [p for p in points if selected is None or selected({**p.config.tree(), "arm": p.arms})]
    ids = [point.config.id for point in found]
    if limit is not None:
        ids = [id for id in ids if not statuses.get(id, Status()).final][:limit]
    return Choice(frozenset(ids))


def selected_by(sweep: SweepFile, only: str | None) -> Callable[[Mapping[str, Any]], bool] | None:
    """The filter of --only; None without one. Raises ConfigError."""
    known = {key for entries in sweep.arms.values() for key in entries}
    return select(only, known) if only is not None else None


def filters_allowed(sweep: SweepFile, only: bool, limited: bool) -> None:
    """Some searches need every trial, so a part of the sweep cannot stand for it. Raises ConfigError."""
    settings = sweep.settings
    whole = [f"scheduler: {settings.scheduler.name}"] if not isinstance(settings.scheduler, NoScheduler) else []
    whole += ["search: optuna"] if isinstance(settings.search, OptunaSearch) else []
    if only and whole:
        reason = "a trial's fate depends on the trials before it"
        raise ConfigError(f"--only cannot go with {' and '.join(whole)}: {reason}")
    if limited and settings.scheduler.name == "pbt":
        raise ConfigError("--limit cannot go with scheduler: pbt: a population learns from all its members")
    if limited and isinstance(settings.scheduler, Asha | Median) and len(sweep.seeds) > 1:
        raise ConfigError(
            f"--limit cannot go with scheduler: {settings.scheduler.name} and {len(sweep.seeds)} seeds: the seeds of a "
            "point are judged together; add --set seeds=1 to try a few trials"
        )
