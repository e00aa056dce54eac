"""`disentune export` and `encode`: the trained model of a trial, for other programs and for your own images."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import Storage
from disentune.cli.terminal import err, out
from disentune.files.storage import DEFAULT_STORAGE

if TYPE_CHECKING:
    from disentune.results.tables import Record, Results
    from disentune.results.trained import TrainedModel

TrialPath = Annotated[
    str,
    typer.Argument(metavar="RUN/trials/ID", help="A trial: the run, and the trial's id or its first characters."),
]
Trust = Annotated[bool, typer.Option("--trust", help="Permit importing code that the trial names: your own plug-ins.")]


class Format(StrEnum):
    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"


def export(
    trial: TrialPath,
    to: Annotated[Format, typer.Option(help="Format of the file.")],
    output: Annotated[Path | None, typer.Option(help="The file; default: ID.safetensors, ID.pt or ID.onnx.")] = None,
    trust: Trust = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Writes the trained model of a trial to a file that loads without disentune.

    The file has the weights of the last checkpoint and a card: config, scores,
    pixel transform, layers, and where it comes from. ONNX takes images from 0 to 1 and
    has a second file for the decoder; it is checked against torch before it is written.

    Example: disentune export quickstart/main/trials/0123456789abcdef --to safetensors
    """
    from disentune.cli.display import size
    from disentune.results.exporting import exported

    model, record, results = _model(trial, storage, trust)
    for path in exported(model, record, results.run, to.value, output):
        out.print(f"{path}: {size(path.stat().st_size)}", markup=False)


def encode(
    trial: TrialPath,
    images: Annotated[Path, typer.Argument(metavar="IMAGES.npz", help="A file with the array `images`.")],
    output: Annotated[Path, typer.Option(help="The file with the codes.")] = Path("codes.npz"),
    trust: Trust = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Encodes your images with the trained model of a trial.

    IMAGES.npz is what np.savez("images.npz", images=images) writes: images (n, channels,
    height, width), uint8 or floats from 0 to 1. The result has codes and logvars (n, latents),
    and the factors of IMAGES.npz if it has any, so it can be scored.

    Examples:
    disentune encode quickstart/main/trials/0123456789abcdef images.npz
    disentune score codes.npz
    """
    from disentune.results.arrays import read_images
    from disentune.results.encoding import write_codes

    arrays = read_images(images)
    model, _, _ = _model(trial, storage, trust)
    count = write_codes(model, arrays, images, output)
    out.print(f"{output}: codes of {count:,} images, {model.latents} latents", markup=False)


def _model(trial: str, storage: str, trust: bool) -> tuple[TrainedModel, Record, Results]:
    from disentune.results.trained import model_of
    from disentune.results.trials import trial_at

    results, record = trial_at(trial, storage)
    model = model_of(results.run, record.trial_id, trust)
    for note in model.found.notes:
        err.print(f"note: {note}", markup=False)
    return model, record, results
