"""Checks that a run is as it was written: every file that has a hash or a fixed form, rows against statuses, and
results.parquet against the rows. Repairs what can be computed again."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from disentune.errors import ConfigError
from disentune.files.storage import Place, read_if_there, shown
from disentune.files.writing import write_atomically
from disentune.results import tables
from disentune.runs import scores
from disentune.runs.ledger import Run
from disentune.runs.suggest import rehearsal
from disentune.runs.trial_folder import TrialFolder

EVERY_STEP = 2**63


@dataclass(frozen=True)
class Damage:
    """What is wrong, and what `--repair` does about it; it does nothing without `repair`."""

    text: str
    remedy: str = ""
    repair: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Verified:
    """What was read, and what is wrong with it."""

    trials: int
    rows: int
    checkpoints: int
    damages: tuple[Damage, ...]


def verify(run: Run) -> Verified:
    """Reads a whole run; nothing is written. Raises OSError or Unavailable if the storage does not answer."""
    folders = run.trials()
    damages = [*_of_the_run(run)]
    rows = checkpoints = 0
    for folder in folders:
        found, count = _of_rows(folder)
        rows += count
        steps = folder.checkpoints.steps()
        checkpoints += len(steps)
        damages += [*_unreadable(folder.tree), *_of_status(folder), *found, *_of_end(folder)]
        damages += [_of_checkpoint(folder, step) for step in steps if not folder.checkpoints.is_sound(step)]
    if not damages:
        damages += _of_parquet(run)
    return Verified(len(folders), rows, checkpoints, tuple(damages))


def repair(verified: Verified) -> list[str]:
    """Repairs what can be computed again, and returns what was done."""
    done = []
    for damage in verified.damages:
        if damage.repair is not None:
            damage.repair()
            done.append(damage.remedy)
    return done


def _unreadable(read: Callable[[], Any]) -> list[Damage]:
    try:
        read()
    except ConfigError as error:
        return [Damage(str(error))]
    return []


def _of_the_run(run: Run) -> Iterator[Damage]:
    reads: list[Callable[[], Any]] = [run.sweep, run.environments, run.stages, run.generations]
    reads.append(lambda: scores.kept(run))
    if run.journal_path.exists():
        reads.append(lambda: rehearsal(run.journal_path))
    for read in reads:
        yield from _unreadable(read)


def _of_status(folder: TrialFolder) -> list[Damage]:
    path = folder.status_path
    remedy = f"{shown(path)} removed: the trial continues from its newest checkpoint"
    return [replace(damage, remedy=remedy, repair=lambda: _set_aside(path)) for damage in _unreadable(folder.status)]


def _of_end(folder: TrialFolder) -> list[Damage]:
    path = folder.end_path
    remedy = f"{shown(path)} removed: the trial has the scores of its last evaluation"
    return [replace(damage, remedy=remedy, repair=lambda: _set_aside(path)) for damage in _unreadable(folder.end)]


def _of_rows(folder: TrialFolder) -> tuple[list[Damage], int]:
    """Damages, and the number of sound rows."""
    path = folder.rows_path
    remedy = f"{shown(path)}: rows from the damage on removed"

    def cut() -> None:
        _keep_aside(path)
        folder.cut_rows(EVERY_STEP)

    try:
        rows, flaw = folder.rows_and_flaw()
    except ConfigError as error:
        return [Damage(str(error), remedy, cut)], 0
    if flaw is not None:
        return [Damage(f"{shown(path)}: {flaw}", remedy, cut)], len(rows)
    try:
        gap = folder.sound().gap
    except ConfigError:  # its status or config is reported elsewhere
        gap = None
    lacks = f"{shown(path)} has no row of step {gap}; resuming the run computes it again"
    return [Damage(lacks)] if gap is not None else [], len(rows)


def _of_checkpoint(folder: TrialFolder, step: int) -> Damage:
    path = folder.checkpoints.path(step)
    text = f"{shown(path)} is damaged; the trial continues from the checkpoint before it"
    return Damage(text, f"{shown(path)} set aside", lambda: folder.checkpoints.set_aside(step))


def _of_parquet(run: Run) -> list[Damage]:
    """Compares results.parquet with the rows, once every trial has ended and nothing else is wrong."""
    path = run.parquet_path
    data = read_if_there(path)
    if data is None or run.is_running() or not all(folder.status().final for folder in run.trials()):
        return []
    wanted = {tables.as_parquet(tables.read(run)), tables.as_parquet(tables.read(run, scored=False))}
    if data in wanted or _written_again(data) in wanted:
        return []
    text = f"{shown(path)} does not match the rows"
    return [Damage(text, f"{shown(path)} written again", lambda: tables.write_parquet(tables.read(run)))]


def _written_again(data: bytes) -> bytes:
    """The same table as this version writes it; empty if the file is damaged."""
    try:
        return tables.parquet_of(pyarrow.parquet.read_table(io.BytesIO(data)))
    except (pa.ArrowException, OSError):
        return b""


def _set_aside(path: Place) -> None:
    """Removes a damaged file, and keeps it under another name."""
    _keep_aside(path)
    path.unlink(missing_ok=True)


def _keep_aside(path: Place) -> None:
    write_atomically(path.with_name(f"{path.name}.damaged"), read_if_there(path) or b"")
