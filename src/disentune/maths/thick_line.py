"""The table of two correlated factors in the released code of Traeuble et al., ICML 2021: a thick line, blurred.

Their code draws the line and blurs it with OpenCV, on an image of bytes with one row per value of the first factor and
one column per value of the second. A value of the table is the byte of its pixel. This module repeats OpenCV's
arithmetic, which works with 16 binary digits after the point and rounds halves up, so that the table is the same.
"""

import math

import numpy as np

ONE = 1 << 16
"""The side of a pixel in the fixed-point numbers of the drawing."""
HALF = ONE // 2
WHITE = 255
PUBLISHED_KERNELS = {1: (256,), 3: (64, 128, 64), 5: (16, 64, 96, 64, 16), 7: (8, 28, 56, 72, 56, 28, 8),
                     9: (4, 13, 30, 51, 60, 51, 30, 13, 4)}  # fmt: skip
"""OpenCV's constants for small blurs, in 256ths."""

Point = tuple[int, int]
"""Column and row."""


def blurred_line(rows: int, columns: int, width: float) -> np.ndarray:
    """Bytes (rows, columns) as int64; their sum is not 1. Raises ValueError if the line is thinner than two pixels."""
    short = min(rows, columns)
    thickness = math.ceil(width * short)
    if thickness < 2:
        raise ValueError(f"its line would be one pixel thick; width must be above {1 / short:.3g} for these factors")
    size = short // 4
    return blurred(thick_line(rows, columns, thickness), size + (size % 2 == 0))


# ---- the line


