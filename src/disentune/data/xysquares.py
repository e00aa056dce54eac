"""XYSquares: Michlo et al., IJCAI 2023, section 5.1: squares on a grid whose spacing sets how much they overlap."""

import numpy as np
from pydantic import Field

from disentune.data.factors import FactorGrid
from disentune.data.moments import Moments, of_binary, statistics
from disentune.data.placement import Placement, placed
from disentune.data.union_areas import union_areas
from disentune.plugin import Count, Dataset, Shape, Statistics

FACTORS = ("x_R", "y_R", "x_G", "y_G", "x_B", "y_B")


class Params(Placement):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many places as fit."""

    squares: Count = Field(3, ge=1, le=3)
    rgb: bool = True


class XYSquares:
    """Square i is drawn in channel i; when grey, all share one channel and merge where they meet."""

    def __init__(self, params: Params):
        self.params = params
        self.factor_names = FACTORS[: 2 * params.squares]
        self.factor_sizes = factor_sizes(params)
        self.categorical: tuple[str, ...] = ()
        self.noisy = False
        self.shape = shape(params)
        self.mean, self.std = measured(params)
        self._grid = FactorGrid(self.factor_names, self.factor_sizes)
        self._corners = params.corners
        self._placed = placed(params, params.square_size)

    def __reduce__(self):
        return XYSquares, (self.params,)

    def __len__(self) -> int:
        return len(self._grid)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w), 0 or 255."""
        size = self.params.image_size
        corners = self._corners[self._grid.factors(indices)]
        squares = self._placed[corners[:, 1::2] * size + corners[:, ::2]].reshape(-1, self.params.squares, size, size)
        if not self.params.rgb:
            return squares.max(axis=1, keepdims=True)
        empty = self.shape[0] - self.params.squares
        return np.pad(squares, [(0, 0), (0, empty), (0, 0), (0, 0)]) if empty else squares


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
    """Of squares of 8 in images of 64 pixels; in colour they are the same at every spacing."""
    if (params.image_size, params.square_size, params.squares) != (64, 8, 3):
        return None
    if params.rgb:
        return Statistics((0.015625,) * 3, (0.12403473458920855,) * 3)
    return (
        Statistics((0.046146392822265625,), (0.2096506119375896,)) if (params.step, params.places) == (8, 8) else None
    )


DATASET = Dataset(
    name="xysquares", params=Params, shape=shape, factor_sizes=factor_sizes, open=XYSquares, published=published
)
