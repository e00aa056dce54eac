"""What every model of the catalogue must do."""

import pytest
import torch

from disentune.models import MODELS

SHAPE = (3, 64, 64)
pytestmark = pytest.mark.parametrize("name", MODELS.names())


def built(name, seed=0, shape=SHAPE, latents=5):
    model = MODELS[name]
    return model.build(shape, shape[0], model.params(latents=latents), torch.Generator().manual_seed(seed))


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


def test_weights_are_xavier_normal_and_biases_zero(name):
    for parameter in built(name).parameters():
        if parameter.dim() == 1:
            assert not parameter.any()
        elif parameter.numel() > 5000:
            outputs, inputs, *window = parameter.shape
            deviation = (2 / ((inputs + outputs) * torch.Size(window).numel())) ** 0.5
            assert parameter.std().item() == pytest.approx(deviation, rel=0.05)  # of 5000 weights or more
            assert parameter.abs().max() > 3 * deviation  # a uniform law would end at sqrt(3)


def test_gradients_reach_every_parameter(name):
    model = built(name)
    q = model.encode(images(4))
    (model.decode(q.mean + q.logvar)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_images_of_a_batch_do_not_see_each_other(name):
    model, x = built(name).double(), images(3).double()
    alone = model.decode(model.encode(x[1:2]).mean)
    torch.testing.assert_close(model.decode(model.encode(x).mean)[1:2], alone)
