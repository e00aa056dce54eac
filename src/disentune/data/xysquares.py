"""XYSquares: Michlo et al., IJCAI 2023, section 5.1: squares on a grid whose spacing sets how much they overlap."""

import numpy as np
from pydantic import Field

from disentune.data.drawn import DrawnImages
from disentune.data.moments import Moments, of_binary, statistics
from disentune.data.positions import Placement, in_channels, placed
from disentune.data.union_areas import union_areas
from disentune.plugin import Count, Dataset, Shape, Statistics

FACTORS = ("x_R", "y_R", "x_G", "y_G", "x_B", "y_B")


class Params(Placement):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many positions as fit."""

    squares: Count = Field(3, ge=1, le=3, description="number of squares")
    rgb: bool = Field(True, description="each square in its own colour channel; false: all in one grey channel")


def opened(params: Params) -> DrawnImages:
    """Square i is drawn in channel i; in grey, all share one channel and merge where they overlap."""
    size, corners, table = params.image_size, params.corners, placed(params, params.square_size)

    def draw(factors: np.ndarray) -> np.ndarray:
        x, y = corners[factors[:, ::2]], corners[factors[:, 1::2]]
        return in_channels(table[y * size + x].reshape(-1, params.squares, size, size), params.rgb)

    factors = dict.fromkeys(FACTORS[: 2 * params.squares], params.places)
    return DrawnImages((opened, params), factors, shape(params), measured(params), draw)


def shape(params: Params) -> Shape:
    return (3 if params.rgb else 1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places,) * (2 * params.squares)


def measured(params: Params) -> Statistics:
    pixels = params.image_size**2
    if not params.rgb:
        areas = union_areas(params.squares, params.square_size, params.step, params.places)
        return statistics([of_binary(pixels, *areas)])
    filled = of_binary(pixels, np.array([params.square_size**2]), np.ones(1))
    return statistics([filled] * params.squares + [Moments(0.0, 0.0)] * (3 - params.squares))


def published(params: Params) -> Statistics | None:
    """Statistics of squares of 8 pixels in images of 64; in colour they are the same at every spacing."""
    if (params.image_size, params.square_size, params.squares) != (64, 8, 3):
        return None
    if params.rgb:
        return Statistics((0.015625,) * 3, (0.12403473458920855,) * 3)
    return (
        Statistics((0.046146392822265625,), (0.2096506119375896,)) if (params.step, params.places) == (8, 8) else None
    )


DATASET = Dataset(
    name="xysquares", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened, published=published
)
