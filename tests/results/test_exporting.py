"""Exported models load without disentune and give the same numbers."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from torch import nn

from disentune.errors import ConfigError, DataError, TrialError
from disentune.files.checkpoint import weights_hash
from disentune.models import MODELS
from disentune.results import exporting
from disentune.results.exporting import card, exported
from disentune.runs.ledger import Run
from trained_examples import model_named, record_of_model

every_model = pytest.mark.parametrize("name", MODELS.names())


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda model, to, path=None: exported(
        model, record_of_model(model), Run(tmp_path / "runs/demo/main"), to, path
    )


class SoftplusDeviation(nn.Module):
    """As the documentation spells it out for readers without disentune."""

    def forward(self, heads):
        mean, h = heads.chunk(2, dim=1)
        return torch.cat([mean, 2 * torch.log(nn.functional.softplus(h) + 1e-6)], dim=1)


def rebuilt(found, weights, part):
    """The network of a card, of torch's own layers."""
    layers = []
    for layer in found["layers"][part]:
        made = getattr(nn, layer["layer"])(**layer["arguments"]) if "arguments" in layer else SoftplusDeviation()
        prefix = f"{layer['name']}."
        made.load_state_dict({key.removeprefix(prefix): one for key, one in weights.items() if key.startswith(prefix)})
        layers.append(made)
    return nn.Sequential(*layers).eval()


def assert_same_network(model, found, weights):
    images = model.found.trained.images.data.images(np.arange(3))
    mean, std = (torch.tensor(found["images"][key])[:, None, None] for key in ("mean", "std"))
    with torch.no_grad():
        codes, logvar = rebuilt(found, weights, "encoder")((torch.from_numpy(images) / 255 - mean) / std).chunk(
            2, dim=1
        )
        decoded = (rebuilt(found, weights, "decoder")(codes) * std + mean).clamp(0, 1)
    assert codes.numpy() == pytest.approx(model.encode(images)[0], abs=1e-4)
    assert logvar.div(2).exp().numpy() == pytest.approx(model.encode(images)[1], rel=1e-4)
    assert decoded.numpy() == pytest.approx(model.decode(codes.numpy()), abs=1e-4)


@every_model
def test_the_torch_file_has_all_that_rebuilds_the_network(name, write):
    model = model_named(name)
    (path,) = write(model, "torch")
    loaded = torch.load(path, weights_only=True)
    assert path.name == f"{model.found.config.id}.pt"
    assert_same_network(model, loaded["card"], loaded["weights"])


@every_model
def test_safetensors_have_the_same_weights_and_card(name, write, tmp_path):
    model = model_named(name)
    (path,) = write(model, "safetensors", tmp_path / "model.safetensors")
    with safe_open(path, "pt") as file:
        weights, found = {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["card"])  # noqa: SIM118
    assert weights_hash(weights) == weights_hash(model.network.state_dict()) == found["weights"]
    assert found == card(model, record_of_model(model), Run(tmp_path / "runs/demo/main"))
    assert_same_network(model, found, weights)


def run_onnx(path, given):
    return onnxruntime.InferenceSession(path).run(None, given)


@every_model
def test_onnx_gives_the_numbers_of_torch_for_any_number_of_images(name, write, tmp_path):
    model = model_named(name)
    encoder, decoder = write(model, "onnx", tmp_path / "model.onnx")
    assert (encoder.name, decoder.name) == ("model.onnx", "model_decoder.onnx")
    for count in (1, 5):
        images = model.found.trained.images.data.images(np.arange(count))
        mean, std = run_onnx(encoder, {"images": (images / 255).astype("float32")})
        assert mean == pytest.approx(model.encode(images)[0], abs=1e-4)
        assert std == pytest.approx(model.encode(images)[1], rel=1e-3)
        (decoded,) = run_onnx(decoder, {"z": mean})
        assert decoded == pytest.approx(model.decode(mean), abs=1e-4)
    cards = [json.loads(onnx.load(path).metadata_props[0].value) for path in (encoder, decoder)]
    assert cards[0] == cards[1]
    assert cards[0]["trial"] == model.found.config.id


