"""A study: its sweep and those that it needs, what their runs have done, and carrying them out in order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from disentune.errors import ConfigError, DisentuneError
from disentune.files.storage import shown
from disentune.sessions.session import Wanted, carry_out, planned_trials

if TYPE_CHECKING:
    from disentune.driver.sweep import Ending
    from disentune.files.storage import Place
    from disentune.runs.ledger import Run
    from disentune.runs.preview import Plan
    from disentune.runs.stages import Progress, Stage
    from disentune.sessions.session import Display
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile


class StageFailed(DisentuneError):
    """Trials of a needed run failed, so the study cannot be made."""


class _StageStopped(Exception):
    def __init__(self, ending: Ending):
        self.ending = ending


@dataclass(frozen=True)
class Study:
    """The stages of a sweep, which is the last of them, the run of that sweep, and its display."""

    run: Run
    stages: list[Stage]
    display: Display
    wanted: Wanted = field(default_factory=Wanted)

    @property
    def sweep(self) -> SweepFile:
        return self.stages[-1].asked.sweep

    @property
    def has_needs(self) -> bool:
        return bool(self.sweep.needs)

    def run_of(self, name: str) -> Run:
        from disentune.runs.stages import folder_of

        return self.run if name == self.sweep.name else folder_of(name, self.run)

    def runs_of(self, stage: Stage) -> dict[str, Run]:
        return {key: self.run_of(name) for key, name in stage.needs.items()}


def assert_run_name(name: str) -> None:
    """Raises ConfigError if this cannot be the name of a run's folder."""
    from disentune.spec.sweepfile import NAME

    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name!r}: must have only letters, digits, '_', '-' or '.', and begin with a letter or digit"
        )


def run_folder(storage: str | Place, sweep_name: str, name: str) -> Run:
    """The run of a sweep by its name. Raises ConfigError if the storage does not answer, or the folder has links."""
    from disentune.files.storage import assert_reachable, place
    from disentune.runs.ledger import Run, assert_own_files

    assert_run_name(name)
    where = place(storage)
    assert_reachable(where)
    run = Run((where / sweep_name / name).absolute())
    assert_own_files(run)
    return run


def read_chain(sweep: SweepFile, display: Display) -> list[Stage]:
    """Raises one ConfigError with every problem of every stage."""
    from disentune.results.studies import assert_possible
    from disentune.runs.stages import chain

    with display.waiting() as say:
        stages = chain(sweep, say)
    if sweep.needs:
        assert_possible(stages)
    return stages


def _progress(study: Study, asked: SweepPoints, retry_failed: bool) -> Progress:
    from disentune.runs.stages import progress

    with study.display.waiting() as say:
        return progress(asked, study.run_of(asked.sweep.name), retry_failed, say)


# ---- looking


@dataclass(frozen=True)
class Looks:
    """How far a chain is: each stage before the study, and the study's points. They are final once they are `ready`:
    what they need is finished, and what was chosen from it is filled in."""

    before: list[Progress]
    asked: SweepPoints
    ready: bool


def looked_at(study: Study) -> Looks:
    """Raises ConfigError when a needed run has changed since the study began."""
    before: list[Progress] = []
    done, last = set[str](), study.stages[-1]
    for stage in study.stages:
        ready = done >= {*stage.needs.values()}
        asked, makers = _ready(study, stage) if ready else (stage.asked, None)
        if makers is not None:
            before.append(_progress(study, makers, study.wanted.retry_failed))
        elif not ready and _waits(stage):
            before.append(_unknown(study, stage))
        if stage is not last:
            before.append(_progress(study, asked, study.wanted.retry_failed))
            done |= {stage.name} if before[-1].state == "done" else set()
    return Looks(before, asked, ready)


def planned_study(study: Study, looks: Looks) -> Plan:
    """The plan of the study; as if nothing had been done while its points are not final."""
    from disentune.runs.ledger import Run

    run = study.run if looks.ready else Run(Path(os.devnull) / "no run")
    return planned_trials(looks.asked, run, study.wanted, study.display)


def _waits(stage: Stage) -> bool:
    """Whether it has data sets that are yet to be made."""
    return any(config.awaits_donors for _, config in stage.asked.unseeded)


def _unknown(study: Study, stage: Stage) -> Progress:
    from disentune.runs.stages import Progress, makers_name

    name = makers_name(stage.asked.sweep)
    return Progress(name, study.run_of(name), plan=None)


