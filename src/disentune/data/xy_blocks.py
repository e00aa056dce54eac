"""XYBlocks: Michlo, MSc thesis, his code: three blocks of decreasing size; a block on its own colour erases it.

Block i covers one cell of a grid with 2, 4 or 8 cells per side. The largest is painted first. If the cell already has
the block's colour it becomes empty; any other colour is replaced. A cell is inside one cell of each coarser grid, so it
has a single colour when its block is painted.
"""

import numpy as np
from pydantic import Field, field_validator

from disentune.data.drawn import DrawnImages
from disentune.data.moments import of_binary, statistics
from disentune.plugin import Count, Dataset, Frozen, Shape, Statistics

PUBLISHED = Statistics((0.10040509259259259,) * 3, (0.21689087652106678,) * 3)
GRIDS = (2, 4, 8)
"""Cells along a side of the image, for each block."""
COLOURS = np.array([1, 2, 3], np.int8)
"""Red, green, blue: the value of a cell, which is 0 if it is empty."""


class Params(Frozen):
    """Pixels along a side of the image; the smallest blocks have an eighth of that."""

    image_size: Count = Field(64, ge=8, le=1024, description="pixels along a side of the image, a multiple of 8")

    @field_validator("image_size")
    @classmethod
    def _has_whole_cells(cls, size: int) -> int:
        if size % GRIDS[-1]:
            raise ValueError(f"must be a multiple of {GRIDS[-1]}, the cells along a side, but is {size}")
        return size


def opened(params: Params) -> DrawnImages:
    side = params.image_size // GRIDS[-1]

    def draw(factors: np.ndarray) -> np.ndarray:
        channels = (painted(factors)[:, None] == COLOURS[:, None, None]) * np.uint8(255)
        found: np.ndarray = channels.repeat(side, axis=3).repeat(side, axis=2)
        return found

    names = [f"{factor}_{cells}" for factor in ("colour", "x", "y") for cells in GRIDS]
    factors = dict(zip(names, factor_sizes(params), strict=True))
    return DrawnImages((opened, params), factors, shape(params), measured(params), draw, tuple(names[:3]))


def shape(params: Params) -> Shape:
    return (3, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (3,) * len(GRIDS) + GRIDS * 2


def painted(factors: np.ndarray) -> np.ndarray:
    """Factors (n, 9) -> cells int8 (n, 8, 8): a colour, or 0."""
    canvas = np.zeros((len(factors), GRIDS[-1], GRIDS[-1]), np.int8)
    fine = np.arange(GRIDS[-1], dtype=np.int8)
    for cells, colour, x, y in zip(GRIDS, *np.split(factors.T.astype(np.int8), 3), strict=True):
        place = fine // (GRIDS[-1] // cells)
        inside = (place == y[:, None])[:, :, None] & (place == x[:, None])[:, None]
        paint = COLOURS[colour][:, None, None]
        canvas = np.where(inside, np.where(canvas == paint, 0, paint), canvas)
    return canvas


def measured(params: Params) -> Statistics:
    """The position of the large block makes no difference, so a quarter of the images is enough, and so are cells."""
    grid = (3, 3, 3, 1, 4, 8, 1, 4, 8)
    cells = painted(np.indices(grid).reshape(len(grid), -1).T)
    lit = [(cells == colour).sum(axis=(1, 2)) for colour in COLOURS]
    side = params.image_size // GRIDS[-1]
    return statistics(of_binary(params.image_size**2, count * side**2) for count in lit)


def published(params: Params) -> Statistics | None:
    return PUBLISHED if params == Params() else None


DATASET = Dataset(
    name="xy_blocks", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened, published=published
)
