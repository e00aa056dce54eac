"""Resumes from every state that a cut of the power may leave: `python -m simulation.power_cuts` in the folder tests."""

import argparse
import errno
import itertools
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from disentune.errors import ConfigError
from simulation.crashes import Model, Operation, Recording, State, states, written
from simulation.disk import Disk, Failure
from simulation.running import MEMORY, say
from simulation.world import Case, World, calm_of
from simulator import table

SWEEPS = {("grid", "none"): "", ("optuna", "none"): "", ("optuna", "asha"): "", ("random", "pbt"): ""}
"""Searches and schedulers, each with the rule that ends its trials."""
MODELS: tuple[Model, ...] = ("ordered", "weak")
FINE = ("same table", "refused")


class SyncedDisk(Disk):
    """Syncs, so that a recording shows it, but for one sync of a file, which fails."""

    def __init__(self, recording: Recording, fails_at: int | None):
        super().__init__()
        self.recording, self.fails_at, self.syncs = recording, fails_at, 0

    def fsync(self, handle: int) -> None:
        self.syncs += not os.path.isdir(f"/proc/self/fd/{handle}")
        if self.syncs == self.fails_at:
            self.fails_at = None
            self.recording.sync_fails(handle)
            raise Failure(errno.EIO, os.strerror(errno.EIO), "")
        os.fsync(handle)


def recorded(pair: tuple[str, str], end: str, sweeps: Path, fails_at: int | None = None) -> list[Operation]:
    """The operations of a sweep from its start to its end; two trials at a time. The sync of a file with this number
    fails."""
    folder = sweeps / f"recorded-{'-'.join(pair)}-{fails_at}"
    folder.mkdir()
    world, recording = World(Case(7, pair, end, ()), sweeps, folder, slots=2), Recording(folder)
    world.disk = SyncedDisk(recording, fails_at)
    with recording.running():
        world.live()
    assert table(world.run) == calm_of(pair, end, sweeps).table
    return recording.operations


def some_syncs(operations: list[Operation], count: int) -> list[int]:
    """Numbers of syncs of files that may fail."""
    syncs = sum(one.kind == "sync" for one in operations)
    return sorted(1 + np.random.default_rng(0).choice(syncs, count, replace=False))


def after_failure(operations: list[Operation]) -> range:
    """The points after the sync that failed."""
    (failure,) = (number for number, one in enumerate(operations) if one.kind == "failed sync")
    return range(failure + 1, len(operations) + 1)


def outcome(state: State, pair: tuple[str, str], end: str, sweeps: Path) -> str:
    """ "same table", "refused", or what went wrong."""
    folder = Path(tempfile.mkdtemp(dir=sweeps)) / "runs"
    try:
        written(state, folder)
        world = World(Case(7, pair, end, ()), sweeps, folder, slots=1)
        try:
            world.live()
        except ConfigError as error:
            named = [name for name in state if name in str(error)]
            return "refused" if named else f"refused without the name of a file: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "same table" if table(world.run) == calm_of(pair, end, sweeps).table else "another table"
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)


@dataclass
class Tried:
    """How many states there were, and how often what came of those that were tried."""

    states: int = 0
    results: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> int:
        return sum(times for result, times in self.results.items() if result not in FINE)

    def __str__(self) -> str:
        said = ", ".join(f"{result} {times:,}" for result, times in self.results.most_common())
        return f"{self.states:,} states: {said}"


def tried(
    operations: list[Operation],
    pair: tuple[str, str],
    end: str,
    model: Model,
    sweeps: Path,
    most: int | None = None,
    ends: Collection[int] | None = None,
    budget_s: float = math.inf,
) -> Tried:
    """Resumes from the states of a recording, or from so many of them. No further state is tried once the budget of
    processor time is used."""
    found = [state for _, state in states(operations, model, ends)]
    done, began = Tried(len(found)), time.process_time()
    if most is not None and most < len(found):
        chosen = np.random.default_rng(0).choice(len(found), most, replace=False)
        found = [found[number] for number in chosen]
    for state in found:
        if time.process_time() - began > budget_s:
            break
        done.results[outcome(state, pair, end, sweeps)] += 1
    return done


def recordings(
    pair: tuple[str, str], end: str, failing: int, sweeps: Path
) -> Iterator[tuple[str, list[Operation], Collection[int] | None]]:
    """A sweep, or so many with a sync that fails: what it is, its operations, and the points at which states are to be
    looked for."""
    operations = recorded(pair, end, sweeps)
    if not failing:
        yield "", operations, None
    for fails_at in some_syncs(operations, failing):
        operations = recorded(pair, end, sweeps, fails_at)
        yield f", sync {fails_at} fails", operations, after_failure(operations)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--most", type=int, help="states of each sweep and model; default: all")
    options.add_argument("--failing", type=int, default=0, help="instead: so many sweeps with a sync that fails")
    chosen, wrong = options.parse_args(), 0
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="disentune-") as folder:
        for pair, end in SWEEPS.items():
            for (what, operations, ends), model in itertools.product(
                recordings(pair, end, chosen.failing, Path(folder)), MODELS
            ):
                done = tried(operations, pair, end, model, Path(folder), chosen.most, ends)
                wrong += done.wrong
                say(f"{' and '.join(pair)}, {len(operations):,} operations{what}, {model}: {done}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
