"""Training states of a trial on disk: a file for each step, checked by its hash before anything is loaded."""

import hashlib
import io
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from disentune.errors import TrialError, first_line
from disentune.files.storage import Place, is_damage, make_folder, read_bytes, retried
from disentune.files.writing import asides, write_atomically

MAGIC = b"disentune checkpoint 1\n"
LARGEST_CHECKPOINT = 2 * 10**10
"""Bytes: eight times what the largest network takes with its optimiser."""


class Checkpoints:
    """Training states of one trial by step. A damaged file is passed over for the one before it."""

    def __init__(self, folder: Place):
        self.folder = folder

    def path(self, step: int) -> Place:
        return self.folder / f"step-{step:010d}.ckpt"

    def steps(self) -> list[int]:
        return steps_of(self.folder, ".ckpt")

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        payload = buffer.getvalue()
        digest = hashlib.sha256(payload).hexdigest().encode()
        make_folder(self.folder, parents=False)  # the trial's own may have been deleted
        write_atomically(self.path(step), MAGIC + digest + b"\n" + payload)

    def _payload(self, data: bytes, step: int) -> bytes:
        """Raises TrialError when a file is not exactly what was written."""
        magic, _, rest = data.partition(b"\n")
        digest, _, payload = rest.partition(b"\n")
        if magic + b"\n" != MAGIC or hashlib.sha256(payload).hexdigest().encode() != digest:
            raise TrialError(f"{self.path(step)} is damaged")
        return payload

    def is_sound(self, step: int) -> bool:
        """Whether it is there as it was written. Raises OSError when the storage does not answer."""
        try:
            return bool(self._payload(read_bytes(self.path(step), LARGEST_CHECKPOINT), step))
        except TrialError:
            return False
        except OSError as error:
            if is_damage(error, self.folder):
                return False
            raise

    def load(self, step: int) -> dict[str, Any]:
        """Raises TrialError when the file is not exactly what was written."""
        payload = self._payload(read_bytes(self.path(step), LARGEST_CHECKPOINT), step)
        try:
            state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
        except Exception as error:  # a file that was made to look right fails in any way; nothing of it is run
            raise TrialError(f"{self.path(step)} is no checkpoint of ours ({first_line(error)})") from None
        if not isinstance(state, dict):
            raise TrialError(f"{self.path(step)} is no checkpoint of ours, but holds a {type(state).__name__}")
        return state

    def newest(self) -> tuple[int, dict[str, Any] | None, list[str]]:
        """Step and state of the newest sound checkpoint (0, None without one), and a note on each damaged one.

        Damaged ones are set aside, so that they do not count among the newest that `prune` keeps. Raises OSError when
        the storage does not answer, or not to us: an older one would only be work done twice.
        """
        notes: list[str] = []
        for step in reversed(self.steps()):
            try:
                return step, self.load(step), notes
            except (TrialError, OSError) as error:
                if isinstance(error, OSError) and not is_damage(error, self.folder):
                    raise
                notes.append(f"{error}; the checkpoint before it is used")
                with suppress(OSError):
                    _move(self.path(step), self.path(step).with_suffix(".damaged"))
        return 0, None, notes

    def drop_from(self, step: int) -> None:
        """Removes those of this step and later ones."""
        for later in self.steps():
            if later >= step:
                self.path(later).unlink(missing_ok=True)

    def prune(self, keep: int, best: int | None) -> None:
        """Keeps the newest `keep` and the best; clears what a killed writer left."""
        for aside in asides(self.folder, ".step-*"):
            aside.unlink(missing_ok=True)
        for step in self.steps()[:-keep]:
            if step != best:
                self.path(step).unlink(missing_ok=True)

    def copy_from(self, other: "Checkpoints", step: int) -> None:
        """Takes over another trial's state at a step, in place of our own there and of all that came later. Raises
        TrialError when it is damaged."""
        data = read_bytes(other.path(step), LARGEST_CHECKPOINT)
        other._payload(data, step)
        self.drop_from(step + 1)
        make_folder(self.folder)
        write_atomically(self.path(step), data)


@retried
def steps_of(folder: Place, suffix: str) -> list[int]:
    """Of the files `step-<number><suffix>`, in order."""
    numbers = (path.stem.removeprefix("step-") for path in folder.glob(f"step-*{suffix}"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _move(path: Place, target: Place) -> None:
    path.replace(target)  # type: ignore[arg-type]  # both are of one kind
