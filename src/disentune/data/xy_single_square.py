"""XYSingleSquare: Michlo et al., IJCAI 2023, their code: one grey square, placed as those of XYSquares."""

import numpy as np

from disentune.data.factors import FactorGrid
from disentune.data.moments import of_binary, statistics
from disentune.data.placement import Placement, placed
from disentune.plugin import Dataset, Shape

FACTORS: tuple[str, ...] = ("x", "y")


class Params(Placement):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many places as fit."""


class XYSingleSquare:
    def __init__(self, params: Params):
        self.params = params
        self.factor_names, self.factor_sizes = FACTORS, factor_sizes(params)
        self.categorical: tuple[str, ...] = ()
        self.noisy = False
        self.shape = shape(params)
        self.mean, self.std = statistics([of_binary(params.image_size**2, np.array([params.square_size**2]))])
        self._grid = FactorGrid(self.factor_names, self.factor_sizes)
        self._corners = params.corners
        self._placed = placed(params, params.square_size)

    def __reduce__(self):
        return XYSingleSquare, (self.params,)

    def __len__(self) -> int:
        return len(self._grid)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, 1, h, w), 0 or 255."""
        x, y = self._corners[self._grid.factors(indices)].T
        return self._placed[y * self.params.image_size + x].reshape(-1, *self.shape)


def shape(params: Params) -> Shape:
    return (1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places,) * 2


DATASET = Dataset(name="xy_single_square", params=Params, shape=shape, factor_sizes=factor_sizes, open=XYSingleSquare)
