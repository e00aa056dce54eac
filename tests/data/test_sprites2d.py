"""Sprites2D against a slow drawing of the shapes' outlines, and the geometry that its docstring promises."""

import math
from itertools import product

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data.factors import FactorGrid
from disentune.data.sprites2d import DATASET, Params, drawn

SMALL = [
    {"image_size": 16, "scales": 2, "orientations": 5, "positions": 4},
    {"image_size": 17, "scales": 3, "orientations": 4, "positions": 3},
    {"image_size": 24, "scales": 1, "orientations": 3, "positions": 2},
    {"image_size": 10, "scales": 2, "orientations": 1, "positions": 6},
]
EDGE = 1 - 1e-9
"""Shapes are smaller by this, so that no sample point lies on an edge."""


def opened(**params):
    return DATASET.open(Params(**params))


# ---- shapes by other formulas: half planes, foci, discs; all in the circle of radius 1, y upwards


def in_polygon(x, y, corners):
    """Corners anticlockwise."""
    inside = np.ones(np.shape(x), bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0
    return inside


def in_square(x, y):
    return in_polygon(x, y, [(math.cos(a), math.sin(a)) for a in np.pi * np.array([0.25, 0.75, 1.25, 1.75])])


def in_ellipse(x, y):
    """The distances to the foci add up to the long axis."""
    return np.hypot(x - 0.8, y) + np.hypot(x + 0.8, y) <= 2


def in_heart(x, y):
    """The side s of the square that leaves, above its lower corner (0, -1), discs that touch the circle.

    Their centres are s / sqrt(8) to the side and 3 s / sqrt(8) - 1 up, and must be 1 - s / 2 from the middle.
    """
    r = math.sqrt(8)
    s = (6 / r - 1) / (10 / 8 - 1 / 4)
    assert math.hypot(s / r, 3 * s / r - 1) == pytest.approx(1 - s / 2)
    h = s / math.sqrt(2)
    square = in_polygon(x, y, [(0, -1), (h, h - 1), (0, 2 * h - 1), (-h, h - 1)])
    lobes = [np.hypot(x - side * s / r, y - (3 * s / r - 1)) <= s / 2 for side in (-1, 1)]
    return square | lobes[0] | lobes[1]


OUTLINES = [in_square, in_ellipse, in_heart]


def slow(params, shape, scale, orientation, x, y):
    """One image: the whole of it is sampled at 8 x 8 points a pixel, turned around the sprite's middle."""
    size, box = params.image_size, params.image_size // 2
    step = (size - box) // max(params.positions - 1, 1)
    offset = (size - (box + (params.positions - 1) * step)) // 2
    radius = box / 2 * (0.5 + 0.5 * scale / (params.scales - 1) if params.scales > 1 else 0.5) * EDGE
    samples = (np.arange(size * 8) + 0.5) / 8
    across = (samples[None, :] - (offset + step * x + box / 2)) / radius
    up = -(samples[:, None] - (offset + step * y + box / 2)) / radius
    back = np.exp(-2j * np.pi * orientation / params.orientations) * (across + 1j * up)
    inside = OUTLINES[shape](back.real, back.imag)
    share = inside.reshape(size, 8, size, 8).mean(axis=(1, 3))
    return np.rint(255 * share)[None]


@pytest.mark.parametrize("world", SMALL)
def test_images_are_those_of_a_slow_drawing_in_the_requested_order(world):
    data = opened(**world)
    factors = np.array(list(product(*map(range, data.factor_sizes))))
    order = np.random.default_rng(0).permutation(len(data))[:150]
    images = data.images(order)
    assert images.dtype == np.uint8
    assert images.shape == (len(order), *DATASET.shape(data.params))
    np.testing.assert_array_equal(images, [slow(data.params, *factors[index]) for index in order])


def test_the_default_world_is_that_of_a_slow_drawing():
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    factors = grid.factors(np.random.default_rng(0).integers(len(data), size=30))
    np.testing.assert_array_equal(data.images(grid.index(factors)), [slow(data.params, *row) for row in factors])


def test_factors_are_those_of_dsprites():
    data = opened()
    assert data.factor_names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert data.factor_sizes == DATASET.factor_sizes(Params()) == (3, 6, 40, 32, 32)
    assert data.categorical == ("shape",)
    assert len(data) == 737_280


def test_sprites_have_the_area_of_their_shapes():
    """With circle 1: square 2, ellipse 0.6 pi, heart s**2 (1 + pi / 4) with s = 3 / sqrt(2) - 1."""
    areas = np.array([2, 0.6 * np.pi, (3 / np.sqrt(2) - 1) ** 2 * (1 + np.pi / 4)])
    sprites = drawn(Params()).reshape(3, 6, 40, -1) / 255.0
    radii = 16 * np.linspace(0.5, 1, 6)
    expected = areas[:, None, None] * radii[:, None] ** 2
    np.testing.assert_allclose(sprites.sum(axis=3) / expected, 1, atol=0.02)  # 64 points a pixel, edge of 45 pixels
    np.testing.assert_allclose((sprites.sum(axis=3) / expected).mean(axis=2), 1, atol=0.003)


@pytest.mark.parametrize("world", SMALL)
def test_no_pixel_is_lost_at_any_position(world):
    data = opened(**world)
    lit = data.images(np.arange(len(data))).reshape(-1, data.params.positions**2, data.shape[1] ** 2).sum(axis=2)
    assert (lit == lit[:, :1]).all()
    sprites = drawn(data.params)
    np.testing.assert_array_equal(lit[:, 0], sprites.reshape(len(sprites), -1).sum(axis=1))


def test_the_outermost_sprites_reach_the_border_and_stay_inside():
    """The largest ellipse lies in its box from side to side; one pixel of 64 is left over, at the far end."""
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    left, right = data.images(grid.index(np.array([[1, 5, 0, 0, 16], [1, 5, 0, 31, 16]])))
    columns = [np.nonzero(image.any(axis=(0, 1)))[0] for image in (left, right)]
    assert [(lit.min(), lit.max()) for lit in columns] == [(0, 31), (31, 62)]


def test_positions_are_whole_pixels_apart():
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    here, right, below = data.images(grid.index(np.array([[2, 3, 7, 9, 4], [2, 3, 7, 10, 4], [2, 3, 7, 9, 5]])))
    np.testing.assert_array_equal(right, np.roll(here, 1, axis=2))
    np.testing.assert_array_equal(below, np.roll(here, 1, axis=1))


@pytest.mark.parametrize("image_size", [8, 9, 16, 24, 64])
def test_more_scales_than_can_be_distinguished_are_refused(image_size):
    params = Params(image_size=image_size, scales=image_size // 2, orientations=7, positions=2)
    lit = drawn(params).reshape(3, params.scales, 7, -1).sum(axis=3, dtype=int)
    assert (np.diff(lit, axis=1) > 0).all()
    with pytest.raises(ValidationError, match=f"scales\n.*must be 1 to {image_size // 2}, half the image_size"):
        Params(image_size=image_size, scales=image_size // 2 + 1, positions=2)


def test_all_orientations_of_a_heart_differ():
    sprites = drawn(Params()).reshape(3, 6, 40, -1)
    for scale in range(6):
        assert len(np.unique(sprites[2, scale], axis=0)) == 40


def test_a_square_repeats_each_quarter_turn_and_an_ellipse_each_half():
    sprites = drawn(Params()).reshape(3, 6, 40, -1)
    for scale in range(6):
        assert len(np.unique(sprites[0, scale], axis=0)) == 10
        assert len(np.unique(sprites[1, scale], axis=0)) == 20
    np.testing.assert_array_equal(sprites[0, :, :10], sprites[0, :, 10:20])
    np.testing.assert_array_equal(sprites[1, :, :20], sprites[1, :, 20:])


def test_a_heart_stands_on_its_corner_and_turns_anticlockwise():
    heart = drawn(Params(orientations=4)).reshape(3, 6, 4, 32, 32)[2, 5]
    lowest = heart[0, 31]
    assert lowest.any()
    assert np.nonzero(lowest)[0].tolist() == [15, 16]
    np.testing.assert_array_equal(heart[0], heart[0, :, ::-1])
    np.testing.assert_array_equal(heart[1], np.rot90(heart[0]))


def test_edges_are_grey_and_the_rest_is_black_or_white():
    """Around a circle of radius r pass about 8 r pixels at most, counting both axes."""
    sprites = drawn(Params()).reshape(3, 6, 40, -1)
    grey = ((sprites > 0) & (sprites < 255)).sum(axis=3)
    assert (grey[1] > 20).all()
    assert (grey <= 8 * 16).all()
    assert (sprites == 255).any(axis=3).all()


@pytest.mark.parametrize("world", SMALL)
def test_images_of_different_scales_and_positions_differ(world):
    data = opened(**world)
    shapes, scales, orientations, *places = data.factor_sizes
    images = data.images(np.arange(len(data))).reshape(shapes, scales, orientations, math.prod(places), -1)
    for shape, orientation in product(range(shapes), range(orientations)):
        alike = images[shape, :, orientation].reshape(scales * math.prod(places), -1)
        assert len(np.unique(alike, axis=0)) == len(alike)


@pytest.mark.parametrize("world", SMALL)
def test_statistics_are_means_over_all_images(world):
    data = opened(**world)
    images = data.images(np.arange(len(data))) / 255.0
    assert data.mean == pytest.approx([images.mean()], rel=1e-12)
    assert data.std == pytest.approx([images.std(axis=(2, 3), ddof=1).mean()], rel=1e-12)


def test_the_default_world_stays_as_it_is():
    data = opened()
    assert data.mean == pytest.approx([0.07553215209694988], abs=1e-7)  # one sample point is 5e-9
    assert data.std == pytest.approx([0.25122624699769885], abs=1e-7)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"positions": 34}, "positions\n.*must be 1 to 33, whole pixels apart with image_size 64, but is 34"),
        ({"image_size": 16}, "positions\n.*must be 1 to 9, whole pixels apart with image_size 16, but is 32"),
        (
            {"image_size": 8, "positions": 2},
            "scales\n.*must be 1 to 4, half the image_size, so that scales look different",
        ),
        ({"image_size": 4}, "greater than or equal to 8"),
        ({"orientations": 0}, "greater than or equal to 1"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)


def test_the_largest_number_of_positions_that_fits_is_accepted():
    data = opened(image_size=16, scales=1, orientations=1, positions=9)
    assert len(np.unique(data.images(np.arange(81)), axis=0)) == 81
