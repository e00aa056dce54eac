"""XYSquares against a slow drawing and the published numbers."""

from itertools import combinations

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data import load
from disentune.data.factors import FactorGrid
from disentune.data.xysquares import Params

# spacing: offset, squared error in pixels at index distances 0 to 7, its mean over pairs / 12288, and deviation
PUBLISHED = {
    1: (24, [0, 16, 32, 48, 64, 80, 96, 112], 0.003906, 0.002255),
    2: (21, [0, 32, 64, 96, 128, 128, 128, 128], 0.006882, 0.003129),
    3: (17, [0, 48, 96, 128, 128, 128, 128, 128], 0.008231, 0.002697),
    4: (14, [0, 64, 128, 128, 128, 128, 128, 128], 0.009115, 0.002255),
    5: (10, [0, 80, 128, 128, 128, 128, 128, 128], 0.009440, 0.001691),
    6: (7, [0, 96, 128, 128, 128, 128, 128, 128], 0.009766, 0.001128),
    7: (3, [0, 112, 128, 128, 128, 128, 128, 128], 0.010091, 0.000564),
    8: (0, [0, 128, 128, 128, 128, 128, 128, 128], 0.010417, 0.0),
}
UNLIMITED = {1: 57, 2: 29, 3: 19, 4: 15, 5: 12, 6: 10, 7: 9, 8: 8}
WORLDS = [
    {},
    {"spacing": 3},
    {"spacing": 5, "grid_size": 4},
    {"image_size": 24, "square_size": 4, "grid_size": 6, "spacing": 1},
    {"image_size": 17, "square_size": 3, "spacing": 2, "squares": 2},
    {"image_size": 10, "square_size": 3, "squares": 1},
    {"image_size": 16, "square_size": 5, "spacing": 2, "rgb": False},
    {"image_size": 16, "square_size": 5, "spacing": 2, "rgb": False, "squares": 2},
]
SMALL = [
    {"image_size": 7, "square_size": 2, "spacing": 1, "grid_size": 3},
    {"image_size": 7, "square_size": 3, "spacing": 2, "rgb": False},
    {"image_size": 8, "square_size": 3, "spacing": 1, "squares": 2, "rgb": False},
    {"image_size": 8, "square_size": 3, "spacing": 1, "squares": 2},
    {"image_size": 9, "square_size": 2, "squares": 1, "rgb": False},
]


def drawn(data, index):
    """One image, square by square, as the paper's code places them."""
    params = data.params
    places, step = data.factor_sizes[0], params.spacing or params.square_size
    offset = (params.image_size - (params.square_size + (places - 1) * step)) // 2
    factors = FactorGrid(data.factor_names, data.factor_sizes).factors(np.array([index]))[0]
    image = np.zeros(data.shape, np.uint8)
    for square in range(params.squares):
        x, y = (offset + step * factors[2 * square + axis] for axis in range(2))
        image[square if params.rgb else 0, y : y + params.square_size, x : x + params.square_size] = 255
    return image


@pytest.mark.parametrize("world", WORLDS)
def test_images_are_those_of_a_slow_drawing(world):
    data = load("xysquares", **world)
    indices = np.random.default_rng(0).integers(len(data), size=40)
    np.testing.assert_array_equal(data.images(indices), [drawn(data, index) for index in indices])


def test_squares_stand_where_the_paper_has_them():
    data = load("xysquares")
    index = FactorGrid(data.factor_names, data.factor_sizes).index(np.array([[1, 2, 3, 4, 5, 6]]))
    image = data.images(index)[0]
    corners = [tuple(int(axis.min()) for axis in np.nonzero(channel)[::-1]) for channel in image]
    assert corners == [(8, 16), (24, 32), (40, 48)]
    assert data.factor_names == ("x_R", "y_R", "x_G", "y_G", "x_B", "y_B")
    assert len(data) == 8**6


