"""DCGAN: the published layers, and batch normalisation that survives a stop."""

import pytest
import torch
from torch import nn

from disentune.learn.training import Training
from disentune.models.dcgan import MODEL, Params, stages


def built(shape, **params):
    return MODEL.build(shape, shape[0], Params(latents=50, **params), torch.Generator().manual_seed(0))


def widths(network, kind):
    return [(layer.in_channels, layer.out_channels) for layer in network if isinstance(layer, kind)]


def test_at_64_pixels_the_layers_are_those_of_table_1c():
    model = built((3, 64, 64))
    assert widths(model.encoder, nn.Conv2d) == [(3, 32), (32, 64), (64, 128), (128, 256), (256, 100)]
    assert widths(model.decoder, nn.ConvTranspose2d) == [(50, 256), (256, 128), (128, 64), (64, 32), (32, 3)]
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.encoder) == 4
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.decoder) == 4


def test_at_32_pixels_they_are_those_of_the_released_code():
    model = built((1, 32, 32), normalise_first=False)
    assert widths(model.encoder, nn.Conv2d) == [(1, 32), (32, 64), (64, 128), (128, 100)]
    assert widths(model.decoder, nn.ConvTranspose2d) == [(50, 128), (128, 64), (64, 32), (32, 1)]
    assert [type(layer).__name__ for layer in model.encoder][:5] == [
        "Conv2d", "LeakyReLU", "Conv2d", "BatchNorm2d", "LeakyReLU"
    ]  # fmt: skip
    assert all(layer.bias is None for layer in model.encoder[:-3] if isinstance(layer, nn.Conv2d))


def test_deviations_are_positive_by_softplus():
    q = built((1, 32, 32)).encode(torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(1)))
    head = built((1, 32, 32)).encoder[:-1](torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(torch.exp(q.logvar / 2), nn.functional.softplus(head[:, 50:]) + 1e-6)


@pytest.mark.parametrize(("side", "halvings"), [(8, 1), (16, 2), (32, 3), (64, 4), (128, 5)])
def test_an_image_is_halved_until_four_pixels_are_left(side, halvings):
    assert stages((1, side, side)) == halvings


@pytest.mark.parametrize("shape", [(1, 4, 4), (1, 28, 28), (1, 48, 48), (1, 32, 36), (1, 2, 2)])
def test_other_sizes_are_refused_with_those_that_fit(shape):
    with pytest.raises(ValueError, match=f"but these are {shape[1]}x{shape[2]}; 32x32 and 64x64 are the published"):
        MODEL.check(shape, Params(latents=2))


# ---- in a trial


@pytest.fixture
def config(trial_with):
    return trial_with(
        dataset__name="sparse_parts", dataset__image_size=16, dataset__count=60, model__name="dcgan", model__latents=3,
        training__steps=6, training__batch_size=5, training__log_every=1, evaluation__metrics=["hoyer"],
        evaluation__every=2, training__optimiser={"amsgrad": True, "betas": [0.5, 0.999], "weight_decay": 0.01},
    )  # fmt: skip


def buffers(training):
    return {name: tensor.clone() for name, tensor in training.model.named_buffers()}


def test_a_trial_with_batch_normalisation_and_amsgrad_goes_on_to_the_bit(config):
    whole = Training(config)
    rows = [progress.row for progress in whole.run()]
    for stop in (1, 3, 5):
        half = Training(config)
        begun = [progress.row for progress in half.run(until=stop)]
        rest = Training(config, half.state())
        assert begun + [progress.row for progress in rest.run()] == rows
        state, expected = rest.state(), whole.state()
        assert all(torch.equal(state["model"][name], expected["model"][name]) for name in expected["model"])
        for number, one in expected["optimiser"].items():
            assert one.keys() == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
            assert all(torch.equal(state["optimiser"][number][name], one[name]) for name in one)


def test_running_statistics_move_in_training_and_are_in_the_state(config):
    training = Training(config)
    before = buffers(training)
    for _ in training.run(until=1):
        pass
    assert {name.rsplit(".", 1)[1] for name in before} == {"running_mean", "running_var", "num_batches_tracked"}
    assert all(not torch.equal(tensor, buffers(training)[name]) for name, tensor in before.items())
    assert before.keys() <= training.state()["model"].keys()


def test_scoring_moves_no_running_statistic_and_sees_each_image_by_itself(config):
    training = Training(config)
    for _ in training.run(until=1):
        pass
    before = buffers(training)
    row = training._scores(config.metrics)
    assert all(torch.equal(tensor, buffers(training)[name]) for name, tensor in before.items())
    assert training.model.training
    assert row == training._scores(config.metrics)
