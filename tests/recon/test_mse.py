"""Squared error."""

import numpy as np
import torch

from disentune.data import load
from disentune.recon.mse import RECON, Params


def test_the_loss_is_a_sum_over_pixels_and_channels():
    output, target = torch.zeros(2, 3, 4, 5), torch.full((2, 3, 4, 5), 2.0)
    target[1] = -1
    assert RECON.per_image(output, target, Params()).tolist() == [4 * 60, 60]


def test_one_moved_square_costs_two_squares():
    images = torch.from_numpy(load("xysquares").images(np.array([0, 1])) / 255.0)
    assert RECON.distance(images[:1], images[1:], Params()).item() == 128


def test_any_range_will_do():
    assert not RECON.needs_unit_range(Params())
