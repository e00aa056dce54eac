"""Resumes from every state that a cut of the power may leave: `python -m simulation.power_cuts` in the folder tests."""

import argparse
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from disentune.errors import ConfigError
from simulation.crashes import Model, Operation, Recording, State, states, written
from simulation.disk import Disk
from simulation.running import MEMORY, say
from simulation.world import Case, World, calm_of
from simulator import table

SWEEPS = {("grid", "none"): "", ("optuna", "none"): "", ("optuna", "asha"): "", ("random", "pbt"): ""}
"""Searches and schedulers, each with the rule that ends its trials."""
MODELS: tuple[Model, ...] = ("ordered", "weak")
FINE = ("same table", "refused")


class SyncedDisk(Disk):
    """Syncs, so that a recording shows it."""

    def fsync(self, handle: int) -> None:
        os.fsync(handle)


def recorded(pair: tuple[str, str], end: str, sweeps: Path) -> list[Operation]:
    """The operations of a sweep from its start to its end; two trials at a time."""
    folder = sweeps / f"recorded-{'-'.join(pair)}"
    folder.mkdir()
    world = World(Case(7, pair, end, ()), sweeps, folder, slots=2)
    world.disk = SyncedDisk()
    recording = Recording(folder)
    with recording.running():
        world.live()
    assert table(world.run) == calm_of(pair, end, sweeps).table
    return recording.operations


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


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--most", type=int, help="states of each sweep and model; default: all")
    most, wrong = options.parse_args().most, 0
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="disentune-") as folder:
        for pair, end in SWEEPS.items():
            operations = recorded(pair, end, Path(folder))
            for model in MODELS:
                done = tried(operations, pair, end, model, Path(folder), most)
                wrong += done.wrong
                say(f"{' and '.join(pair)}, {len(operations):,} operations, {model}: {done}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
