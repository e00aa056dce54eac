"""Files of a trained model that other programs load without disentune: safetensors, torch, or ONNX.

Each has a card: the config, the scores, the pixel transform, the layers, and where the weights come from.
"""

from __future__ import annotations

import copy
import io
import json
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from disentune.environment import cleaned_values, versions
from disentune.errors import ConfigError, DataError, TrialError, did_you_mean
from disentune.files.checkpoint import weights_hash
from disentune.files.writing import write_atomically
from disentune.plugin import AutoEncoder
from disentune.results.tables import Record
from disentune.results.trained import TrainedModel
from disentune.runs.ledger import Run

CARD = "disentune model 1"
"""The first entry of a card: what the file is."""
SUFFIXES = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx"}
DECODER = "_decoder"
"""The decoder of an ONNX model is a file of its own, whose name ends in this."""
TOLERANCE = 1e-4
"""Largest difference between ONNX Runtime and torch in standard deviations of the codes, or in pixels from 0 to 1."""
EXAMPLES = 3
"""Images on which a graph is traced and compared."""
HOW_TO_INSTALL = "install it with: pip install 'disentune[onnx]'"


def exported(model: TrainedModel, record: Record, run: Run, to: str, path: Path | None = None) -> list[Path]:
    """Writes the model and gives the files; by default in the working folder, named after the trial."""
    if to not in SUFFIXES:
        raise ConfigError(f"--to {to}: must be one of {', '.join(SUFFIXES)}.{did_you_mean(str(to), SUFFIXES)}")
    path = Path(f"{record.trial_id}{SUFFIXES[to]}") if path is None else path
    if path.is_dir():
        raise ConfigError(f"--output {path}: is a folder; name a file, such as {path / record.trial_id}{SUFFIXES[to]}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--output {path}: there is no folder {path.absolute().parent}")
    trained = model.found.trained
    if trained.code is not None or trained.posterior is not None:
        name = model.found.config.framework.name
        raise TrialError(f"trial {record.trial_id} cannot be exported: the codes of '{name}' are not what its encoder "
                         "gives; use the model in Python: disentune.load(run).trial(id).model()")  # fmt: skip
    found = card(model, record, run)
    if to == "onnx":
        return _write_onnx(model, found, path)
    write_atomically(path, _as_torch(model, found) if to == "torch" else _as_safetensors(model, found))
    return [path]


def _weights(model: TrainedModel) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.network.state_dict().items()}


def _as_torch(model: TrainedModel, found: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save({"card": found, "weights": _weights(model)}, buffer)
    return buffer.getvalue()


def _as_safetensors(model: TrainedModel, found: Mapping[str, Any]) -> bytes:
    from safetensors.torch import save

    return save(_weights(model), {"card": json.dumps(found)})


# ---- the card


def card(model: TrainedModel, record: Record, run: Run) -> dict[str, Any]:
    """Plain values that say what the weights are and how to use them."""
    network, images = model.network, model.found.trained.images
    return {
        "what": CARD,
        "trial": record.trial_id,
        "run": f"{run.path.parent.name}/{run.path.name}",
        "step": model.step,
        "disentune": versions()["disentune"],
        "source": run.environment().get("source"),
        "weights": weights_hash(network.state_dict()),
        "config": record.config,
        "scores": _scores(record, model.step),
        "images": {
            "shape": list(model.shape),
            "range": None if model.takes_points else [0, 1],
            "mean": images.mean.flatten().tolist(),
            "std": images.std.flatten().tolist(),
        },
        "latents": model.latents,
        "layers": {part: described(getattr(network, part), part) for part in ("encoder", "decoder")},
    }


def _scores(record: Record, step: int) -> dict[str, float]:
    """The last value of each metric up to the step of the weights."""
    numbers = {key: value for row in record.rows if row["step"] <= step for key, value in row["metrics"].items()}
    found: dict[str, float] = cleaned_values(
        {key: value for key, value in numbers.items() if isinstance(value, int | float) and math.isfinite(value)}
    )
    return found


ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    nn.ConvTranspose2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    nn.Linear: ("in_features", "out_features"),
    nn.BatchNorm2d: ("num_features", "eps"),
    nn.LeakyReLU: ("negative_slope",),
    nn.ReLU: (),
    nn.Flatten: (),
    nn.Unflatten: ("dim", "unflattened_size"),
}
"""The layers of torch that ours are equal to, and the arguments that define them."""
WITH_BIAS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)


def described(part: nn.Module, name: str) -> list[dict[str, Any]]:
    """The layers of an encoder or decoder in order: `name` is the prefix of its weights, `layer` its class in torch.nn
    with its `arguments`; a layer that torch does not have has no arguments."""
    layers = part.named_children() if isinstance(part, nn.Sequential) else [("", part)]
    return [{"name": f"{name}.{key}".rstrip("."), **_description(layer)} for key, layer in layers]


