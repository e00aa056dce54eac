"""XYSingleSquare against a slow drawing."""

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data import xysquares
from disentune.data.xy_single_square import DATASET, Params

WORLDS = [
    {},
    {"spacing": 3},
    {"spacing": 5, "grid_size": 4},
    {"image_size": 17, "square_size": 3, "spacing": 2},
    {"image_size": 10, "square_size": 3},
    {"image_size": 6, "square_size": 5, "spacing": 1},
]


def opened(**params):
    return DATASET.open(Params(**params))


def drawn(data):
    """All images, one by one, as the paper's code places squares."""
    params, places = data.params, data.factor_sizes[0]
    step = params.spacing or params.square_size
    offset = (params.image_size - (params.square_size + (places - 1) * step)) // 2
    images = np.zeros((places, places, 1, params.image_size, params.image_size), np.uint8)
    for fx in range(places):
        for fy in range(places):
            x, y = offset + step * fx, offset + step * fy
            images[fx, fy, 0, y : y + params.square_size, x : x + params.square_size] = 255
    return images.reshape(-1, *images.shape[2:])


@pytest.mark.parametrize("world", WORLDS)
def test_images_are_those_of_a_slow_drawing_in_the_requested_order(world):
    data = opened(**world)
    order = np.random.default_rng(0).permutation(len(data))
    images = data.images(order)
    assert images.dtype == np.uint8
    assert images.shape == (len(data), *DATASET.shape(data.params))
    np.testing.assert_array_equal(images, drawn(data)[order])


@pytest.mark.parametrize("world", WORLDS)
def test_statistics_are_means_over_all_images(world):
    data = opened(**world)
    images = drawn(data) / 255.0
    assert data.mean == pytest.approx([images.mean()], rel=1e-12)
    assert data.std == pytest.approx([images.std(axis=(2, 3), ddof=1).mean()], rel=1e-12)


def test_a_square_as_large_as_the_image_can_be_standardised():
    assert opened(image_size=4, square_size=4).std == (1.0,)


def test_there_are_sixty_four_images_by_default():
    data = opened()
    assert (data.factor_names, data.factor_sizes, len(data)) == (("x", "y"), (8, 8), 64)
    assert DATASET.factor_sizes(Params()) == (8, 8)
    assert not data.categorical
    assert len(np.unique(data.images(np.arange(64)), axis=0)) == 64


def test_images_are_those_of_xysquares_with_one_grey_square():
    world = {"image_size": 20, "square_size": 6, "spacing": 3}
    squares = xysquares.DATASET.open(xysquares.Params(**world, squares=1, rgb=False))
    data = opened(**world)
    assert (data.factor_sizes, data.mean, data.std) == (squares.factor_sizes, squares.mean, squares.std)
    np.testing.assert_array_equal(data.images(np.arange(25)), squares.images(np.arange(25)))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 9}, "must be 1 to 8, as many as fit with image_size 64, square_size 8 and spacing 8, but is 9"),
        ({"square_size": 65}, "must be 1 to 64, the image_size, but is 65"),
        ({"spacing": 57}, "spacing 57 only one position fits in 64 pixels, so nothing can move"),
        ({"squares": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)
