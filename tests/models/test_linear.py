"""The linear VAE."""

import pytest
import torch

from disentune.models.linear import MODEL, Params


def built(shape=(2, 5, 7), channels=2):
    return MODEL.build(shape, channels, Params(latents=3), torch.Generator().manual_seed(0)).double()


def test_both_ways_are_one_dense_layer():
    model = built(channels=4)
    assert [tuple(p.shape) for p in model.encoder.parameters()] == [(6, 70), (6,)]
    assert [tuple(p.shape) for p in model.decoder.parameters()] == [(140, 3), (140,)]


@pytest.mark.parametrize("way", ["encoder", "decoder"])
def test_both_ways_are_affine(way):
    part, shape = getattr(built(), way), (2, 5, 7) if way == "encoder" else (3,)
    a, b = torch.randn(2, 1, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(part(2 * a - b), 2 * part(a) - part(b))


def test_any_shape_fits():
    MODEL.check((1, 3, 9), Params(latents=3))
    assert built((1, 3, 9), 1).decode(torch.zeros(4, 3).double()).shape == (4, 1, 3, 9)
