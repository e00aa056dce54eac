"""From bytes to tensors: the published statistics, and [0, 1]."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from disentune.transforms import transform

DATA = SimpleNamespace(shape=(2, 1, 2), mean=(0.25, 0.5), std=(0.5, 2.0))
IMAGES = np.array([[[[0, 255]], [[51, 102]]]], dtype=np.uint8)


def test_unit_is_the_pixel_over_255():
    x = transform("unit", DATA, torch.device("cpu"))(IMAGES)
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == pytest.approx([0, 1, 0.2, 0.4])


def test_standardise_subtracts_the_mean_and_divides_by_the_std_of_each_channel():
    x = transform("standardise", DATA, torch.device("cpu"))(IMAGES)
    expected = [(0 - 0.25) / 0.5, (1 - 0.25) / 0.5, (0.2 - 0.5) / 2, (0.4 - 0.5) / 2]
    assert x.flatten().tolist() == pytest.approx(expected)


def test_the_images_it_is_given_stay_as_they_are():
    before = IMAGES.copy()
    transform("standardise", DATA, torch.device("cpu"))(IMAGES)
    assert (before == IMAGES).all()