def _description(layer: nn.Module) -> dict[str, Any]:
    kind = _kind(layer)
    if kind is None:
        return {"layer": type(layer).__name__}
    arguments = {key: _plain(getattr(layer, key)) for key in ARGUMENTS[kind]}
    if isinstance(layer, WITH_BIAS):
        arguments["bias"] = layer.bias is not None
    return {"layer": kind.__name__, "arguments": arguments}


def _kind(layer: nn.Module) -> type[nn.Module] | None:
    return next((kind for kind in ARGUMENTS if isinstance(layer, kind)), None)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# ---- ONNX


class _Part(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, model: TrainedModel):
        super().__init__()
        self.network, self.clips = plain(model.network), not model.takes_points
        images, self.recon = model.found.trained.images, model.found.trained.recon
        self.register_buffer("mean", images.mean.float().cpu())
        self.register_buffer("std", images.std.float().cpu())
        self.eval()


class _Encoder(_Part):
    """Images from 0 to 1 -> means and standard deviations."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        q = self.network.encode((images - self.mean) / self.std)
        return q.mean, (0.5 * q.logvar).exp()


class _Decoder(_Part):
    """Codes -> images from 0 to 1."""

    def forward(self, z: Tensor) -> Tensor:
        output: Tensor = self.network.decode(z)
        images: Tensor = self.recon.plugin.to_image(output, self.recon.params) * self.std + self.mean
        return images.clamp(0, 1) if self.clips else images


def plain(network: nn.Module) -> Any:
    """The same network on the CPU, made of torch's own layers where it can be."""
    found = copy.deepcopy(network).cpu().eval()
    if isinstance(found, AutoEncoder):
        found.encoder, found.decoder = _plain_layers(found.encoder), _plain_layers(found.decoder)
    return found


def _plain_layers(part: nn.Module) -> nn.Module:
    return nn.Sequential(*map(_plain_layer, part)) if isinstance(part, nn.Sequential) else part


def _plain_layer(layer: nn.Module) -> nn.Module:
    kind = _kind(layer)
    if kind is None or type(layer) is kind:
        return layer
    made = kind(**_description(layer)["arguments"])
    made.load_state_dict(layer.state_dict())
    return made.eval()


def _write_onnx(model: TrainedModel, found: Mapping[str, Any], path: Path) -> list[Path]:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"--to onnx: needs the package {error.name}; {HOW_TO_INSTALL}") from None
    images, z = _examples(model), torch.randn(EXAMPLES, model.latents)
    parts: list[tuple[Path, nn.Module, dict[str, Tensor], tuple[str, ...]]] = [
        (path, _Encoder(model), {"images": images}, ("mean", "std")),
        (path.with_stem(path.stem + DECODER), _Decoder(model), {"z": z}, ("images",)),
    ]
    made = [(file, _as_onnx(part, given, outputs, found)) for file, part, given, outputs in parts]
    for (_, part, given, _), (_, data) in zip(parts, made, strict=True):
        _assert_same(part, given, data)
    for file, data in made:
        write_atomically(file, data)
    return [file for file, _ in made]


def _examples(model: TrainedModel) -> Tensor:
    """Images of the data set, from 0 to 1: on any others, such as noise, standard deviations may be infinite."""
    data = model.found.trained.images.data
    images = torch.from_numpy(data.images(np.linspace(0, len(data) - 1, EXAMPLES).astype(np.int64)))
    return images if model.takes_points else images.float() / 255


def _as_onnx(part: nn.Module, given: Mapping[str, Tensor], outputs: tuple[str, ...], found: Mapping[str, Any]) -> bytes:
    """The exporter that traces: the newer one needs ten times as long and more packages, for the same graph."""
    import onnx

    names = [*given, *outputs]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "model.onnx"
        try:
            torch.onnx.export(
                part, tuple(given.values()), file, dynamo=False, input_names=names[: len(given)],
                output_names=names[len(given) :], dynamic_axes={name: {0: "n"} for name in names},
            )  # fmt: skip
        except Exception as error:  # a user's own layers may have parts that ONNX does not
            raise TrialError(f"the model cannot be written as ONNX: {type(error).__name__}: {error}") from None
        graph = onnx.load(file)
    onnx.helper.set_model_props(graph, {"card": json.dumps(found)})
    data: bytes = graph.SerializeToString()
    return data


def _assert_same(part: nn.Module, given: Mapping[str, Tensor], data: bytes) -> None:
    """Raises DataError if the output of ONNX Runtime differs from that of torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    with torch.no_grad():
        expected = part(*given.values())
    for ours, theirs in zip(_each(expected), found, strict=True):
        difference = (ours - torch.from_numpy(theirs)).abs().max() / max(1.0, float(ours.abs().max()))
        if not difference <= TOLERANCE:
            raise DataError(f"the output of ONNX Runtime differs from that of torch by {float(difference):.2g}")


def _each(outputs: Tensor | tuple[Tensor, ...]) -> Iterator[Tensor]:
    yield from outputs if isinstance(outputs, tuple) else (outputs,)
