"""XColumns: Michlo et al., IJCAI 2023, their code: columns as high as the image, placed as the squares of XYSquares."""

import numpy as np
from pydantic import Field

from disentune.data.drawn import DrawnImages
from disentune.data.moments import Moments, of_binary, statistics
from disentune.data.positions import Placement, in_channels, placed
from disentune.plugin import Count, Dataset, Shape, Statistics

FACTORS: tuple[str, ...] = ("x_R", "x_G", "x_B")
PUBLISHED = Statistics((0.125,) * 3, (0.330759292237889,) * 3)
ORDERS = {1: (1,), 2: (2, 1), 3: (6, 3, 1)}
"""Number of ways to assign 1, 2 or 3 columns to their positions, by how many neighbours share one."""


class Params(Placement):
    """square_size is the width of a column; spacing defaults to it, grid_size to as many positions as fit."""

    columns: Count = Field(3, ge=1, le=3, description="number of columns")
    rgb: bool = Field(True, description="each column in its own colour channel; false: all in one grey channel")


def opened(params: Params) -> DrawnImages:
    """Column i is drawn in channel i; in grey, all share one channel and merge where they overlap."""
    size, corners, table = params.image_size, params.corners, placed(params, params.image_size)

    def draw(factors: np.ndarray) -> np.ndarray:
        return in_channels(table[corners[factors]].reshape(-1, params.columns, size, size), params.rgb)

    factors = dict.fromkeys(FACTORS[: params.columns], params.places)
    return DrawnImages((opened, params), factors, shape(params), measured(params), draw)


def shape(params: Params) -> Shape:
    return (3 if params.rgb else 1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places,) * params.columns


def measured(params: Params) -> Statistics:
    """One row of pixels gives the share of an image that is lit."""
    size = params.image_size
    if not params.rgb:
        widths, images = union_widths(params.columns, params.square_size, params.step, params.places)
        return statistics([of_binary(size**2, widths * size, images)])
    filled = of_binary(size**2, np.array([params.square_size * size]))
    return statistics([filled] * params.columns + [Moments(0.0, 0.0)] * (3 - params.columns))


def union_widths(columns: int, width: int, step: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of pixels that columns cover together in a row, and in how many of the places**columns images; exact.

    Sorted columns are described by the gaps between neighbours; each set of gaps (m, columns - 1) fits at some
    positions.
    """
    gaps = np.indices((places,) * (columns - 1)).reshape(columns - 1, places ** (columns - 1)).T
    fits = np.maximum(places - gaps.sum(axis=1), 0)
    orders = np.array(ORDERS[columns])[(gaps == 0).sum(axis=1)]
    return width + np.minimum(gaps * step, width).sum(axis=1), fits * orders


def published(params: Params) -> Statistics | None:
    return PUBLISHED if params == Params() else None


DATASET = Dataset(
    name="x_columns", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened, published=published
)
