"""What every model of the catalogue must do."""

import pytest
import torch

from disentune.models import MODELS

SHAPE = (3, 64, 64)
pytestmark = pytest.mark.parametrize("name", MODELS.names())


def built(name, seed=0, shape=SHAPE, latents=5, channels=None):
    model = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    return model.build(shape, channels or shape[0], model.params(latents=latents), generator)


def images(n=2, shape=SHAPE):
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("channels", [1, 3])
def test_shapes_of_codes_and_images(name, channels):
    shape = (channels, 64, 64)
    model, x = built(name, shape=shape), images(shape=shape)
    q = model.encode(x)
    assert q.mean.shape == q.logvar.shape == (2, 5)
    assert model.decode(q.mean).shape == x.shape
    assert model.latents == 5


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_the_decoder_gives_as_many_channels_as_asked(name, channels):
    model = built(name, channels=channels)
    assert model.encode(images()).mean.shape == (2, 5)
    assert model.decode(torch.zeros(2, 5)).shape == (2, channels, 64, 64)


def test_a_rectangle_is_an_image(name):
    model, x = built(name, shape=(2, 32, 64)), images(shape=(2, 32, 64))
    assert model.decode(model.encode(x).mean).shape == x.shape


def test_a_size_that_passes_the_check_can_be_built_and_another_cannot(name):
    model = MODELS[name]
    params = model.params(latents=2)
    for side in range(1, 34):
        try:
            model.check((1, side, 16), params)
        except ValueError:
            with pytest.raises(ValueError, match=f"{name} needs .* but these are {side}x16; .* mlp supports any size"):
                model.build((1, side, 16), 1, params, torch.Generator())
        else:
            assert built(name, shape=(1, side, 16)).decode(torch.zeros(1, 5)).shape == (1, 1, side, 16)


def test_the_first_half_of_the_head_is_the_mean(name):
    model = built(name)
    q = model.encode(images())
    assert torch.equal(torch.cat([q.mean, q.logvar], dim=1), model.encoder(images()))


def test_the_generator_decides_every_weight(name):
    one, same, other = built(name, 0), built(name, 0), built(name, 1)
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.dim() == 1 or not torch.equal(a, c)


def test_the_global_generator_is_neither_used_nor_moved(name):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = built(name)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), built(name).parameters(), strict=True))


OF_THE_PAPER = {"dcgan": 0.02}
"""Deviation of the initial weights where a paper states it; elsewhere Xavier's."""


def test_weights_are_xavier_normal_and_biases_zero(name):
    model = built(name)
    scales = [layer.weight for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for parameter in model.parameters():
        if parameter.dim() == 1:
            is_scale = any(parameter is scale for scale in scales)
            assert torch.equal(parameter, torch.full_like(parameter, float(is_scale)))
        elif parameter.numel() > 5000:
            outputs, inputs, *window = parameter.shape
            xavier = (2 / ((inputs + outputs) * torch.Size(window).numel())) ** 0.5
            deviation = OF_THE_PAPER.get(name, xavier)
            assert parameter.std().item() == pytest.approx(deviation, rel=0.05)  # of 5000 weights or more
            assert parameter.abs().max() > 3 * deviation  # a uniform law would end at sqrt(3)


def test_gradients_reach_every_parameter(name):
    model = built(name)
    q = model.encode(images(4))
    (model.decode(q.mean + q.logvar)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_codes_of_an_image_do_not_depend_on_its_layout_in_memory(name):
    model, x = built(name).double(), images().double()
    other = x.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model.encode(other).mean, model.encode(x).mean)


def test_inputs_are_left_as_they_were(name):
    model, x, z = built(name), images(), torch.ones(2, 5)
    model.decode(z), model.encode(x)
    assert torch.equal(x, images())
    assert torch.equal(z, torch.ones(2, 5))


def test_images_of_a_batch_do_not_see_each_other_when_they_are_scored(name):
    model, x = built(name).double().eval(), images(3).double()
    alone = model.decode(model.encode(x[1:2]).mean)
    torch.testing.assert_close(model.decode(model.encode(x).mean)[1:2], alone)
