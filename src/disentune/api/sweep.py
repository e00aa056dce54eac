"""A sweep in Python: the keys of a sweep file as arguments, planned and run as by the commands."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from pydantic import Field

from disentune.api.arguments import Location, Strings, arguments
from disentune.api.run import RunResults
from disentune.api.showing import Nothing, Screen
from disentune.api.wording import in_python
from disentune.errors import ConfigError, counted_trials
from disentune.files import documents
from disentune.files.earlier import VARIABLE
from disentune.files.storage import DEFAULT_STORAGE, place
from disentune.files.writing import write_atomically
from disentune.plugin import Count, Frozen
from disentune.results import tables
from disentune.sessions.session import Wanted
from disentune.sessions.study import Study, carry_out_study, looked_at, planned_study, read_chain, run_folder
from disentune.spec import space

if TYPE_CHECKING:
    from disentune.runs.preview import Plan
    from disentune.spec.sweepfile import SweepFile


class SweepKeys(TypedDict, total=False):
    """The keys of a sweep; all may be left out. Their values are those of the file, as dicts, lists and numbers."""

    name: str
    question: str
    trial: Mapping[str, Any]
    arms: Mapping[str, Any]
    seeds: int | Sequence[int]
    search: str | Mapping[str, Any]
    scheduler: str | Mapping[str, Any]
    objective: Mapping[str, Any] | None
    resources: Mapping[str, Any]
    stop: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    retries: Mapping[str, Any]
    data: Mapping[str, Any]
    wandb: Mapping[str, Any] | None
    pictures: str | Mapping[str, Any]
    figures: Sequence[Any] | None
    needs: Mapping[str, Any]


class _Files(Frozen):
    path: Location
    set: Strings = ()


class Options(Frozen):
    """The arguments of `Sweep.plan` and `Sweep.run`."""

    storage: Location | None = None
    name: str = "main"
    address: str | None = None
    only: str | None = None
    limit: Annotated[Count, Field(ge=1)] | None = None
    retry_failed: bool = False
    drop: bool = False
    progress: bool = True

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.only, self.limit, self.address, self.retry_failed, self.drop)


class Sweep:
    """A sweep, from the keys of a sweep file:

    ```python
    Sweep(
        name="spacing",
        trial={
            "dataset": {"name": "xysquares", "spacing": {"grid": [1, 8]}},
            "framework": {"name": "beta_vae", "beta": 1},
            "model": {"name": "mlp", "latents": 4},
            "recon.name": "mse",
            "loss_scale": "mean",
            "training.steps": 1000,
            "evaluation.metrics": ["mig"],
        },
        seeds=3,
    )
    ```

    Every point is checked at once; a ConfigError lists all mistakes with the paths of their keys. Search spaces and
    needed sweeps are looked up from the working folder.
    """

    def __init__(self, **keys: Unpack[SweepKeys]) -> None:
        with in_python():
            self._check(space.read_values(keys))

    @classmethod
    def read(cls, path: str | Path, set: Sequence[str] = ()) -> Sweep:
        """The sweep of a file; `set` changes keys as `--set` does: `set=["training.steps=100"]`."""
        sweep = cls.__new__(cls)
        with in_python():
            given = arguments(_Files, "the sweep cannot be read", path=path, set=set)
            sweep._check(space.read_file(Path(given.path), given.set))
        return sweep

    def _check(self, file: SweepFile) -> None:
        self._file = file
        self._stages = read_chain(file, Screen())

    @property
    def name(self) -> str:
        return self._file.name

    @property
    def arms(self) -> list[str]:
        return list(self._file.arms)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self._file.seeds

    def plan(
        self,
        *,
        storage: str | Path | None = None,
        name: str = "main",
        only: str | None = None,
        limit: int | None = None,
        retry_failed: bool = False,
        drop: bool = False,
    ) -> Plan:
        """What `run` would do with the same arguments: trials done, to continue, and new."""
        with in_python():
            chosen = arguments(
                Options, "the sweep cannot be planned", storage=storage, name=name, only=only, limit=limit,
                retry_failed=retry_failed, drop=drop,
            )  # fmt: skip
            study = self._study(chosen)
            return planned_study(study, looked_at(study))

    def run(
        self,
        *,
        storage: str | Path | None = None,
        name: str = "main",
        address: str | None = None,
        only: str | None = None,
        limit: int | None = None,
        retry_failed: bool = False,
        drop: bool = False,
        progress: bool = True,
    ) -> RunResults:
        """Runs what is unfinished and gives the run, also if trials failed or you stopped it.

        Ctrl-C, or a notebook's stop button, ends it after every trial has written a checkpoint; a second one ends it at
        once with KeyboardInterrupt. Calling `run` again continues. The arguments are those of `disentune run`: see
        there. Without `storage` it is DISENTUNE_STORAGE, or the folder `runs`.
        """
        with in_python():
            chosen = arguments(
                Options, "the sweep cannot run", storage=storage, name=name, address=address, only=only, limit=limit,
                retry_failed=retry_failed, drop=drop, progress=progress,
            )  # fmt: skip
            if threading.current_thread() is not threading.main_thread():
                raise ConfigError("Sweep.run must be called from the main thread, which receives Ctrl-C")
            study = self._study(chosen)
            carry_out_study(study)
            found = tables.read(study.run)
        return RunResults(found.run, found.records, found.notes)

    def _study(self, chosen: Options) -> Study:
        storage = chosen.storage or os.environ.get(VARIABLE) or DEFAULT_STORAGE
        run = run_folder(storage, self.name, chosen.name)
        return Study(run, self._stages, Screen() if chosen.progress else Nothing(), chosen.wanted)

    def save(self, path: str | Path) -> None:
        """Writes a sweep file with the same points. Search spaces are written into it, so that it needs no other
        file."""
        where = place(arguments(_Files, "the sweep cannot be saved", path=path).path)
        if where.suffix not in (".yaml", ".yml"):
            raise ConfigError(f"{path}: a sweep file must end in .yaml")
        try:
            write_atomically(where, documents.dumped(self._file.resolved()))
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None

    def __repr__(self) -> str:
        arms, count = len(self.arms), len(self._stages[-1].asked.points)
        trials = counted_trials(count) if count else "trials chosen by the search"
        seeds = f"{len(self.seeds)} seed{'s'[: len(self.seeds) > 1]}"
        return f"Sweep({self.name!r}: {trials}, {arms} arm{'s'[: arms > 1]}, {seeds})"