def _ready(study: Study, stage: Stage) -> tuple[SweepPoints, SweepPoints | None]:
    """A stage whose needs are finished: its points, and those of the sweep that makes its data sets."""
    from disentune.results.studies import makers
    from disentune.spec import space

    if not stage.needs:
        return stage.asked, None
    filled = _filled_in(study, stage)
    asked = space.check(replace(filled, needs={}))
    sweep = makers(asked)
    return asked, space.check(sweep) if sweep is not None else None


def _filled_in(study: Study, stage: Stage) -> SweepFile:
    """Raises ConfigError when the trials that it was made from are others now."""
    from disentune.results.studies import chosen_by, filled_in
    from disentune.runs.stages import assert_same_donors, begun
    from disentune.spec import space

    run, runs = study.run_of(stage.name), study.runs_of(stage)
    before = begun(run)
    if before is not None and before.donors:
        as_before = filled_in(space.check(before.asked), runs)
        assert_same_donors(stage.asked.sweep, run, chosen_by(as_before))
    return filled_in(stage.asked, runs)


def line(stage: Progress) -> str:
    where = shown(stage.run.path)
    if stage.plan is None:
        return f"{stage.name} in {where}: its trials are known once the stages before it are finished"
    plan, failed = stage.plan, f", {len(stage.failed)} failed" if stage.failed else ""
    done = plan.done - len(stage.failed)
    taken = f"{sum(plan.taken.values())} taken over, " if plan.taken else ""
    return f"{stage.name} in {where}: {done} of {plan.trials} trials done{failed}, {taken}" \
           f"{len(plan.continuing)} continue, {plan.new} new"  # fmt: skip


# ---- carrying it out


def carry_out_study(study: Study) -> Ending:
    """Every stage in order, each with its own run folder; what is finished is passed over. The ending is that of the
    study, or of the stage that was stopped. Raises ConfigError before anything is spent when a stage has failed, was
    changed, or is being run by another driver, and StageFailed when trials of one fail now."""
    from disentune.files.earlier import storage_known

    if study.has_needs:
        _assert_can_begin(study)
        _record_chain(study)
    with storage_known(study.run.path.parent.parent):
        try:
            for stage in study.stages[:-1]:
                _finish(study, _prepared(study, stage))
            asked = _prepared(study, study.stages[-1])
        except _StageStopped as stopped:
            return stopped.ending
        return carry_out(study.run, asked, study.wanted, study.display)


def _assert_can_begin(study: Study) -> None:
    from disentune.runs.preview import unprepared
    from disentune.runs.stages import assert_same_needs, failure

    for stage in study.stages:
        assert_same_needs(stage.asked.sweep, study.run_of(stage.name))
        study.run_of(stage.name).assert_free()
    looks = looked_at(study)
    for progress in looks.before:
        if progress.failed:
            raise ConfigError(failure(progress, study.run))
    planned = planned_study(study, looks)  # filters that select nothing are refused here
    if not study.wanted.address:  # else each node has a data root of its own
        unprepared(planned)


def _record_chain(study: Study) -> None:
    """Keeps the chain in the folder of each run that needs others, so that `resume` needs nothing else."""
    from disentune.runs.stages import begun

    for stage in study.stages:
        run, sweep = study.run_of(stage.name), stage.asked.sweep
        if not stage.needs or run.trials():
            continue
        before = begun(run)
        if before is None or before.asked.resolved() != sweep.resolved():
            with run.locked():
                run.record(sweep)
                run.record_stages(sweep, {})


def _prepared(study: Study, stage: Stage) -> SweepPoints:
    """The points of a stage whose needs are finished, once its data sets are made."""
    from disentune.results.studies import chosen_by

    if not stage.needs:
        return stage.asked
    asked, makers = _ready(study, stage)
    if makers is not None:
        _finish(study, makers)
    run = study.run_of(stage.name)
    with run.locked():
        run.record_stages(stage.asked.sweep, chosen_by(asked.sweep))
    return asked


def _finish(study: Study, asked: SweepPoints) -> None:
    """Runs a stage unless it is done. Raises StageFailed when trials of it fail."""
    from disentune.runs.stages import failure

    run, retry = study.run_of(asked.sweep.name), study.wanted.retry_failed
    progress = _progress(study, asked, retry)
    if progress.state == "done":
        study.display.say(f"stage {line(progress)}")
        return
    wanted = Wanted(address=study.wanted.address, retry_failed=retry)
    ending = carry_out(run, asked, wanted, study.display, is_stage=True)
    if ending.interrupted:
        raise _StageStopped(ending)
    if ending.failed:
        raise StageFailed(failure(_progress(study, asked, retry_failed=False), study.run))
