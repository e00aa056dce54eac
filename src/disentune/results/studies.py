"""A study whose data sets are made from the trials of the runs that it needs: the sweep with these trials filled in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from disentune.errors import ConfigError, Problem
from disentune.results import donors
from disentune.runs.ledger import Run
from disentune.runs.stages import Stage, makers_sweep
from disentune.spec import space
from disentune.spec.config import TrialConfig, nested
from disentune.spec.settings import GridSearch
from disentune.spec.space import SweepPoints
from disentune.spec.sweepfile import Domain, Entry, SweepFile

SECTION = "dataset"
Section = dict[str, Any]


def assert_possible(stages: Sequence[Stage]) -> None:
    """Raises one ConfigError with every data set that the needed sweeps can never give, before anything is trained."""
    points = {stage.name: _configs(stage.asked) for stage in stages}
    problems = dict[Problem, None]()  # each once, though many arms may have the data set
    for stage in stages:
        planned = {key: points[name] for key, name in stage.needs.items()}
        problems |= dict.fromkeys(_impossible(stage, planned))
    if problems:
        raise ConfigError(f"{stages[-1].asked.sweep.file} cannot run", [*problems])


def _impossible(stage: Stage, planned: Mapping[str, Sequence[TrialConfig]]) -> Iterator[Problem]:
    for arm, config in stage.asked.unseeded:
        try:
            donors.check(config.tree(), planned)
        except ConfigError as error:
            sweep = stage.asked.sweep
            yield Problem(sweep.arms[arm][_keys(sweep, arm)[0]].where, str(error))


def _keys(sweep: SweepFile, arm: str) -> list[str]:
    """The keys of an arm that describe its data set."""
    return [key for key in sweep.arms[arm] if key.split(".")[0] == SECTION]


def _configs(asked: SweepPoints) -> list[TrialConfig]:
    """Every trial; of a model-based search the corners of its arms."""
    return [point.config for point in asked.points] or [config for _, config in asked.unseeded]


# ---- filling in


def filled_in(asked: SweepPoints, runs: Mapping[str, Run]) -> SweepFile:
    """The sweep with the trials that its data sets are made from in the place of the key of `needs`; `runs` has the
    finished runs by that key. Raises ConfigError when they do not have what is asked for."""
    sweep = asked.sweep
    waiting = {arm for arm, config in asked.unseeded if config.awaits_donors}
    arms = {arm: _filled_arm(sweep, arm, runs) if arm in waiting else sweep.arms[arm] for arm in sweep.arms}
    return replace(sweep, arms=arms)


def _filled_arm(sweep: SweepFile, arm: str, runs: Mapping[str, Run]) -> dict[str, Entry]:
    """With whole sections of data sets, each of which has its own donors."""
    sections = _sections(sweep, arm, runs)
    distinct = list({repr(section): section for section in sections.values()}.values())
    own = _keys(sweep, arm)
    where = sweep.arms[arm][own[0]].where
    rest = {key: entry for key, entry in sweep.arms[arm].items() if key not in own}
    if len(distinct) > 1:
        return {SECTION: Entry(Domain(grid=distinct), where), **rest}
    return {**{f"{SECTION}.{key}": Entry(value, where) for key, value in distinct[0].items()}, **rest}


def _sections(sweep: SweepFile, arm: str, runs: Mapping[str, Run]) -> dict[str, Section]:
    """The resolved data set of each point, by the section as the sweep writes it."""
    _assert_listed(sweep, arm)
    found: dict[str, Section] = {}
    for flat in space.arm_points(sweep, arm):
        asked = nested(flat)[SECTION]
        section = _section(flat, runs)
        if found.setdefault(repr(asked), section) != section:
            text = f"{SECTION}: would be made in several ways in arm '{arm}'; write one arm for each training.device"
            raise ConfigError(f"{sweep.file} cannot run", [Problem(sweep.where[f"arms.{arm}"], text)])
    return found


def _section(flat: space.Flat, runs: Mapping[str, Run]) -> Section:
    """The data set of a point: as the sweep writes it, or made from the donors that it names."""
    config = space.trial_config(flat, 0)
    asked: Section = nested(flat)[SECTION]
    return donors.resolve(config.tree(), runs)[SECTION] if config.awaits_donors else asked


def _assert_listed(sweep: SweepFile, arm: str) -> None:
    """Each data set has to be made before the study starts, so a search may not invent them as it goes."""
    search = sweep.settings.search
    for key, entry in sweep.arms[arm].items():
        is_drawn = isinstance(entry.value, Domain) and entry.value.kind != "grid"
        if key.split(".")[0] == SECTION and is_drawn and not isinstance(search, GridSearch):
            text = f"{key}: a data set that is made from trained models cannot be drawn by a search; use grid: [...]"
            raise ConfigError(f"{sweep.file} cannot run", [Problem(entry.where, text)])


# ---- what was filled in


def chosen_by(sweep: SweepFile) -> dict[str, list[dict[str, Any]]]:
    """The donors of a sweep that is filled in, by arm."""
    found = {arm: [*_records([entry.value for entry in entries.values()])] for arm, entries in sweep.arms.items()}
    return {arm: records for arm, records in found.items() if records}


def _records(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, Domain):
        value = value.values
    if isinstance(value, Mapping) and {"role", "trial", "weights"} <= value.keys():
        yield dict(value)
    elif isinstance(value, Mapping):
        yield from _records([*value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _records(one)


def makers(asked: SweepPoints) -> SweepFile | None:
    """The sweep that makes the data sets of a study that is filled in; None where there is nothing to make."""
    trees = donors.manipulator_trials([config.tree() for config in _configs(asked)])
    return makers_sweep(asked.sweep, trees) if trees else None
