"""The factors of images: a grid, where every combination has one index in row-major order and the last factor varies
fastest; or a table with one row per image, which may lack combinations, repeat them, or have no factors."""

import math
from dataclasses import dataclass

import numpy as np

from disentune.errors import DataError
from disentune.plugin import FactorImages


def in_a_line(data: FactorImages) -> str:
    """An opened data set for a notebook: `DrawnImages(64 images (3, 8, 8); x 8, y 8)`."""
    sizes = zip(data.factor_names, data.factor_sizes, strict=True)
    factors = ", ".join(f"{name} {size}" for name, size in sizes) or "no factors"
    shape = ", ".join(map(str, data.shape))
    return f"{type(data).__name__}({len(data):,} images ({shape}); {factors})"


def spread_evenly(factors: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Factors (n, k) -> float32 (n, k): the values of each factor spread evenly over [-1, 1]; 0 where it has one."""
    last = np.array(sizes) - 1
    found: np.ndarray = (2 * factors / np.maximum(last, 1) - (last > 0)).astype(np.float32)
    return found


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
        """Indices (n,) as int64; raises DataError if one is outside the grid."""
        return checked_indices(indices, len(self))

    def factors(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) -> factors (n, k)."""
        return np.stack(np.unravel_index(self.checked(indices), self.sizes), axis=-1)

    def evenly(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) -> float32 (n, k): see `spread_evenly`."""
        return spread_evenly(self.factors(indices), self.sizes)

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
        """The line of each image (m,) along one factor, (m, v): the images that differ from it only in this factor, in
        the order of `values`, or of all values."""
        stride, size = math.prod(self.sizes[factor + 1 :]), self.sizes[factor]
        indices, values = self.checked(indices), np.arange(size) if values is None else _integers("values", values)
        _refuse_outside(f"factor '{self.names[factor]}'", values, size)
        found: np.ndarray = (indices - indices // stride % size * stride)[:, None] + stride * values
        return found

    def every_line(self, factor: int) -> np.ndarray:
        """All lines along one factor, (len / size, size)."""
        return np.moveaxis(np.arange(len(self)).reshape(self.sizes), factor, -1).reshape(-1, self.sizes[factor])


@dataclass(frozen=True, eq=False)
class FactorTable:
    """Names and sizes of the k factors, and the values of each image."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    rows: np.ndarray
    """int64 (n, k), values from 0; k may be 0."""

    def __len__(self) -> int:
        return len(self.rows)

    def factors(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) -> factors (n, k)."""
        found: np.ndarray = self.rows[checked_indices(indices, len(self))]
        return found

    def evenly(self, indices: np.ndarray) -> np.ndarray:
        """Indices (n,) -> float32 (n, k): see `spread_evenly`."""
        return spread_evenly(self.factors(indices), self.sizes)


def factors_of(data: FactorImages) -> FactorGrid | FactorTable:
    """What is known of the factors of an opened data set."""
    rows = getattr(data, "factor_rows", None)
    if rows is None and data.factor_sizes:
        return FactorGrid(data.factor_names, data.factor_sizes)
    rows = np.zeros((len(data), 0), np.int64) if rows is None else rows
    return FactorTable(data.factor_names, data.factor_sizes, rows)


def full_grid(known: FactorGrid | FactorTable, what: str) -> FactorGrid:
    """DataError where images do not fill the grid; `what` is what needs it."""
    if isinstance(known, FactorGrid):
        return known
    lack = "the images have no known factors" if not known.names else "combinations are missing or repeated"
    raise DataError(f"{what} needs an image for each combination of factors, but {lack}")


def checked_indices(indices: np.ndarray, count: int) -> np.ndarray:
    """Indices (n,) as int64; DataError when one is none of so many images."""
    indices = _integers("indices", indices)
    if indices.ndim != 1:
        raise DataError(f"indices must be (n,), but are {indices.shape}")
    _refuse_outside("index", indices, count)
    return indices


def _integers(what: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.size and not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"{what} must be whole numbers, but are {values.dtype}")
    return values.astype(np.int64)


def _refuse_outside(what: str, values: np.ndarray, size: int) -> None:
    outside = values[(values < 0) | (values >= size)]
    if outside.size:
        raise DataError(f"{what} must be 0 to {size - 1}, got {outside[0]}")