def test_index_one_moves_the_last_square_down():
    first, second = load("xysquares").images(np.array([0, 1]))
    np.testing.assert_array_equal(first[:2], second[:2])
    np.testing.assert_array_equal(np.roll(first[2], 8, axis=0), second[2])


@pytest.mark.parametrize("spacing", PUBLISHED)
def test_distances_are_the_published_ones(spacing):
    offset, steps, mean, deviation = PUBLISHED[spacing]
    data = load("xysquares", spacing=spacing, grid_size=8)
    images = data.images(np.arange(8)).astype(float) / 255  # a traversal of y_B
    assert np.nonzero(images[0, 2])[0].min() == offset
    errors = {(i, j): ((images[i] - images[j]) ** 2).sum() for i, j in combinations(range(8), 2)}
    assert all(error == pytest.approx(steps[j - i]) for (i, j), error in errors.items())
    assert np.mean(list(errors.values())) / 12288 == pytest.approx(mean, abs=1e-6)
    assert np.std(list(errors.values())) / 12288 == pytest.approx(deviation, abs=1e-6)


def test_perceived_distance_is_constant_when_spacing_equals_square_size():
    images = load("xysquares").images(np.arange(8)).astype(float)
    assert len({((images[i] - images[j]) ** 2).sum() for i, j in combinations(range(8), 2)}) == 1


@pytest.mark.parametrize("spacing", UNLIMITED)
def test_without_a_grid_size_all_places_that_fit_are_used(spacing):
    assert load("xysquares", spacing=spacing).factor_sizes == (UNLIMITED[spacing],) * 6


def test_channels_without_a_square_stay_empty():
    data = load("xysquares", squares=2)
    assert data.shape == (3, 64, 64)
    assert data.factor_sizes == (8,) * 4
    assert data.images(np.array([5]))[0, 2].max() == 0


@pytest.mark.parametrize("spacing", PUBLISHED)
def test_rgb_statistics_are_those_of_the_paper(spacing):
    data = load("xysquares", spacing=spacing, grid_size=8)
    assert data.mean == (1 / 64,) * 3
    assert data.std == pytest.approx((65**-0.5,) * 3, rel=1e-14)


def test_grey_statistics_are_those_of_the_paper():
    data = load("xysquares", rgb=False)
    assert data.mean == pytest.approx((0.046146392822265625,), rel=1e-14)
    assert data.std == pytest.approx((0.2096506119375896,), rel=1e-14)


@pytest.mark.parametrize("world", SMALL)
def test_statistics_are_means_over_all_images(world):
    data = load("xysquares", **world)
    images = data.images(np.arange(len(data))) / 255.0
    means, deviations = images.mean(axis=(2, 3)).mean(axis=0), images.std(axis=(2, 3), ddof=1).mean(axis=0)
    assert data.mean == pytest.approx(means, rel=1e-12)
    assert data.std == pytest.approx(np.where(deviations > 0, deviations, 1), rel=1e-12)


def test_a_channel_that_never_changes_can_be_standardised():
    assert load("xysquares", image_size=4, square_size=4).std == (1.0,) * 3
    assert load("xysquares", squares=1).std[1:] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 9}, "must be 1 to 8, as many as fit with image_size 64, square_size 8 and spacing 8, but is 9"),
        ({"grid_size": 58, "spacing": 1}, "must be 1 to 57"),
        ({"square_size": 65}, "must be 1 to 64, the image_size, but is 65"),
        ({"image_size": 4}, "must be 1 to 4, the image_size, but is 8"),
        ({"squares": 4}, "less than or equal to 3"),
        ({"spacing": 0}, "greater than or equal to 1"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)


def test_the_largest_grid_that_fits_is_accepted():
    assert Params(spacing=1, grid_size=57).places == 57


def test_a_wrong_size_is_reported_once():
    with pytest.raises(ValidationError) as raised:
        Params(square_size=65, grid_size=9)
    assert [error["loc"] for error in raised.value.errors()] == [("square_size",)]
