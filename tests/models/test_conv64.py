"""The paper's network."""

import pytest
import torch

from disentune.models.conv64 import ARCHITECTURE, MODEL, Params

# parameters of encoder and decoder, by channels and latents
PUBLISHED = {(3, 9): (530898, 382083), (3, 25): (539122, 386179), (1, 9): (529874, 381057), (1, 25): (538098, 385153)}


def built(shape, latents=2):
    return MODEL.build(shape, shape[0], Params(latents=latents), torch.Generator().manual_seed(0))


def sizes(network):
    return tuple(sum(p.numel() for p in part.parameters()) for part in (network.encoder, network.decoder))


@pytest.mark.parametrize(("channels", "latents"), PUBLISHED)
def test_parameters_are_as_many_as_published(channels, latents):
    assert sizes(built((channels, 64, 64), latents)) == PUBLISHED[channels, latents]


def test_with_three_channels_and_nine_latents_they_are_912981():
    assert sum(sizes(built((3, 64, 64), 9))) == 912981


def test_feature_maps_have_the_sizes_of_the_paddings():
    model, found, x = built((3, 64, 64)), [], torch.zeros(1, *(3, 64, 64))
    for layer in model.encoder[:8:2]:
        x = layer(x)
        found.append(tuple(x.shape[1:]))
    assert found == [(32, 33, 33), (32, 17, 17), (64, 9, 9), (64, 5, 5)]
    assert ARCHITECTURE.features((3, 64, 64)) == 1600


def test_the_decoder_ends_without_activation():
    assert built((3, 64, 64)).decode(torch.ones(1, 2)).min() < 0


@pytest.mark.parametrize("side", [16, 32, 48, 64, 128])
def test_multiples_of_16_fit(side):
    MODEL.check((1, side, 16), Params(latents=2))
    MODEL.check((1, 16, side), Params(latents=2))
    assert built((1, side, 16)).decode(torch.zeros(1, 2)).shape == (1, 1, side, 16)


@pytest.mark.parametrize("act", ["check", "build"])
@pytest.mark.parametrize(("size", "nearest"), [((24, 30), "32x32"), ((64, 1), "64x16"), ((60, 128), "64x128")])
def test_other_sizes_are_refused_with_a_way_out(act, size, nearest):
    message = (
        f"conv64 needs a height and width that are multiples of 16, but these are {size[0]}x{size[1]}; "
        f"the nearest supported size is {nearest}; mlp supports any size"
    )
    with pytest.raises(ValueError, match=message):
        MODEL.check((3, *size), Params(latents=2)) if act == "check" else built((3, *size))
