"""Which trials of a sweep a session runs: the filters --only and --limit."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from disentune.errors import ConfigError
from disentune.runs.json_files import is_whole
from disentune.runs.trial_folder import Status, is_final
from disentune.spec.config import TrialConfig
from disentune.spec.selection import select
from disentune.spec.settings import Asha, Median, NoScheduler, OptunaSearch, Settings
from disentune.spec.space import Point
from disentune.spec.sweepfile import SweepFile


@dataclass(frozen=True)
class Choice:
    """Ids of trials, None for all. A model-based search does not know its ids in advance: it runs at most `most` of the
    trials that were unfinished when the session began, in the order of their suggestions."""

    ids: frozenset[str] | None = None
    most: int | None = None
    flags: str = field(default="", compare=False)
    """The options that selected them, as given."""

    def has(self, trial_id: str) -> bool:
        return self.ids is None or trial_id in self.ids


EVERY_TRIAL = Choice()
DEFAULTS = Settings()


def choose(
    points: Iterable[Point],
    statuses: Mapping[str, Status],
    selected: Callable[[Mapping[str, Any]], bool] | None = None,
    limit: int | None = None,
    settings: Settings = DEFAULTS,
) -> Choice:
    """The points that a filter selects; with a limit, the first unfinished ones of them."""
    if selected is None and limit is None:
        return EVERY_TRIAL
    found = [p for p in points if selected is None or selected({**p.config.tree(), "arm": p.arms})]
    if limit is not None:
        found = [p for p in found if not _is_over(p.config, statuses, settings)][:limit]
    return Choice(frozenset(point.config.id for point in found))


def _is_over(config: TrialConfig, statuses: Mapping[str, Status], settings: Settings) -> bool:
    return is_final(statuses.get(config.id, Status()), config.training.steps, settings)


@dataclass(frozen=True)
class Selection:
    """What a running session was asked to run, recorded in the run folder for `status`. `steps` is the length of each
    trial by id; `most` is the number of ended trials of a model-based search at which the session ends."""

    flags: str
    steps: Mapping[str, int] | None = None
    most: int | None = None


def selection_of(choice: Choice, points: Iterable[Point], ended: int) -> Selection | None:
    """None if the session runs every trial. `ended`: the number of trials that had ended when the session began."""
    if choice.ids is not None:
        steps = {point.config.id: point.config.training.steps for point in points if choice.has(point.config.id)}
        return Selection(choice.flags, steps)
    return None if choice.most is None else Selection(choice.flags, most=ended + choice.most)


def parsed_selection(content: Mapping[str, Any]) -> Selection | None:
    """None if it was not recorded by a session of this version."""
    flags, steps, most = content.get("flags"), content.get("steps"), content.get("most")
    if not isinstance(flags, str):
        return None
    if isinstance(steps, dict) and all(map(is_whole, steps.values())):
        return Selection(flags, steps)
    return Selection(flags, most=most) if is_whole(most) else None


def selected_by(sweep: SweepFile, only: str | None) -> Callable[[Mapping[str, Any]], bool] | None:
    """The filter of --only; None without --only. Raises ConfigError."""
    known = {key for entries in sweep.arms.values() for key in entries}
    return select(only, known) if only is not None else None


def filters_allowed(sweep: SweepFile, only: bool, limited: bool) -> None:
    """Raises ConfigError for filters on searches and schedulers that need every trial."""
    settings = sweep.settings
    whole = [f"scheduler: {settings.scheduler.name}"] if not isinstance(settings.scheduler, NoScheduler) else []
    whole += ["search: optuna"] if isinstance(settings.search, OptunaSearch) else []
    if only and whole:
        reason = "they judge each trial by the trials before it; omit --only"
        raise ConfigError(f"--only cannot be combined with {' and '.join(whole)}: {reason}")
    if limited and settings.scheduler.name == "pbt":
        raise ConfigError(
            "--limit cannot be combined with scheduler: pbt, where all members of a population train together"
        )
    if limited and isinstance(settings.scheduler, Asha | Median) and len(sweep.seeds) > 1:
        raise ConfigError(
            f"--limit cannot be combined with scheduler: {settings.scheduler.name} and {len(sweep.seeds)} seeds: "
            "the seeds of a point are judged together; add --set seeds=1 to try a few trials"
        )
