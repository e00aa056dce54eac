"""The grid of factors: every combination has one index, row-major, the last factor fastest."""

import math
from dataclasses import dataclass

import numpy as np

from disentune.errors import DataError


@dataclass(frozen=True)
class FactorGrid:
    """Names and sizes of the k factors."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or len(self.names) != len(self.sizes) or min(self.sizes) < 1:
            raise DataError(f"a grid needs one size >= 1 for each factor; got {self.names} and {self.sizes}")
        if math.prod(self.sizes) >= 2**63:
            raise DataError(f"a grid must have fewer than 2**63 combinations; sizes {self.sizes} have more")

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def checked(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) as int64; DataError when one lies outside the grid."""
        indices = _integers("indices", indices)
        if indices.ndim != 1:
            raise DataError(f"indices must be (n,), but are {indices.shape}")
        _refuse_outside("index", indices, len(self))
        return indices

    def factors(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) -> factors (n, k)."""
        return np.stack(np.unravel_index(self.checked(indices), self.sizes), axis=-1)

    def index(self, factors: np.ndarray) -> np.ndarray:
        """Factors (n, k) -> indices (n,)."""
        factors = _integers("factors", factors)
        if factors.ndim != 2 or factors.shape[1] != len(self.sizes):
            raise DataError(f"factors must be (n, {len(self.sizes)}), but are {factors.shape}")
        for name, size, column in zip(self.names, self.sizes, factors.T, strict=True):
            _refuse_outside(f"factor '{name}'", column, size)
        found: np.ndarray = np.ravel_multi_index(tuple(factors.T), self.sizes)
        return found

    def around(self, indices: np.ndarray, factor: int, values: np.ndarray | None = None) -> np.ndarray:
        """The line of each image (m,) along one factor, (m, v): the images that differ from it in this factor alone,
        in the order of `values`, or of all there are."""
        stride, size = math.prod(self.sizes[factor + 1 :]), self.sizes[factor]
        indices, values = self.checked(indices), np.arange(size) if values is None else _integers("values", values)
        _refuse_outside(f"factor '{self.names[factor]}'", values, size)
        found: np.ndarray = (indices - indices // stride % size * stride)[:, None] + stride * values
        return found

    def every_line(self, factor: int) -> np.ndarray:
        """All lines along one factor, (len / size, size)."""
        return np.moveaxis(np.arange(len(self)).reshape(self.sizes), factor, -1).reshape(-1, self.sizes[factor])


def _integers(what: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.size and not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"{what} must be whole numbers, but are {values.dtype}")
    return values.astype(np.int64)


def _refuse_outside(what: str, values: np.ndarray, size: int) -> None:
    outside = values[(values < 0) | (values >= size)]
    if outside.size:
        raise DataError(f"{what} must be 0 to {size - 1}, but {outside[0]} came")
