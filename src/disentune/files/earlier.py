"""Trained networks of earlier trials, found by trial id below the storage: <storage>/<sweep>/<run>/trials/<id>/.

A worker uses the storage of its own run, a command the one that the variable of its environment names.
"""

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from disentune.errors import DataError, TrialError
from disentune.files.checkpoint import LARGEST_CHECKPOINT, unpacked, weights_hash
from disentune.files.storage import DEFAULT_STORAGE, Place, place, read_bytes

VARIABLE = "DISENTUNE_STORAGE"


def use_storage(path: Place) -> None:
    """Names the storage for this process and those that it starts."""
    os.environ[VARIABLE] = str(path.absolute())


@contextmanager
def storage_known(path: Place) -> Iterator[None]:
    """Tells this process, and those that it starts, where the trials of earlier runs are, until the block ends."""
    before = os.environ.get(VARIABLE)
    use_storage(path)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        os.environ |= {VARIABLE: before} if before is not None else {}


def storage() -> Place:
    return place(os.environ.get(VARIABLE) or DEFAULT_STORAGE)


@dataclass(frozen=True)
class Earlier:
    """An earlier trial with the state of its last checkpoint."""

    tree: dict[str, Any]
    """Its canonical config."""
    state: dict[str, Any]

    @property
    def weights(self) -> str:
        """sha256 of the model's weights."""
        return weights_hash(self.state["model"])

    @property
    def is_finished(self) -> bool:
        return bool(self.state["step"] >= self.tree["training"]["steps"])


def earlier(trial_id: str, weights: str | None = None) -> Earlier:
    """The trial with weights of this hash, or else the trial trained to its end. Raises DataError if missing."""
    copies = [*_copies(trial_id)]
    for one in copies:
        if one.weights == weights if weights else one.is_finished:
            return one
    raise DataError(f"trial {trial_id} {_reason(copies, weights)} in {storage()}; run the sweep that has it again, or "
                    f"set {VARIABLE} to the storage of its run")  # fmt: skip


def _reason(copies: list[Earlier], weights: str | None) -> str:
    if not copies:
        return "has no sound checkpoint"
    return "has other weights than expected" if weights else "was not trained to its end"


def _copies(trial_id: str) -> Iterator[Earlier]:
    """The last sound checkpoint in every run that has the trial."""
    paths: list[Place] = [*storage().glob(f"*/*/trials/{trial_id}/config.json")]
    for path in sorted(paths, key=str):
        with suppress(ValueError, LookupError, TypeError):  # a damaged file is no trial
            tree = json.loads(read_bytes(path))["config"]
            yield from itertools.islice(_sound(path.parent / "checkpoints", tree), 1)


def _sound(folder: Place, tree: dict[str, Any]) -> Iterator[Earlier]:
    """Newest first."""
    paths: list[Place] = [*folder.glob("step-*.ckpt")]
    for path in sorted(paths, key=str, reverse=True):
        with suppress(TrialError):
            yield Earlier(tree, unpacked(read_bytes(path, LARGEST_CHECKPOINT), path))
