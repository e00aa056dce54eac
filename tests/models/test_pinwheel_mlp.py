"""The pinwheel's network."""

import pytest
import torch
from torch import nn

from disentune.models.pinwheel_mlp import MODEL, Params, SoftplusDeviation


def test_two_latents_and_a_hundred_units_are_the_papers():
    model = MODEL.build((2, 1, 1), 4, Params(), torch.Generator())
    layers = [layer for part in (model.encoder, model.decoder) for layer in part if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(2, 100), (100, 4), (2, 100), (100, 4)]
    assert model.latents == 2


def test_the_deviation_is_softplus_with_a_floor():
    heads = torch.tensor([[5.0, -7.0, 0.0, 3.0], [0.0, 1.0, -2.0, 40.0]], dtype=torch.float64)
    mean, logvar = SoftplusDeviation()(heads).chunk(2, dim=1)
    assert torch.equal(mean, heads[:, :2])
    torch.testing.assert_close(torch.exp(logvar / 2), torch.log1p(torch.exp(heads[:, 2:])) + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vanishing_deviation_stops_at_the_floor_with_finite_gradients(dtype):
    heads = torch.tensor([[0.0, -1e4]], dtype=dtype, requires_grad=True)
    logvar = SoftplusDeviation()(heads)[0, 1]
    logvar.backward()
    assert torch.exp(logvar / 2).item() == pytest.approx(1e-6)
    assert torch.isfinite(heads.grad).all()


def test_the_decoder_gives_its_numbers_as_they_are():
    decoder = MODEL.build((2, 1, 1), 4, Params(), torch.Generator().manual_seed(0)).decoder.double()
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    hidden = torch.relu(decoder[0](z))
    expected = hidden @ decoder[2].weight.T + decoder[2].bias
    torch.testing.assert_close(decoder(z), expected.reshape(50, 4, 1, 1))
    assert expected.min() < 0


def test_any_shape_fits():
    MODEL.check((1, 3, 9), Params())
    model = MODEL.build((1, 3, 9), 2, Params(width=7), torch.Generator())
    assert model.decode(torch.zeros(4, 2)).shape == (4, 2, 3, 9)