def thick_line(rows: int, columns: int, thickness: int) -> np.ndarray:
    """0 or 255 (rows, columns): a line from the middle of the first pixel to the point (columns, rows)."""
    image = np.zeros((rows, columns), np.int64)
    corners = _corners(rows, columns, thickness)
    for start, end in zip((corners[-1], *corners), corners, strict=False):
        _draw_side(image, start, end)
    _fill(image, corners)
    for column, row in ((0, 0), (columns, rows)):
        _draw_disc(image, column, row, (thickness * HALF + HALF) // ONE)
    return image


def _corners(rows: int, columns: int, thickness: int) -> list[Point]:
    """Of the rectangle around the line; an odd thickness is widened by one pixel."""
    half = (thickness * HALF + (thickness % 2) * HALF) / math.hypot(columns, rows)
    x, y = round(rows * half), round(-columns * half)
    end = columns * ONE, rows * ONE
    return [(x, y), (-x, -y), (end[0] - x, end[1] - y), (end[0] + x, end[1] + y)]


def _draw_row(image: np.ndarray, row: int, first: int, last: int) -> None:
    """From one column to another, both included; what is outside the image is left out."""
    if 0 <= row < len(image) and last >= 0:
        image[row, max(first, 0) : last + 1] = WHITE


def _draw_side(image: np.ndarray, start: Point, end: Point) -> None:
    """One pixel for each row or each column, whichever are more."""
    rows, columns = image.shape
    seen = _clipped(start, end, columns * ONE - 1, rows * ONE - 1)
    if seen is None:
        return
    (x, y), (last_x, last_y) = seen
    _draw_row(image, (last_y + HALF) // ONE, (last_x + HALF) // ONE, (last_x + HALF) // ONE)
    is_flat = abs(last_x - x) > abs(last_y - y)
    if is_flat:
        (x, y), (last_x, last_y) = sorted(((x, y), (last_x, last_y)))
        slope, count = _quotient((last_y - y) * ONE, (last_x - x) | 1), (last_x - x) // ONE
    else:
        (y, x), (last_y, last_x) = sorted(((y, x), (last_y, last_x)))
        slope, count = _quotient((last_x - x) * ONE, (last_y - y) | 1), (last_y - y) // ONE
    for place in range(count + 1):
        along, across = ((x if is_flat else y) + HALF) // ONE + place, (y if is_flat else x) + HALF + slope * place
        row, column = (across // ONE, along) if is_flat else (along, across // ONE)
        _draw_row(image, row, column, column)


def _quotient(numerator: int, denominator: int) -> int:
    """Rounded towards 0, as C does."""
    return int(math.copysign(abs(numerator) // abs(denominator), numerator * denominator))


def _clipped(start: Point, end: Point, right: int, bottom: int) -> tuple[Point, Point] | None:
    """The part of a segment that lies between 0 and `right` and between 0 and `bottom`; None if there is none."""
    ends = [[*start], [*end]]
    for axis, limit in ((1, bottom), (0, right)):
        values = ends[0][axis], ends[1][axis]
        if max(values) < 0 or min(values) > limit:
            return None
        for point in ends:
            edge = min(max(point[axis], 0), limit)
            if edge != point[axis]:
                run, rise = ends[1][axis] - ends[0][axis], ends[1][1 - axis] - ends[0][1 - axis]
                point[1 - axis] += int((edge - point[axis]) * rise / run)
                point[axis] = edge
    return (ends[0][0], ends[0][1]), (ends[1][0], ends[1][1])


def _fill(image: np.ndarray, corners: list[Point]) -> None:
    """The rows of a convex polygon, from its highest corner down its two sides."""
    heights = [(y + HALF) // ONE for _, y in corners]
    top = min(range(len(corners)), key=lambda corner: corners[corner][1])
    sides = [_edges(corners, heights, top, step) for step in (1, -1)]
    for row in range(heights[top], max(heights)):
        first, last = sorted(side[row] for side in sides)
        _draw_row(image, row, (first + HALF) // ONE, (last + HALF) // ONE)


def _edges(corners: list[Point], heights: list[int], top: int, step: int) -> dict[int, int]:
    """The column of a polygon's side in each row, in fixed point."""
    found: dict[int, int] = {}
    corner = top
    for _ in corners:
        following = (corner + step) % len(corners)
        (x, _), (next_x, _) = corners[corner], corners[following]
        tall = heights[following] - heights[corner]
        if tall > 0:
            slope = _quotient((next_x - x) * 2 + tall, 2 * tall)
            found |= {heights[corner] + row: x + slope * row for row in range(tall)}
        corner = following
    return found


def _draw_disc(image: np.ndarray, column: int, row: int, radius: int) -> None:
    """The round end of a line."""
    error, x, y, plus, minus = 0, radius, 0, 1, 2 * radius - 1
    while x >= y:
        for wide, tall in ((x, y), (y, x)):
            _draw_row(image, row - tall, column - wide, column + wide)
            _draw_row(image, row + tall, column - wide, column + wide)
        y, error, plus = y + 1, error + plus, plus + 2
        if error > 0:
            error, x, minus = error - minus, x - 1, minus - 2


# ---- its blur


def blurred(image: np.ndarray, size: int) -> np.ndarray:
    """Weighted sums over `size` pixels along each row, then along each column, mirrored at the border; rounded."""
    kernel = kernel_of(size)
    for axis in (1, 0):
        around = [(size // 2, size // 2) if one == axis else (0, 0) for one in (0, 1)]
        padded, length = np.pad(image, around, mode="reflect"), image.shape[axis]
        shifted = [np.take(padded, np.arange(place, place + length), axis) for place in range(size)]
        image = np.tensordot(kernel, shifted, 1)
    return (image + (1 << 15)) >> 16


def kernel_of(size: int) -> tuple[int, ...]:
    """Weights of a Gaussian in 256ths, with OpenCV's standard deviation for this size; the error of each rounding is
    carried to the next weight, and the middle one makes the sum 256."""
    if size in PUBLISHED_KERNELS:
        return PUBLISHED_KERNELS[size]
    deviation = 0.3 * ((size - 1) / 2 - 1) + 0.8
    density = np.exp(-((np.arange(size) - (size - 1) / 2) ** 2) / (2 * deviation**2))
    half, error = list[int](), 0.0
    for exact in (256 * density / density.sum())[: size // 2]:
        half.append(round(float(exact) + error))
        error += float(exact) - half[-1]
    return (*half, 256 - 2 * sum(half), *reversed(half))
