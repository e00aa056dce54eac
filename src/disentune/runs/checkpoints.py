"""Training states of a trial on disk: one file per step, whose hash is checked before loading."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from disentune.errors import TrialError
from disentune.files.checkpoint import LARGEST_CHECKPOINT, MAGIC, packed, payload_of, unpacked
from disentune.files.storage import Place, is_damage, make_folder, opened, read_bytes, retried
from disentune.files.writing import asides, write_atomically


class Checkpoints:
    """Training states of one trial by step. A damaged file is skipped in favour of the previous one."""

    def __init__(self, folder: Place):
        self.folder = folder

    def path(self, step: int) -> Place:
        return self.folder / f"step-{step:010d}.ckpt"

    def steps(self) -> list[int]:
        return steps_of(self.folder, ".ckpt")

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        data = packed(state)
        make_folder(self.folder, parents=False)  # the trial's folder may have been deleted
        write_atomically(self.path(step), data)

    def is_sound(self, step: int) -> bool:
        """Whether the file exists and is intact. Raises OSError if the storage does not answer."""
        try:
            return bool(payload_of(read_bytes(self.path(step), LARGEST_CHECKPOINT), self.path(step)))
        except TrialError:
            return False
        except OSError as error:
            if is_damage(error, self.folder):
                return False
            raise

    def fingerprint(self, step: int) -> str:
        """An identifier of a checkpoint that does not need the whole file: the hash in its first lines, or in an object
        store its size."""
        path = self.path(step)
        if not isinstance(path, Path):
            return f"{path.stat().st_size} bytes"
        with opened(path) as file:
            return file.read(len(MAGIC) + 64)[len(MAGIC) :].decode(errors="replace")

    def load(self, step: int) -> dict[str, Any]:
        """Raises TrialError if the file was changed after it was written, or is that of another step."""
        state = unpacked(read_bytes(self.path(step), LARGEST_CHECKPOINT), self.path(step))
        if state.get("step", step) != step:
            raise TrialError(f"{self.path(step)} is the checkpoint of step {state['step']}")
        return state

    def newest(self) -> tuple[int, dict[str, Any] | None, list[str]]:
        """Step and state of the newest intact checkpoint (0 and None if there is none), and a note on each damaged one.

        Damaged files are set aside, so that `prune` does not keep them among the newest. Checkpoints with only weights
        are skipped, because training cannot continue from them. Raises OSError if the storage does not answer or denies
        access: continuing from an older checkpoint would only repeat work.
        """
        from disentune.learn.training import can_train

        notes: list[str] = []
        for step in reversed(self.steps()):
            try:
                state = self.load(step)
                if can_train(state):
                    return step, state, notes
            except (TrialError, OSError) as error:
                if isinstance(error, OSError) and not is_damage(error, self.folder):
                    raise
                notes.append(f"{error}; using the previous checkpoint")
                with suppress(OSError):
                    self.set_aside(step)
        return 0, None, notes

    def set_aside(self, step: int) -> None:
        """Renames a damaged file, so that it is no checkpoint any more."""
        _move(self.path(step), self.path(step).with_suffix(".damaged"))

    def drop_from(self, step: int) -> None:
        """Removes the checkpoints of this step and later."""
        for later in self.steps():
            if later >= step:
                self.path(later).unlink(missing_ok=True)

    def prune(self, keep: int, best: int | None) -> None:
        """Keeps the newest `keep` and the best; removes temporary files of killed writers."""
        for aside in asides(self.folder, ".step-*"):
            aside.unlink(missing_ok=True)
        for step in self.steps()[:-keep]:
            if step != best:
                self.path(step).unlink(missing_ok=True)

    def slim(self) -> None:
        """Reduces every checkpoint to its weights; for a trial that will not train again."""
        from disentune.learn.training import can_train, weights_of

        for step in self.steps():
            with suppress(TrialError):  # a damaged one is left as it is
                state = self.load(step)
                if can_train(state):
                    self.save(step, weights_of(state))

    def copy_from(self, other: "Checkpoints", step: int) -> None:
        """Copies another trial's state at a step, replacing our own at this step and later. Raises TrialError if it is
        damaged."""
        data = read_bytes(other.path(step), LARGEST_CHECKPOINT)
        payload_of(data, other.path(step))
        self.drop_from(step + 1)
        make_folder(self.folder)
        write_atomically(self.path(step), data)


@retried
def steps_of(folder: Place, suffix: str) -> list[int]:
    """The sorted numbers of the files `step-<number><suffix>`."""
    numbers = (path.stem.removeprefix("step-") for path in folder.glob(f"step-*{suffix}"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _move(path: Place, target: Place) -> None:
    path.replace(target)  # type: ignore[arg-type]  # both are of one kind
