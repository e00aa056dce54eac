"""XYObject against a slow drawing and the published numbers."""

from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data.factors import FactorGrid
from disentune.data.xy_object import DATASET, Params

RAINBOW = [(255, 0, 0), (255, 255, 0), (0, 255, 0), (0, 255, 255), (0, 0, 255), (255, 0, 255)]
SMALL = [
    {"image_size": 9, "square_size": 5, "scales": 2, "spacing": 2},
    {"image_size": 9, "square_size": 6, "scales": 3, "scale_spacing": 1, "spacing": 1, "palette": "colors_2"},
    {"image_size": 12, "square_size": 4, "scales": 2, "scale_spacing": 3, "spacing": 3, "palette": "rgb_1"},
    {"image_size": 8, "square_size": 3, "scales": 1, "spacing": 2, "grid_size": 2, "palette": "greys_4"},
]


def opened(**params):
    return DATASET.open(Params(**params))


def drawn(data, sizes, offset, colours):
    """All images, one by one, as the paper's code draws them."""
    params = data.params
    images = np.zeros((len(data), *data.shape), np.uint8)
    for image, (x, y, scale, colour) in zip(images, product(*map(range, data.factor_sizes)), strict=True):
        size = sizes[scale]
        left, top = (offset + params.spacing * place + (sizes[-1] - size) // 2 for place in (x, y))
        image[:, top : top + size, left : left + size] = np.reshape(colours[colour], (3, 1, 1))
    return images


SLOW = [
    (SMALL[0], [3, 5], 0, [tuple(value * i // 4 for value in colour) for i in (1, 2, 3, 4) for colour in RAINBOW]),
    (SMALL[2], [1, 4], 1, [(255, 0, 0), (0, 255, 0), (0, 0, 255)]),
    (SMALL[3], [3], 1, [(63,) * 3, (127,) * 3, (191,) * 3, (255,) * 3]),
]


@pytest.mark.parametrize(("world", "sizes", "offset", "colours"), SLOW)
def test_images_are_those_of_a_slow_drawing_in_the_requested_order(world, sizes, offset, colours):
    data = opened(**world)
    order = np.random.default_rng(0).permutation(len(data))
    images = data.images(order)
    assert images.dtype == np.uint8
    assert images.shape == (len(data), *DATASET.shape(data.params))
    np.testing.assert_array_equal(images, drawn(data, sizes, offset, colours)[order])


def test_squares_stand_where_the_papers_code_has_them():
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    factors = grid.factors(np.random.default_rng(0).integers(len(data), size=60))
    for image, (x, y, scale, colour) in zip(data.images(grid.index(factors)), factors, strict=True):
        size = (7, 9, 11, 13, 15)[scale]
        left, top = 2 * x + (15 - size) // 2, 2 * y + (15 - size) // 2
        expected = np.zeros((3, 64, 64), np.uint8)
        level, hue = colour // 6 + 1, colour % 6
        expected[:, top : top + size, left : left + size] = np.reshape(RAINBOW[hue], (3, 1, 1)) * level // 4
        np.testing.assert_array_equal(image, expected)


CORNERS = [({"spacing": 5}, 2), ({"spacing": 3}, 0), ({"spacing": 10}, 4), ({"spacing": 2, "grid_size": 8}, 17)]


@pytest.mark.parametrize(("world", "margin"), CORNERS)
def test_places_are_centred_unless_disent_s_are_asked_for_which_begin_at_the_first_pixel(world, margin):
    """What the places leave free of 64 pixels, 4 at spacing 5, is shared by both sides, or all on the far one."""
    params = Params(**world)
    np.testing.assert_array_equal(Params(**world, centred=False).corners, world["spacing"] * np.arange(params.places))
    np.testing.assert_array_equal(params.corners, margin + world["spacing"] * np.arange(params.places))


def test_images_that_are_not_centred_are_those_of_a_slow_drawing_from_the_first_pixel():
    world = {**SMALL[2], "centred": False}
    data = opened(**world)
    np.testing.assert_array_equal(data.images(np.arange(len(data))), drawn(data, [1, 4], 0, SLOW[1][3]))
    centred = opened(**SMALL[2])
    assert (data.mean, data.std, data.factor_sizes) == (centred.mean, centred.std, centred.factor_sizes)


def test_factors_are_those_of_the_papers_code():
    data = opened()
    assert data.factor_names == ("x", "y", "scale", "colour")
    assert data.factor_sizes == DATASET.factor_sizes(Params()) == (25, 25, 5, 24)
    assert len(data) == 75_000


@pytest.mark.parametrize("world", SMALL)
def test_statistics_are_means_over_all_images(world):
    data = opened(**world)
    images = data.images(np.arange(len(data))) / 255.0
    assert data.mean == pytest.approx(images.mean(axis=(0, 2, 3)), rel=1e-12)
    assert data.std == pytest.approx(images.std(axis=(2, 3), ddof=1).mean(axis=0), rel=1e-12)


def test_statistics_are_the_published_ones():
    data, published = opened(), DATASET.published(Params())
    assert data.mean == pytest.approx((0.009818761549013288,) * 3, abs=1e-9)
    assert data.std == pytest.approx((0.05263236372524584,) * 3, abs=1e-9)
    assert published.mean == pytest.approx(data.mean, abs=1e-9)
    assert published.std == pytest.approx(data.std, abs=1e-9)
    assert DATASET.published(Params(centred=False)) == published
    assert DATASET.published(Params(palette="rgb_4")) is None


@pytest.mark.parametrize(
    ("factor", "published"), [("x", 0.0115), ("y", 0.0116), ("scale", 0.0051), ("colour", 0.0088), (None, 0.0145)]
)
def test_distances_along_factors_are_the_published_ones(factor, published):
    data = opened()
    grid, rng = FactorGrid(data.factor_names, data.factor_sizes), np.random.default_rng(0)
    first, second = (grid.factors(rng.integers(len(grid), size=1500)) for _ in range(2))
    if factor is not None:
        moved, column = first.copy(), data.factor_names.index(factor)
        shift = rng.integers(1, data.factor_sizes[column], size=len(moved))
        moved[:, column] = (moved[:, column] + shift) % data.factor_sizes[column]
        second = moved
    a, b = (data.images(grid.index(factors)).astype(np.float32) / 255 for factors in (first, second))
    # theirs are of 50,000 pairs from few traversals: their own x and y differ by 2 %, of the shaded set by 7 %
    assert ((a - b) ** 2).mean() == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize(
    ("palette", "colours"),
    [
        ("greys_1", [(255, 255, 255)]),
        ("greys_2", [(127, 127, 127), (255, 255, 255)]),
        ("rgb_2", [(127, 0, 0), (0, 127, 0), (0, 0, 127), (255, 0, 0), (0, 255, 0), (0, 0, 255)]),
        ("rainbow_1", RAINBOW),
        ("colors_1", [*RAINBOW[::2], RAINBOW[1], RAINBOW[3], RAINBOW[5], (255, 255, 255)]),
    ],
)
def test_palettes_hold_their_colours_from_dark_to_bright(palette, colours):
    data = opened(palette=palette, scales=1, spacing=49)
    assert data.factor_sizes == (2, 2, 1, len(colours))
    images = data.images(np.arange(len(colours)))
    assert [tuple(image[:, 7, 7].tolist()) for image in images] == colours


def test_a_colour_has_no_order_but_a_grey_has():
    assert opened().categorical == ("colour",)
    assert opened(palette="greys_4").categorical == ()


def test_images_of_all_factors_differ():
    data = opened(**SMALL[0])
    assert len(np.unique(data.images(np.arange(len(data))), axis=0)) == len(data)


def test_a_square_as_large_as_the_image_can_be_standardised():
    assert opened(image_size=4, square_size=4, scales=1).std == (1.0,) * 3


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 26}, "must be 1 to 25, as many as fit with image_size 64, square_size 15 and spacing 2"),
        ({"image_size": 14}, "must be 1 to 14, the image_size, but is 15"),
        ({"scales": 9}, "9 scales that shrink by 2 from square_size 15 end at -1 pixels"),
        ({"square_size": 14, "scales": 8}, "8 scales that shrink by 2 from square_size 14 end at 0 pixels"),
        ({"scale_spacing": 4}, "5 scales that shrink by 4 from square_size 15 end at -1 pixels"),
        ({"palette": "rgb_3"}, "Input should be 'greys_1'"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)


def test_the_smallest_square_may_be_a_pixel():
    assert Params(scales=8).sizes.tolist() == [1, 3, 5, 7, 9, 11, 13, 15]


def test_a_wrong_size_is_reported_once():
    with pytest.raises(ValidationError) as raised:
        Params(square_size=0, grid_size=90)
    assert [error["loc"] for error in raised.value.errors()] == [("square_size",)]