@pytest.mark.parametrize("recon", [{"recon__name": "bce", "dataset__transform": "unit"}, {"recon__name": "normal"}])
def test_onnx_decodes_images_whatever_the_reconstruction_loss(recon, write, tmp_path):
    model = model_named("mlp", **recon)
    _, decoder = write(model, "onnx", tmp_path / "model.onnx")
    z = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    assert run_onnx(decoder, {"z": z})[0] == pytest.approx(model.decode(z), abs=1e-5)


def test_a_model_that_overflows_on_other_images_is_compared_on_images_of_its_data(write):
    """A network trained on squares on black may give any standard deviation for others."""
    model = model_named("linear")
    data = model.found.trained.images.data
    pixels = data.images(np.arange(len(data))).reshape(len(data), -1)
    black = int(np.flatnonzero((pixels == 0).all(axis=0))[0])
    layer = next(part for part in model.network.encoder if isinstance(part, nn.Linear))
    with torch.no_grad():
        standardised = -model.found.trained.images.mean.flatten()[0] / model.found.trained.images.std.flatten()[0]
        layer.weight[3:, black] += 500
        layer.bias[3:] -= 500 * float(standardised)
    white = torch.ones(1, *model.shape)
    assert exporting._Encoder(model)(white)[1].isinf().all()
    assert len(write(model, "onnx")) == 2


def test_a_graph_with_other_numbers_is_refused():
    model = model_named("mlp")
    encoder = exporting._Encoder(model)
    given = {"images": torch.rand(2, *model.shape)}
    data = exporting._as_onnx(encoder, given, ("mean", "std"), {})
    exporting._assert_same(encoder, given, data)
    with torch.no_grad():
        encoder.std.mul_(2)
    with pytest.raises(DataError, match="the output of ONNX Runtime differs from that of torch"):
        exporting._assert_same(encoder, given, data)


def test_the_card_says_where_the_weights_come_from(tmp_path):
    model = model_named("mlp")
    run = Run(tmp_path / "runs" / "demo" / "main")
    found = card(model, record_of_model(model), run)
    assert found["scores"] == {"mig": 0.25}  # of the step of the weights, 7; what is not finite is left out
    assert (found["run"], found["step"], found["latents"]) == ("demo/main", 7, 3)
    assert found["config"] == model.found.config.tree()
    assert json.loads(json.dumps(found)) == found


NAMES = {
    "conv64": ["encoder.0", "encoder.2", "encoder.4", "encoder.6", "encoder.9", "encoder.11"],
    "conv64_burgess": [f"encoder.{n}" for n in (0, 2, 4, 6, 9, 11, 13)],
    "linear": ["encoder.1"],
    "mlp": ["encoder.1", "encoder.3", "encoder.5"],
    "pinwheel_mlp": ["encoder.1", "encoder.3"],
    "dcgan": [f"encoder.{n}" for n in (0, 1, 3, 4, 6)],
}
"""The names under which files of earlier versions hold their weights."""


@pytest.mark.parametrize("name", NAMES)
def test_names_of_weights_stay_as_documented(name):
    keys = [key for key in model_named(name).network.state_dict() if key.startswith("encoder")]
    assert list(dict.fromkeys(key.rpartition(".")[0] for key in keys)) == NAMES[name]


@pytest.mark.parametrize(
    ("to", "path", "message"),
    [
        ("safetensor", "x", "--to safetensor: must be one of safetensors, torch, onnx. Did you mean 'safetensors'"),
        ("torch", ".", "--output .: is a folder; name a file"),
        ("torch", "missing/x.pt", "--output missing/x.pt: there is no folder"),
    ],
)
def test_a_wrong_format_or_place_is_refused(write, to, path, message):
    with pytest.raises(ConfigError) as caught:
        write(model_named("linear"), to, Path(path))
    assert message in str(caught.value)


def test_without_onnx_the_message_says_how_to_install_it(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"needs the package onnx; install it with: pip install 'disentune\[onnx\]'"):
        write(model_named("linear"), "onnx")


@pytest.mark.parametrize("to", ["torch", "safetensors", "onnx"])
def test_a_model_whose_codes_are_not_the_encoders_is_refused(to, write):
    """A codebook, or factors, would be missing from the file."""
    model = model_named("mlp")
    trained = replace(model.found.trained, code=lambda q: q.mean.round())
    with pytest.raises(TrialError, match="cannot be exported: the codes of 'beta_vae' are not what its encoder gives"):
        write(replace(model, found=replace(model.found, trained=trained)), to)
