"""The network of disentanglement_lib."""

import pytest
import torch

from disentune.models.conv64_locatello import ARCHITECTURE, MODEL, Params

# parameters of encoder and decoder, by channels and latents
PUBLISHED = {(3, 10): (310228, 382339), (1, 10): (309204, 381313)}


def built(shape, latents=2):
    return MODEL.build(shape, shape[0], Params(latents=latents), torch.Generator().manual_seed(0))


def sizes(network):
    return tuple(sum(p.numel() for p in part.parameters()) for part in (network.encoder, network.decoder))


@pytest.mark.parametrize(("channels", "latents"), PUBLISHED)
def test_parameters_are_as_many_as_published(channels, latents):
    assert sizes(built((channels, 64, 64), latents)) == PUBLISHED[channels, latents]


def test_feature_maps_have_the_sizes_of_the_paddings():
    model, found, x = built((3, 64, 64)), [], torch.zeros(1, *(3, 64, 64))
    for layer in model.encoder[:8:2]:
        x = layer(x)
        found.append(tuple(x.shape[1:]))
    assert found == [(32, 32, 32), (32, 16, 16), (64, 8, 8), (64, 4, 4)]
    assert ARCHITECTURE.features((3, 64, 64)) == 1024


def test_the_last_two_kernels_are_2x2():
    assert [layer.kernel_size for layer in built((3, 64, 64)).encoder[:8:2]] == [(4, 4), (4, 4), (2, 2), (2, 2)]


@pytest.mark.parametrize("side", [16, 32, 48, 64, 128])
def test_multiples_of_16_fit(side):
    MODEL.check((1, side, 16), Params(latents=2))
    MODEL.check((1, 16, side), Params(latents=2))
    assert built((1, side, 16)).decode(torch.zeros(1, 2)).shape == (1, 1, side, 16)


@pytest.mark.parametrize("act", ["check", "build"])
@pytest.mark.parametrize(("size", "nearest"), [((24, 30), "32x32"), ((64, 1), "64x16"), ((60, 128), "64x128")])
def test_other_sizes_are_refused_with_a_way_out(act, size, nearest):
    message = (
        f"conv64_locatello needs a height and width that are multiples of 16, but these are {size[0]}x{size[1]}; "
        f"the nearest supported size is {nearest}; mlp supports any size"
    )
    with pytest.raises(ValueError, match=message):
        MODEL.check((3, *size), Params(latents=2)) if act == "check" else built((3, *size))
