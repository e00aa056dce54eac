"""The paper's network."""

import pytest
import torch

from disentune.models.conv64 import MODEL, Params

# parameters of encoder and decoder, by channels and latents
PUBLISHED = {(3, 9): (530898, 382083), (3, 25): (539122, 386179), (1, 9): (529874, 381057), (1, 25): (538098, 385153)}


@pytest.mark.parametrize(("channels", "latents"), PUBLISHED)
def test_parameters_are_as_many_as_published(channels, latents):
    model = MODEL.build((channels, 64, 64), channels, Params(latents=latents), torch.Generator())
    parts = (model.encoder, model.decoder)
    assert tuple(sum(p.numel() for p in part.parameters()) for part in parts) == PUBLISHED[channels, latents]


def test_feature_maps_have_the_sizes_of_padding_two():
    model = MODEL.build((3, 64, 64), 3, Params(latents=2), torch.Generator())
    sizes, x = [], torch.zeros(1, 3, 64, 64)
    for layer in model.encoder[:8:2]:
        x = layer(x)
        sizes.append(x.shape[-1])
    assert sizes == [33, 17, 9, 5]


def test_the_decoder_ends_without_activation():
    model = MODEL.build((3, 64, 64), 3, Params(latents=2), torch.Generator().manual_seed(0))
    assert model.decode(torch.ones(1, 2)).min() < 0


@pytest.mark.parametrize("act", ["check", "build"])
def test_other_sizes_are_refused_with_a_way_out(act):
    arguments = ((3, 24, 24), Params(latents=2))
    with pytest.raises(ValueError, match="64x64, but these are 24x24; mlp takes any size"):
        MODEL.check(*arguments) if act == "check" else MODEL.build((3, 24, 24), 3, Params(latents=2), torch.Generator())


def test_64_pixels_pass_the_check():
    MODEL.check((1, 64, 64), Params(latents=2))
