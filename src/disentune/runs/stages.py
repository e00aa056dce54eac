"""The stages of a study: the sweeps that it needs, in the order in which they are carried out, and how far each one is.

Every stage is an ordinary run of an ordinary sweep, in `<storage>/<sweep>/<run>` with the name of the study's run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from disentune.errors import ConfigError, Problem, counted_trials
from disentune.files.storage import shown
from disentune.runs.choice import DEFAULTS
from disentune.runs.ledger import Run
from disentune.runs.preview import Plan, make_plan, nearest_change
from disentune.runs.trial_folder import CONFIG, STATUS
from disentune.spec import space
from disentune.spec.config import TrialConfig, flattened
from disentune.spec.space import SweepPoints
from disentune.spec.sweepfile import Entry, SweepFile

MAKERS = "-manipulators"
"""What follows the study's name in the name of the sweep that makes its data sets."""
ANOTHER_NAME = "run the study under another name: --name NEW"


@dataclass(frozen=True)
class Stage:
    """A sweep of the chain; `needs` has the sweep's own keys and the names of the sweeps that they stand for."""

    asked: SweepPoints
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.asked.sweep.name


# ---- the order


def chain(sweep: SweepFile, say: space.Say = lambda what, done, total: None) -> list[Stage]:
    """The stages in order, each sweep once; the last is the sweep itself. Raises one ConfigError with every problem of
    every point of every stage, before anything is spent."""
    ordered = list(_in_order(sweep))
    problems, stages = [*_clashes(sweep, ordered)], list[Stage]()
    for one in {one.name: one for one in ordered}.values():
        try:
            asked = space.check(one, say)
            stages.append(Stage(asked, {key: needed.name for key, needed in one.needs.items()}))
        except ConfigError as error:
            if not error.problems:
                raise
            problems += error.problems
    if problems:
        raise ConfigError(f"{sweep.file} cannot run", problems)
    return stages


def _in_order(sweep: SweepFile) -> Iterator[SweepFile]:
    """What is needed comes first."""
    for needed in sweep.needs.values():
        yield from _in_order(needed)
    yield sweep


def _clashes(sweep: SweepFile, ordered: Sequence[SweepFile]) -> Iterator[Problem]:
    """Different sweeps of one name would share a run folder."""
    known: dict[str, SweepFile] = {}
    for one in ordered:
        other = known.setdefault(one.name, one)
        if other.resolved() != one.resolved():
            text = f"needs: {other.file} and {one.file} are both called '{one.name}'; set `name` in one of them"
            yield Problem(sweep.where["needs"], text)
    makers = (makers_name(one) for one in ordered if one.needs)
    for name in makers:
        if name in known:
            yield Problem(sweep.where["needs"], f"needs: the name '{name}' is taken; choose another for that sweep")


def folder_of(name: str, study: Run) -> Run:
    """The run of a stage, beside the study's."""
    return Run(study.path.parent.parent / name / study.path.name)


def runs_of(sweep: SweepFile, study: Run) -> list[Run]:
    """The study's run and those of every stage before it, also of those that have not begun."""
    needed = dict.fromkeys(name for one in _in_order(sweep) if one.needs for name in (one.name, makers_name(one)))
    needed |= dict.fromkeys(one.name for one in _in_order(sweep))
    return [study, *(folder_of(name, study) for name in needed if name != sweep.name)]


# ---- how far a stage is

State = Literal["done", "open", "failed", "waiting"]


@dataclass(frozen=True)
class Progress:
    """A stage's run, compared with its sweep. Without a plan its trials are not known yet."""

    name: str
    run: Run
    plan: Plan | None
    failed: tuple[str, ...] = ()
    """Ids of trials."""

    @property
    def state(self) -> State:
        if self.plan is None:
            return "waiting"
        if self.failed:
            return "failed"
        return "open" if self.plan.new or self.plan.continuing or self.plan.taken else "done"

    def as_json(self) -> dict[str, Any]:
        counts = dict.fromkeys(("trials", "done", "continuing", "new"))
        if self.plan is not None:
            known = self.plan.as_json()
            counts = {key: known[key] for key in counts}
        return {"name": self.name, "run": shown(self.run.path), **counts, "failed": len(self.failed),
                "state": self.state}  # fmt: skip


def progress(asked: SweepPoints, run: Run, retry_failed: bool, say: space.Say) -> Progress:
    """Raises ConfigError when the run holds trials that the sweep does not ask for."""
    _assert_no_others(asked, run)
    plan = make_plan(asked, run, retry_failed=retry_failed, say=say)
    statuses = {} if retry_failed else run.known_trials(CONFIG, STATUS)
    failed = tuple(id for id, folder in statuses.items() if folder.status().state == "failed")
    return Progress(asked.sweep.name, run, plan, failed)


def _assert_no_others(asked: SweepPoints, run: Run) -> None:
    """For a model-based search, only the plan can tell."""
    ids = {point.config.id for point in asked.points}
    others = [folder for folder in run.known_trials(CONFIG).values() if folder.id not in ids]
    if ids and others:
        change = nearest_change(others[0].tree(), [point.config for point in asked.points])
        raise ConfigError(
            f"{shown(run.path)} holds {counted_trials(len(others))} that {asked.sweep.file} does not ask for."
            f" {change}\n"
            f"  The study would be made from other trials than its sweep names; {ANOTHER_NAME}\n"
            f"  or set those trials aside: disentune run {asked.sweep.file} --name {run.path.name} --drop"
        )


