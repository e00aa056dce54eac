"""Data sets whose images are drawn from their factors on request."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from disentune.data.factors import FactorGrid, in_a_line
from disentune.plugin import Frozen, Shape, Statistics


class DrawnImages:
    """A pickle has no images or tables, only the function and parameters that open the data set again."""

    noisy = False

    def __init__(
        self,
        opened_by: tuple[Callable[[Any], "DrawnImages"], Frozen],
        factors: Mapping[str, int],
        shape: Shape,
        statistics: Statistics,
        draw: Callable[[np.ndarray], np.ndarray],
        categorical: tuple[str, ...] = (),
    ):
        """`draw` turns factors (n, k) into new images (n, c, h, w)."""
        (self._open_again, self.params), self._draw = opened_by, draw
        self._grid = FactorGrid(tuple(factors), tuple(factors.values()))
        self.factor_names, self.factor_sizes = self._grid.names, self._grid.sizes
        self.shape, self.categorical = shape, categorical
        self.mean, self.std = statistics

    def __reduce__(self) -> tuple[Callable[..., "DrawnImages"], tuple[Any, ...]]:
        return self._open_again, (self.params,)

    def __len__(self) -> int:
        return len(self._grid)

    def __repr__(self) -> str:
        return in_a_line(self)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """(n, c, h, w)"""
        return self._draw(self._grid.factors(indices))
