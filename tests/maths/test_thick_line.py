"""The table of the released code of Traeuble et al., against what OpenCV 5.0 gave for their five pairs of factors."""

import math

import numpy as np
import pytest

from disentune.maths.laws import dependence
from disentune.maths.thick_line import blurred, blurred_line, kernel_of, thick_line

MEASURED = {
    (8, 15): [(0.857, 0.635, 75), (0.693, 0.347, 93), (0.422, 0.127, 110)],
    (40, 32): [(0.910, 0.834, 738), (0.786, 0.495, 922), (0.492, 0.185, 1143)],
    (40, 40): [(0.915, 0.856, 950), (0.760, 0.450, 1220), (0.462, 0.164, 1468)],
    (10, 8): [(0.773, 0.450, 59), (0.627, 0.269, 67), (0.327, 0.078, 77)],
    (10, 15): [(0.882, 0.721, 87), (0.738, 0.409, 110), (0.438, 0.144, 135)],
}
"""(rows, columns) -> for widths 0.2, 0.4, 0.7: correlation, mutual information, cells above 0; by OpenCV itself."""
WIDTHS = (0.2, 0.4, 0.7)
CASES = [(*sizes, width, *row) for sizes, rows in MEASURED.items() for width, row in zip(WIDTHS, rows, strict=True)]


@pytest.mark.parametrize(("rows", "columns", "width", "correlation", "information", "cells"), CASES)
def test_the_table_is_that_of_the_released_code(rows, columns, width, correlation, information, cells):
    table = blurred_line(rows, columns, width)
    found = dependence(table / table.sum())
    assert np.count_nonzero(table) == cells
    # to the digits that were written down, of which one more could be rounded twice
    np.testing.assert_allclose(found, (correlation, information), rtol=0, atol=6e-4)


def test_a_line_on_a_square_is_all_pixels_near_the_diagonal():
    """The distance of pixel (r, c) from the diagonal is |r - c| / sqrt 2; half of 8 pixels, and half a pixel more."""
    row, column = np.mgrid[:40, :40]
    expected = np.abs(row - column) / math.sqrt(2) <= 4.5
    np.testing.assert_array_equal(thick_line(40, 40, 8) == 255, expected)


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9, 11, 13, 15])
def test_a_blur_keeps_a_constant_image_and_is_symmetric(size):
    kernel = kernel_of(size)
    assert sum(kernel) == 256
    assert kernel == kernel[::-1]
    assert (blurred(np.full((20, 17), 255), size) == 255).all()


def test_large_blurs_are_gaussians_to_within_a_step_of_rounding():
    deviation = 0.3 * ((11 - 1) / 2 - 1) + 0.8
    density = np.exp(-(np.arange(-5, 6) ** 2) / (2 * deviation**2))
    np.testing.assert_allclose(kernel_of(11), 256 * density / density.sum(), atol=1)


def test_a_blur_is_a_weighted_sum_mirrored_at_the_border():
    image = np.random.default_rng(0).integers(0, 2, (6, 5)) * 255

    def at(row, column):
        rows, columns = abs(row), abs(column)
        rows, columns = min(rows, 2 * 5 - rows), min(columns, 2 * 4 - columns)
        return int(image[rows, columns])

    weights = {-1: 64, 0: 128, 1: 64}
    expected = [
        [
            (sum(weights[a] * weights[b] * at(r + a, c + b) for a in weights for b in weights) + 2**15) // 2**16
            for c in range(5)
        ]
        for r in range(6)
    ]
    assert blurred(image, 3).tolist() == expected


def test_a_line_of_one_pixel_is_refused():
    with pytest.raises(ValueError, match=r"one pixel thick; width must be above 0.25"):
        blurred_line(4, 10, 0.2)
