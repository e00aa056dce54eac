"""XColumns against a slow drawing and the published numbers."""

from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data.x_columns import DATASET, Params, union_widths

WORLDS = [
    {},
    {"spacing": 3, "grid_size": 5},
    {"image_size": 17, "square_size": 3, "spacing": 2, "columns": 2},
    {"image_size": 10, "square_size": 3, "columns": 1},
    {"image_size": 16, "square_size": 5, "spacing": 2, "rgb": False},
    {"image_size": 16, "square_size": 5, "spacing": 3, "rgb": False, "columns": 2},
    {"image_size": 16, "square_size": 4, "rgb": False},
    {"image_size": 9, "square_size": 2, "spacing": 3, "rgb": False, "columns": 1},
]


def opened(**params):
    return DATASET.open(Params(**params))


def drawn(data):
    """All images, one by one, column by column, as the paper's code places squares."""
    params, places = data.params, data.factor_sizes[0]
    step = params.spacing or params.square_size
    offset = (params.image_size - (params.square_size + (places - 1) * step)) // 2
    images = np.zeros((len(data), *data.shape), np.uint8)
    for image, factors in zip(images, product(range(places), repeat=params.columns), strict=True):
        for column, factor in enumerate(factors):
            x = offset + step * factor
            image[column if params.rgb else 0, :, x : x + params.square_size] = 255
    return images


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
    deviations = images.std(axis=(2, 3), ddof=1).mean(axis=0)
    assert data.mean == pytest.approx(images.mean(axis=(0, 2, 3)), rel=1e-12)
    assert data.std == pytest.approx(np.where(deviations > 0, deviations, 1), rel=1e-12)


def test_statistics_are_the_published_ones():
    data, published = opened(), DATASET.published(Params())
    assert data.mean == pytest.approx((0.125,) * 3, abs=1e-9)
    assert data.std == pytest.approx((0.330759292237889,) * 3, abs=1e-9)
    assert published.mean == pytest.approx(data.mean, abs=1e-9)
    assert published.std == pytest.approx(data.std, abs=1e-9)
    assert DATASET.published(Params(columns=2)) is None


def test_every_image_is_counted_by_its_width():
    widths, images = union_widths(columns=3, width=4, step=3, places=50)
    assert images.sum() == 50**3
    assert images[widths == 12].sum() == 48 * 47 * 46  # apart by 2 places or more: (n - 2) (n - 3) (n - 4) in order


def test_factors_are_the_three_columns():
    data = opened()
    assert (data.factor_names, data.factor_sizes, len(data)) == (("x_R", "x_G", "x_B"), (8, 8, 8), 512)
    assert opened(columns=2).factor_names == ("x_R", "x_G")
    assert DATASET.factor_sizes(Params(columns=2)) == (8, 8)
    assert not data.categorical


def test_channels_without_a_column_stay_empty():
    data = opened(columns=1)
    assert data.shape == (3, 64, 64)
    assert data.images(np.arange(8))[:, 1:].max() == 0
    assert data.std[1:] == (1.0, 1.0)


def test_all_images_differ():
    assert len(np.unique(opened().images(np.arange(512)), axis=0)) == 512


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 9}, "must be 1 to 8, as many as fit with image_size 64, square_size 8 and spacing 8, but is 9"),
        ({"columns": 4}, "less than or equal to 3"),
        ({"columns": 0}, "greater than or equal to 1"),
        ({"image_size": 4}, "must be 1 to 4, the image_size, but is 8"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)