def failure(stage: Progress, study: Run) -> str:
    """Why a study cannot continue, with the trials that failed and the command that retries them."""
    assert stage.plan is not None
    ids = ", ".join(stage.failed[:5]) + (f" and {len(stage.failed) - 5} more" if len(stage.failed) > 5 else "")
    return (
        f"{study.name} needs '{stage.name}', and {len(stage.failed)} of its {stage.plan.trials} trials failed: {ids}\n"
        f"  the causes: disentune status {shown(stage.run.path)}\n"
        f"  retry them and continue: disentune resume {shown(study.path)} --retry-failed"
    )


# ---- what a study was begun with


@dataclass(frozen=True)
class Begun:
    """What a study's folder keeps of its chain."""

    asked: SweepFile
    """With the sweeps that it needs, before anything was chosen from their trials."""
    donors: Mapping[str, Any]
    """What was chosen from their trials, by arm; empty until the needed runs are finished."""


def begun(run: Run) -> Begun | None:
    found = run.stages()
    return None if found is None else Begun(*found)


def assert_same_needs(sweep: SweepFile, run: Run) -> None:
    """Raises ConfigError when a needed sweep asks for other trials than when the study began. A sweep may change in how
    it runs: resources, checkpoints and figures decide no number."""
    before = begun(run)
    if before is None or not run.trials():
        return
    then, now = before.asked.needs, sweep.needs
    for key in dict.fromkeys((*then, *now)):
        text = _changed_need(key, then.get(key), now.get(key))
        if text:
            raise _changed_since(sweep, run, text)


def _changed_need(key: str, then: SweepFile | None, now: SweepFile | None) -> str:
    """What has changed; empty when nothing has."""
    if then is None or now is None:
        return f"needs.{key} was {'added' if then is None else 'removed'}"
    if then.resolved() == now.resolved():
        return ""
    before, after = _configs(then), _configs(now)
    gone, new = [before[id] for id in before.keys() - after.keys()], [after[id] for id in after.keys() - before.keys()]
    if not gone and not new:
        return ""
    example = nearest_change(gone[0].tree(), new or [*after.values()]) if gone else ""
    counts = f"asks for other trials now: {len(new)} added, {len(gone)} removed"
    return f"needs.{key} ({now.file}) {counts}. {example}".strip()


def _configs(sweep: SweepFile) -> dict[str, TrialConfig]:
    """Configs by id; for a model-based search, the corners of its arms."""
    asked = space.check(sweep)
    return {config.id: config for config in [p.config for p in asked.points] or [c for _, c in asked.unseeded]}


def assert_same_donors(sweep: SweepFile, run: Run, now: Mapping[str, Any]) -> None:
    """`now` is what is chosen today, by the sweep that the study began with. Raises ConfigError when the study has
    trials that were made from others."""
    before = begun(run)
    if before is None or not run.trials() or not before.donors or before.donors == now:
        return
    arm = next(arm for arm in dict.fromkeys((*before.donors, *now)) if before.donors.get(arm) != now.get(arm))
    then, today = _texts(before.donors.get(arm, [])), _texts(now.get(arm, []))
    gone, new = [one for one in then if one not in today], [one for one in today if one not in then]
    text = f"arm '{arm}' was made from {', '.join(gone) or 'fewer trials'}, and would now be made from {', '.join(new)}"
    raise _changed_since(sweep, run, text)


def _texts(donors: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{one.get('role')} trial {one.get('trial')} (weights {str(one.get('weights'))[:12]})" for one in donors]


def _changed_since(sweep: SweepFile, run: Run, text: str) -> ConfigError:
    return ConfigError(
        f"{sweep.file}: what it needs has changed since {shown(run.path)} began: {text}\n"
        f"  Its trials cannot be compared with new ones; {ANOTHER_NAME}\n"
        f"  or put the needed sweep and its run back; {shown(run.stages_path)} has the sweep"
    )


# ---- the sweep that makes data sets


def makers_name(sweep: SweepFile) -> str:
    return f"{sweep.name[: 100 - len(MAKERS)]}{MAKERS}"


def makers_sweep(sweep: SweepFile, trees: Sequence[Mapping[str, Any]]) -> SweepFile:
    """A sweep of exactly these trials that runs the way the study does; an arm for each one, whatever its seed."""
    seeds: dict[str, set[int]] = {}
    configs: dict[str, TrialConfig] = {}
    for config in map(TrialConfig.parse, trees):
        unseeded = config.with_seed(0)
        configs[unseeded.id] = unseeded
        seeds.setdefault(unseeded.id, set()).add(config.seed)
    every = sorted(set().union(*seeds.values()))
    if any(len(some) < len(every) for some in seeds.values()):
        text = f"dataset.seed: every manipulated data set must have the same seeds, but some lack one of {every}"
        raise ConfigError(f"{sweep.file} cannot run", [Problem(sweep.where["arms"], text)])
    arms = {f"manipulator_{number}": _entries(one, sweep) for number, one in enumerate(configs.values(), start=1)}
    usual = {key: getattr(DEFAULTS, key) for key in ("search", "scheduler", "stop", "figures", "objective")}
    where = {**sweep.where, **{f"arms.{arm}": sweep.where["arms"] for arm in arms}}
    return replace(sweep, name=makers_name(sweep), question=f"the data sets of {sweep.name}", arms=arms,
                   seeds=tuple(every), settings=sweep.settings.model_copy(update=usual), where=where,
                   needs={})  # fmt: skip


def _entries(config: TrialConfig, sweep: SweepFile) -> dict[str, Entry]:
    tree = {key: value for key, value in config.tree().items() if key != "seed"}
    return {key: Entry(value, sweep.where["arms"]) for key, value in flattened(tree).items()}
