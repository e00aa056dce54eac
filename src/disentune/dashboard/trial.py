"""The page of one trial: what it is, how it went, what it saw."""

import io
from typing import Any

from PIL import Image

from disentune.dashboard.answers import cleaned, plain, rounded
from disentune.dashboard.feed import complaint
from disentune.dashboard.latents import why_not
from disentune.dashboard.shelf import Unknown
from disentune.errors import ConfigError, DataError, DisentuneError
from disentune.files.storage import read_if_there, shown
from disentune.learn.pictures import from_bytes, sheets
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import flattened

MOST_LETTERS = 20_000
"""Characters of an error log that are shown, counted from its end."""


def trial(folder: TrialFolder) -> dict[str, Any]:
    """Everything about a trial except its curves. Raises ConfigError if its config is damaged."""
    tree, arms = folder.tree_and_arms()
    status = folder.status()
    found = {
        "id": folder.id,
        "where": shown(folder.path),
        "arms": list(arms),
        "config": {key: plain(value) for key, value in flattened(tree).items()},
        "status": {
            "state": status.state, "step": status.step, "cause": status.cause[-MOST_LETTERS:], "node": status.node,
            "seconds": status.seconds, "attempts": status.attempts, "faults": status.faults,
        },
        "metrics": _metrics(folder),
        "errors": (read_if_there(folder.errors_path) or b"").decode(errors="replace")[-MOST_LETTERS:],
        "checkpoints": folder.checkpoints.steps(),
        "pictures": _pictures(folder),
        "no_sliders": why_not(folder),
    }  # fmt: skip
    return cleaned(found)


def _metrics(folder: TrialFolder) -> list[dict[str, Any]]:
    """The last value of every number of its rows, with its step."""
    found: dict[str, dict[str, Any]] = {}
    try:
        for row in folder.rows_to_end():
            for key, value in row["metrics"].items():
                found[key] = {"key": key, "value": None if value is None else rounded(value), "step": row["step"]}
    except (ConfigError, OSError) as error:
        return [{"key": complaint(error), "value": None, "step": 0}]
    return list(found.values())


def _pictures(folder: TrialFolder) -> dict[str, Any]:
    steps = folder.picture_steps()
    try:
        newest = list(_sheets(folder, steps[-1])) if steps else []
        return {"steps": steps, "sheets": newest, "failure": folder.pictures_failure()}
    except DisentuneError as error:
        return {"steps": steps, "sheets": [], "failure": str(error)}


def _sheets(folder: TrialFolder, step: int) -> dict[Any, Any]:
    data = folder.read_pictures(step)
    if data is None:
        raise Unknown(f"trial {folder.id} has no pictures of step {step}")
    try:
        return sheets(from_bytes(data))
    except DataError as error:
        raise DataError(f"the pictures of step {step} cannot be read: {error}") from None


def picture(folder: TrialFolder, step: int, sheet: str) -> bytes:
    """A PNG file."""
    found = _sheets(folder, step)
    if sheet not in found:
        raise Unknown(f"step {step} has no sheet '{sheet:.40}', only: {', '.join(found)}")
    return png(found[sheet])


def png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
