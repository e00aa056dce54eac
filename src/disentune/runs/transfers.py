"""Trials that enter or leave a run without training: set aside by --drop, restored, or copied from another run.

A trial's id is the hash of its whole config, and equal configs give equal rows, so a finished trial of another run is
exactly the trial that this run would compute. Each trial is moved by one rename, so a killed process never leaves half
a trial behind.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from disentune.environment import differences
from disentune.errors import ConfigError, DataError, TrialError
from disentune.files.storage import make_folder, shown, sync_folder
from disentune.learn import pictures
from disentune.runs.json_files import write_json
from disentune.runs.ledger import Run, assert_own_files, environment_with
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Asha, Median, OptunaSearch, Pbt, Settings
from disentune.spec.space import Point
from disentune.spec.sweepfile import SweepFile

Say = Callable[[str], None]


@dataclass(frozen=True)
class Taken:
    """A finished trial of another run that becomes a trial of this one."""

    point: Point
    folder: TrialFolder

    @property
    def run(self) -> Run:
        return Run(self.folder.path.parent.parent)


@dataclass(frozen=True)
class Transfers:
    """What a session moves before it trains; trials by their ids."""

    drop: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    take: Mapping[str, Taken] = field(default_factory=dict)

    def carry_out(self, run: Run, say: Say) -> None:
        """Call it while the run is locked and before the sweep is recorded: if the process dies in between, the
        recorded sweep still contains what was set aside, and restores it."""
        for trial_id in self.drop:
            _move(run.trial(trial_id), run.dropped_trial(trial_id))
        for trial_id in self.restore:
            _move(run.dropped_trial(trial_id), run.trial(trial_id))
        for taken in self.take.values():
            try:
                take_over(run, taken)
            except (ConfigError, TrialError, DataError) as error:
                say(f"trial {taken.folder.id} is trained instead of copied: {error}")


# ---- set aside and restored


def assert_droppable(run: Run, settings: Settings, everything: bool) -> None:
    """Raises ConfigError if the remaining trials depend on those that would be set aside; `everything`: none remain."""
    if not isinstance(run.path, Path):
        raise ConfigError("--drop needs a run on disk, because an object store cannot rename; use --name NEW instead")
    search, scheduler = settings.search, settings.scheduler
    reason = ""
    if isinstance(search, OptunaSearch):
        reason = "search: optuna, which learns from every trial it has suggested"
    elif isinstance(scheduler, Pbt):
        reason = "scheduler: pbt, whose trials copy each other"
    elif isinstance(scheduler, Asha | Median) and not everything:
        reason = f"scheduler: {scheduler.name}, which judges each trial by the trials before it"
    if reason:
        raise ConfigError(f"--drop cannot be used with {reason}; use --name NEW instead")


def _move(source: TrialFolder, target: TrialFolder) -> None:
    assert isinstance(source.path, Path)
    assert isinstance(target.path, Path)
    if not source.path.is_dir():
        return
    make_folder(target.path.parent)
    if target.path.exists():  # it has the same config, and therefore the same rows
        shutil.rmtree(target.path)
    os.rename(source.path, target.path)
    sync_folder(target.path.parent)
    sync_folder(source.path.parent)


# ---- copied from other runs


def found_elsewhere(run: Run, wanted: Mapping[str, Point], sweep: SweepFile) -> dict[str, Taken]:
    """Finished trials of other runs in the same storage, by id."""
    found: dict[str, Taken] = {}
    if not wanted or not isinstance(run.path, Path) or why_not_taken(sweep.settings):
        return found
    here: dict[str, Any] = {}
    for sibling in _siblings(run.path):
        with suppress(ConfigError, OSError):  # skip runs that cannot be read
            names = sorted((wanted.keys() - found.keys()) & set(os.listdir(str(sibling.trials_folder))))
            here = here or (environment_with(sweep.own_plugins()) if names else {})
            if names and _is_alike(sibling, sweep.settings, here):
                found |= _finished(sibling, {id: wanted[id] for id in names}, sweep.settings)
    return found


def why_not_taken(settings: Settings) -> str:
    """Why a sweep copies no trials from other runs; empty if it may."""
    if isinstance(settings.search, OptunaSearch):
        return "search: optuna suggests each trial from the results before it"
    if settings.scheduler.name != "none":
        return f"scheduler: {settings.scheduler.name} decides about each trial by the others of its own run"
    return ""


def _siblings(run: Path) -> Iterator[Run]:
    for path in sorted(run.parent.parent.glob("*/*/sweep.yaml")):
        if path.parent != run:
            yield Run(path.parent)


def _is_alike(other: Run, settings: Settings, here: Mapping[str, Any]) -> bool:
    """Whether all sessions of a run had the same code, versions and devices as this process, and stopping rules that
    give the same rows."""
    assert_own_files(other)
    theirs = other.sweep().settings
    ends = [(one.stop.plateau, one.stop.divergence, one.objective if one.stop.plateau else None)
            for one in (settings, theirs)]  # fmt: skip
    return (
        all(_same_code(then, here) for then in other.environments())
        and not isinstance(theirs.scheduler, Pbt)
        and ends[0] == ends[1]
        and (settings.pictures == theirs.pictures or settings.pictures.when == "never")
        and settings.checkpoint.finished in (theirs.checkpoint.finished, "weights")
    )


def _same_code(then: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    plugins: Mapping[str, str] = here.get("plugins", {})
    known = then.get("source") == here["source"] and plugins.items() <= then.get("plugins", {}).items()
    return known and not differences(dict(then), dict(here))


def _finished(other: Run, points: Mapping[str, Point], settings: Settings) -> dict[str, Taken]:
    found = {}
    for trial_id, point in points.items():
        folder = other.trial(trial_id)
        with suppress(ConfigError, OSError):
            if _is_finished(folder, point.config, settings):
                found[trial_id] = Taken(point, folder)
    return found


def _is_finished(folder: TrialFolder, config: TrialConfig, settings: Settings) -> bool:
    """Whether a trial was trained to the end of its config, and would be here."""
    steps = config.training.steps
    status, rows, gap, flaw = folder.sound()
    return (
        gap is None
        and flaw is None
        and (status.state, status.step) == ("done", steps)
        and (settings.stop.steps or steps) >= steps
        and not any(row.get("overrides") for row in rows)
    )


def take_over(run: Run, taken: Taken) -> None:
    """Copies a trial, checks the copy and moves it into place. Raises ConfigError, TrialError or DataError if one of
    its files is damaged."""
    copy, target = TrialFolder(run.incoming_folder / taken.folder.id), run.trial(taken.folder.id)
    assert isinstance(copy.path, Path)
    assert isinstance(target.path, Path)
    if target.is_recorded:
        return
    shutil.rmtree(copy.path, ignore_errors=True)
    make_folder(copy.path)
    try:
        _copy_files(taken.folder, copy)
        copy.create(taken.point.config, taken.point.arms)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        write_json(copy.origin_path, {"run": shown(taken.run.path), "taken_over": stamp})
        _assert_sound(copy, taken.point.config.training.steps)
    except BaseException:
        shutil.rmtree(copy.path, ignore_errors=True)
        raise
    make_folder(target.path.parent)
    shutil.rmtree(target.path, ignore_errors=True)  # without a config it is not a trial
    os.rename(copy.path, target.path)
    sync_folder(target.path.parent)


def _copy_files(source: TrialFolder, copy: TrialFolder) -> None:
    """The files to copy: not the config, which names the arms of the other run."""
    assert isinstance(copy.path, Path)
    files = [Path(str(path)) for path in source.computed_files()]
    targets = {path: copy.path / path.relative_to(str(source.path)) for path in files}
    for folder in sorted({target.parent for target in targets.values()}):
        make_folder(folder)
    for path, target in targets.items():
        _copy_file(path, target)
    for folder in {target.parent for target in targets.values()}:
        sync_folder(folder)


def _copy_file(source: Path, copy: Path) -> None:
    with open(source, "rb") as data, open(copy, "wb") as file:
        shutil.copyfileobj(data, file)
        file.flush()
        os.fsync(file.fileno())


def _assert_sound(copy: TrialFolder, steps: int) -> None:
    copy.tree()
    status, _, gap, flaw = copy.sound()
    copy.end()
    if gap is not None or flaw or (status.state, status.step) != ("done", steps):
        raise ConfigError(f"{copy.rows_path} is not complete")
    for step in copy.checkpoints.steps():
        if not copy.checkpoints.is_sound(step):
            raise TrialError(f"{copy.checkpoints.path(step)} is damaged")
    if copy.checkpoints.steps()[-1:] != [steps]:
        raise TrialError(f"{copy.path} has no checkpoint of its last step")
    for step in copy.picture_steps():
        pictures.from_bytes(copy.read_pictures(step) or b"")
