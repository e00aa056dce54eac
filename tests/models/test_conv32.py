"""conv64's little sister."""

import pytest
import torch
from torch import nn

from disentune.models import conv64
from disentune.models.conv32 import ARCHITECTURE, MODEL, Params


def built(shape, latents=2):
    return MODEL.build(shape, shape[0], Params(latents=latents), torch.Generator().manual_seed(0))


def dense(network):
    layers = [*network.encoder, *network.decoder]
    return [(layer.in_features, layer.out_features) for layer in layers if isinstance(layer, nn.Linear)]


def test_dense_layers_are_those_of_conv64_at_64_pixels():
    other = conv64.MODEL.build((3, 64, 64), 3, conv64.Params(latents=2), torch.Generator())
    assert dense(built((3, 32, 32))) == dense(other)


def test_feature_maps_have_the_sizes_of_the_paddings():
    model, found, x = built((3, 32, 32)), [], torch.zeros(1, *(3, 32, 32))
    for layer in model.encoder[:6:2]:
        x = layer(x)
        found.append(tuple(x.shape[1:]))
    assert found == [(32, 17, 17), (64, 9, 9), (64, 5, 5)]
    assert ARCHITECTURE.features((3, 32, 32)) == 1600


@pytest.mark.parametrize("side", [8, 24, 32, 64])
def test_multiples_of_8_fit(side):
    MODEL.check((1, side, 8), Params(latents=2))
    MODEL.check((1, 8, side), Params(latents=2))
    assert built((1, side, 8)).decode(torch.zeros(1, 2)).shape == (1, 1, side, 8)


@pytest.mark.parametrize("act", ["check", "build"])
@pytest.mark.parametrize(("size", "nearest"), [((28, 28), "32x32"), ((3, 32), "8x32"), ((35, 32), "32x32")])
def test_other_sizes_are_refused_with_a_way_out(act, size, nearest):
    message = (
        f"conv32 needs a height and width that are multiples of 8, but these are {size[0]}x{size[1]}; "
        f"the nearest supported size is {nearest}; mlp supports any size"
    )
    with pytest.raises(ValueError, match=message):
        MODEL.check((3, *size), Params(latents=2)) if act == "check" else built((3, *size))
