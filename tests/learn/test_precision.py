"""Precision of a training step: what it changes, what it leaves alone, and that it resumes bit for bit."""

import pytest
import torch

from disentune.frameworks import FRAMEWORKS
from disentune.learn import cuda
from disentune.learn import training as training_module
from disentune.learn.precision import InBfloat16
from disentune.learn.training import Training, built_model
from disentune.models import MODELS
from disentune.spec.config import Invalid
from framework_examples import EXAMPLES
from tiny_trials import assert_equal, through_disk, tiny

FIRST = [{"name": name, **EXAMPLES[name][0]} for name in FRAMEWORKS.names()]


@pytest.fixture(autouse=True)
def untrained_donors(monkeypatch):
    monkeypatch.setattr(training_module, "donated", lambda donor: built_model(tiny(seed=int(donor.trial, 16))))


def in_bfloat16(framework="beta_vae", **training):
    return tiny(framework, training={"precision": "bfloat16", **training})


def rows(training, until=None):
    return [progress.row for progress in training.run(until) if progress.row]


@pytest.mark.parametrize("framework", FIRST, ids=lambda framework: framework["name"])
def test_resuming_in_bfloat16_changes_nothing(framework):
    config = in_bfloat16(framework)
    straight = Training(config)
    expected = rows(straight)
    first = Training(config)
    before = rows(first, until=5)
    second = Training(config, through_disk(first))
    assert before + rows(second) == expected
    assert_equal(through_disk(second), through_disk(straight))


@pytest.mark.parametrize("framework", FIRST, ids=lambda framework: framework["name"])
def test_weights_gradients_moments_and_losses_stay_in_float32(framework):
    training = Training(in_bfloat16(framework))
    losses = training._losses()
    numbers = [losses.recon, losses.latent, *losses.parts.values()]
    numbers += [] if losses.helper is None else [losses.helper]
    assert {number.dtype for number in numbers} == {torch.float32}
    next(training.run())
    tensors = [*training.trained, *(one.grad for one in training.trained if one.grad is not None)]
    tensors += [moment for state in training.optimiser.state.values() for moment in state.values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


@pytest.mark.parametrize("name", MODELS.names())
def test_every_network_computes_in_bfloat16_and_learns(name):
    """A bfloat16 has 8 bits: outputs are near those of float32 but not equal, and so are the gradients."""
    model = MODELS[name]
    network = model.build((3, 64, 64), 3, model.params(latents=5), torch.Generator().manual_seed(0))
    x = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    found = []
    for one in (network, InBfloat16(network)):
        q = one.encode(x)
        output = one.decode(q.mean)
        assert {q.mean.dtype, q.logvar.dtype, output.dtype} == {torch.float32}
        ((output - x).square().sum() + q.logvar.sum()).backward()
        gradients = [parameter.grad.flatten() for parameter in network.parameters()]
        found.append(torch.cat([q.mean.flatten(), output.flatten(), *gradients]).detach())
        network.zero_grad()
    exact, coarse = found
    assert not torch.equal(exact, coarse)
    assert torch.cosine_similarity(exact, coarse, dim=0) > 0.99


def test_evaluations_stay_in_float32():
    coarse = Training(in_bfloat16())
    exact = Training(tiny(), {**through_disk(coarse)})
    assert coarse._scores(coarse.config.metrics) == exact._scores(exact.config.metrics)


def test_precision_is_part_of_the_identity_unless_it_is_float32():
    assert tiny(training={"precision": "float32"}).id == tiny().id
    assert in_bfloat16().id != tiny().id
    assert "precision" not in tiny().tree()["training"]
    assert in_bfloat16().tree()["training"]["precision"] == "bfloat16"


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_tf32_is_refused_where_it_does_not_exist(device):
    with pytest.raises(Invalid, match=rf"training.precision: tf32 exists only on .*cuda.* {device}; use bfloat16"):
        tiny(training={"precision": "tf32", "device": device})


def test_tf32_is_allowed_during_a_step_and_not_in_an_evaluation(monkeypatch):
    """The flags of CUDA exist without a GPU too."""
    allowed = []

    def look(*arguments):
        allowed.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))

    monkeypatch.setattr(Training, "_improve", look)
    monkeypatch.setattr(Training, "_scores", lambda *arguments: look() or {"metrics": {}})
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    config = tiny(training={"precision": "tf32", "device": "cuda", "steps": 1}).on("cpu")
    rows(Training(config))
    assert allowed == [(True, True), (False, False)]
    rows(Training(tiny(training={"steps": 1})))
    assert allowed[2:] == [(False, False), (False, False)]


def test_tf32_ends_with_a_step_that_fails():
    with pytest.raises(ZeroDivisionError), cuda.tf32():
        _ = 1 / 0
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
