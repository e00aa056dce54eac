"""Frees space in a run: checkpoints and pictures by policy. Rows, configs and statuses are never touched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from disentune.files.storage import Place
from disentune.runs.ledger import Run
from disentune.runs.segment import Best
from disentune.runs.trial_folder import FINISHED, TrialFolder
from disentune.spec.settings import Objective

Policy = Literal["best-and-last", "none"]
NEVER_AGAIN = (*FINISHED, "diverged")
"""States of trials that need no checkpoint to continue; a failed one may be tried again."""


@dataclass(frozen=True)
class Waste:
    """A file that a policy removes."""

    path: Place
    size: int
    kind: Literal["checkpoint", "pictures"]


@dataclass(frozen=True)
class Found:
    """What a policy removes, and how many trials keep their newest checkpoint only because they have not ended."""

    waste: tuple[Waste, ...]
    unfinished: int

    def size(self, kind: str | None = None) -> int:
        return sum(one.size for one in self.waste if kind in (None, one.kind))

    def count(self, kind: str) -> int:
        return sum(one.kind == kind for one in self.waste)


def found_waste(run: Run, checkpoints: Policy | None, pictures: bool) -> Found:
    """What a policy would remove; None keeps every checkpoint. Raises ConfigError for a damaged run."""
    objective = run.sweep().settings.objective
    waste, unfinished = list[Waste](), 0
    for folder in run.trials():
        if checkpoints is not None:
            removed = _removable(folder, objective, checkpoints)
            waste += _sized([folder.checkpoints.path(step) for step in removed], "checkpoint")
            unfinished += checkpoints == "none" and not _is_over(folder) and bool(folder.checkpoints.steps())
        if pictures:
            waste += _sized([folder.picture_path(step) for step in folder.picture_steps()], "pictures")
    return Found(tuple(waste), unfinished)


def remove(found: Found) -> None:
    """Only for the process that holds the run's lock."""
    for one in found.waste:
        one.path.unlink(missing_ok=True)


def _removable(folder: TrialFolder, objective: Objective | None, policy: Policy) -> list[int]:
    """Steps whose checkpoints are not kept. A trial that has not ended keeps the one that it continues from."""
    steps = folder.checkpoints.steps()
    if policy == "none":
        kept = set() if _is_over(folder) else _newest_sound(folder, steps)
    else:
        kept = _newest_sound(folder, steps) | {Best(objective, folder.rows()).step}
    return [step for step in steps if step not in kept]


def _is_over(folder: TrialFolder) -> bool:
    return folder.status().state in NEVER_AGAIN


def _newest_sound(folder: TrialFolder, steps: list[int]) -> set[int | None]:
    """The newest step whose checkpoint is intact; nothing is read if there is only one."""
    candidates = reversed(steps)
    sound = (step for step in candidates if len(steps) == 1 or folder.checkpoints.is_sound(step))
    return {next(sound, None)}


def _sized(paths: list[Place], kind: Literal["checkpoint", "pictures"]) -> Iterator[Waste]:
    return (Waste(path, path.stat().st_size, kind) for path in paths)
