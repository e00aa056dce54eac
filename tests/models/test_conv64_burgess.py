"""The network of Burgess et al."""

import pytest
import torch

from disentune.models.conv64_burgess import ARCHITECTURE, MODEL, Params


def built(shape, latents=2):
    return MODEL.build(shape, shape[0], Params(latents=latents), torch.Generator().manual_seed(0))


def sizes(network):
    return tuple(sum(p.numel() for p in part.parameters()) for part in (network.encoder, network.decoder))


def test_parameters_follow_from_the_description():
    """Weights and biases, layer by layer: convolutions, then dense layers."""
    encoder = (16 * 1 + 1) * 32 + 3 * (16 * 32 + 1) * 32 + (512 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 20
    decoder = (10 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 512 + 3 * (16 * 32 + 1) * 32 + (16 * 32 + 1) * 1
    assert sizes(built((1, 64, 64), 10)) == (encoder, decoder)


def test_feature_maps_have_the_sizes_of_the_paddings():
    model, found, x = built((3, 64, 64)), [], torch.zeros(1, *(3, 64, 64))
    for layer in model.encoder[:8:2]:
        x = layer(x)
        found.append(tuple(x.shape[1:]))
    assert found == [(32, 32, 32), (32, 16, 16), (32, 8, 8), (32, 4, 4)]
    assert ARCHITECTURE.features((3, 64, 64)) == 512


def test_the_decoder_mirrors_the_encoder():
    model = built((3, 64, 64))
    weights = ([p.shape for p in part.parameters() if p.dim() > 1] for part in (model.encoder, model.decoder))
    encoder, decoder = ([sorted(shape[:2]) for shape in shapes] for shapes in weights)
    assert encoder[:-1] == decoder[:0:-1]  # the encoder's head is twice as wide as the decoder's first layer is deep


@pytest.mark.parametrize("side", [16, 32, 48, 64, 128])
def test_multiples_of_16_fit(side):
    MODEL.check((1, side, 16), Params(latents=2))
    MODEL.check((1, 16, side), Params(latents=2))
    assert built((1, side, 16)).decode(torch.zeros(1, 2)).shape == (1, 1, side, 16)


@pytest.mark.parametrize("act", ["check", "build"])
@pytest.mark.parametrize(("size", "nearest"), [((24, 30), "32x32"), ((64, 1), "64x16"), ((60, 128), "64x128")])
def test_other_sizes_are_refused_with_a_way_out(act, size, nearest):
    message = (
        f"conv64_burgess needs a height and width that are multiples of 16, but these are {size[0]}x{size[1]}; "
        f"the nearest supported size is {nearest}; mlp supports any size"
    )
    with pytest.raises(ValueError, match=message):
        MODEL.check((3, *size), Params(latents=2)) if act == "check" else built((3, *size))
