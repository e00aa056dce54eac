"""Drawn images of a few spots, without factors."""

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data import load
from disentune.data.sparse_parts import DARKEST, Params, spots


def test_an_image_is_the_sum_of_its_spots_and_white_stays_white():
    data, indices = load("sparse_parts", share=0.6), np.arange(50)
    light = np.einsum("ns,shw->nhw", data.brightness(indices), spots(12, 3))
    np.testing.assert_array_equal(data.images(indices)[:, 0], np.rint(255 * np.minimum(light, 1)))


def test_spots_appear_with_the_chance_that_was_asked_for_and_independently():
    data = load("sparse_parts", share=0.3, count=20_000)
    shown = data.brightness(np.arange(20_000)) > 0
    assert shown.mean(axis=0) == pytest.approx(np.full(9, 0.3), abs=5 * np.sqrt(0.3 * 0.7 / 20_000))
    apart = np.corrcoef(shown.T)[~np.eye(9, dtype=bool)]
    assert np.abs(apart).max() < 5 / np.sqrt(20_000)


def test_brightness_is_uniform_above_the_darkest():
    data = load("sparse_parts", share=1.0, count=10_000)
    values = data.brightness(np.arange(10_000)).ravel()
    assert values.min() >= DARKEST
    assert values.mean() == pytest.approx((1 + DARKEST) / 2, abs=0.005)
    assert values.std() == pytest.approx((1 - DARKEST) / np.sqrt(12), abs=0.005)


def test_a_spot_is_brightest_in_the_middle_of_its_cell():
    each = spots(15, 3)
    assert each.shape == (9, 15, 15)
    assert [np.unravel_index(one.argmax(), one.shape) for one in each[:4]] == [(2, 2), (2, 7), (2, 12), (7, 2)]
    assert each.max() == 1


def test_more_images_begin_with_the_fewer():
    few, many = load("sparse_parts", count=10), load("sparse_parts", count=1000)
    np.testing.assert_array_equal(few.images(np.arange(10)), many.images(np.arange(10)))


def test_spots_need_a_pixel_each():
    with pytest.raises(ValidationError, match="must be at most 4, the pixels along a side, but is 5"):
        Params(image_size=4, along=5)
