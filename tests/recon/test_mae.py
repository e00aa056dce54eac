"""Absolute error against the Laplace distribution."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Laplace

from disentune.data import load
from disentune.recon.mae import RECON, Params


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_the_laplace_likelihood_of_any_scale_is_the_loss_up_to_that_scale_and_a_constant(scale):
    output, target = torch.randn(2, 3, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = -Laplace(output, scale).log_prob(target).sum(dim=(1, 2, 3))
    loss = RECON.per_image(output, target, Params())
    torch.testing.assert_close(loss / scale + 40 * math.log(2 * scale), expected)


def test_one_moved_square_costs_two_squares():
    images = torch.from_numpy(load("xysquares").images(np.array([0, 1])) / 255.0)
    assert RECON.distance(images[:1], images[1:], Params()).item() == 128


def test_an_exact_pixel_pulls_nowhere():
    output = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3).requires_grad_()
    RECON.per_image(output, torch.full((1, 1, 1, 3), 2.0), Params()).sum().backward()
    assert output.grad.flatten().tolist() == [-1, 0, 1]


def test_any_range_will_do():
    assert not RECON.needs_unit_range(Params())
