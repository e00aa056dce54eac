"""Changes of images: bounded, and reflected as the paper writes it."""

import numpy as np
import torch
from torch.nn.functional import relu

from disentune.maths.manipulation import bottleneck, manipulated, pattern
from disentune.models.mlp import MODEL


def every_change():
    """All pixels and changes on a grid of hundredths, (n,) each."""
    x, change = np.meshgrid(np.linspace(0, 1, 101), np.linspace(-1, 1, 201))
    return torch.from_numpy(x.ravel()), torch.from_numpy(change.ravel())


def test_reflection_is_the_published_formula():
    x, change = every_change()
    moved = x + change
    torch.testing.assert_close(manipulated(x, change), moved - 2 * relu(moved - 1) + 2 * relu(-moved))


def test_no_pixel_leaves_the_range_or_moves_farther_than_its_change():
    x, change = every_change()
    found = manipulated(x, change)
    assert found.min() >= 0
    assert found.max() <= 1
    assert ((found - x).abs() <= change.abs() + 1e-15).all()  # rounding of sums near 1


def test_images_with_the_same_hidden_unit_get_the_same_pattern():
    generator = torch.Generator().manual_seed(0)
    model = MODEL.build((1, 4, 4), 1, MODEL.params(latents=3, width=8), generator)
    unit = bottleneck(2, generator)
    weight = unit[0].weight[0]
    along = torch.stack([-weight[1], weight[0]]).detach()  # does not move the unit
    factors = torch.tensor([[0.3, -0.2]])
    found = pattern(model, unit(torch.cat([factors, factors + 0.4 * along, factors + 0.4 * weight.detach()])))
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
    assert found.abs().max() <= 1
