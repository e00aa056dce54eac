"""The table that metrics use: checked once, then sampled by each metric."""

from collections.abc import Callable

import numpy as np

from disentune.errors import DataError
from disentune.plugin import Table

LARGEST = float(np.finfo(np.float32).max)
"""Trees split in float32, so larger codes cannot be used by every metric."""


def table_of(
    codes: np.ndarray,
    factors: np.ndarray | None = None,
    logvars: np.ndarray | None = None,
    images: np.ndarray | None = None,
) -> Table:
    """A user's arrays as a table: codes and logvars (n, d), whole-numbered factors (n, k), images (n, ...).

    Codes of vectors (n, d, m) are reduced to their first principal components. The distance between two images is their
    mean squared difference.
    """
    if np.ndim(codes) == 3:
        if logvars is not None:
            raise DataError(f"logvars need codes of numbers (n, d), but the shape of codes is {np.shape(codes)}")
        codes = first_components(codes)
    numbers = _numbers("codes", _rectangle("codes", codes))
    values = np.zeros((len(numbers), 0), np.int64) if factors is None else _whole(factors, len(numbers))
    return Table(
        codes=numbers,
        factors=_labels(values),
        values=values.astype(np.float64),
        logvars=None if logvars is None else _logvars(logvars, numbers.shape),
        distance=None if images is None else _image_distance(images, len(numbers)),
    )


def _rectangle(name: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(f"{name} must have at least one row and one column, but its shape is {values.shape}")
    return values


def first_components(vectors: np.ndarray) -> np.ndarray:
    """Codes of vectors (n, d, m), such as tokens, as numbers (n, d): each vector's deviation from its mean along its
    first principal component, as in Yang et al., NeurIPS 2022 (VCT).

    A component's entry of the largest size is positive, because its sign is arbitrary. Constant vectors become 0.
    """
    vectors = np.asarray(vectors)
    if 0 in vectors.shape:
        raise DataError(f"codes must have no empty axis, but their shape is {vectors.shape}")
    numbers = _numbers("codes", vectors)
    return np.stack([_first_component(column) for column in numbers.transpose(1, 0, 2)], axis=1)


def _first_component(vectors: np.ndarray) -> np.ndarray:
    """Of (n, m), (n,)."""
    centred = vectors - vectors.mean(axis=0)
    scale = np.abs(centred).max() or 1.0  # squares of the smallest numbers would vanish
    unit = centred / scale
    direction = np.linalg.eigh(unit.T @ unit)[1][:, -1]
    found: np.ndarray = unit @ direction * (np.sign(direction[np.abs(direction).argmax()]) * scale)
    return found


def _assert_rows(name: str, values: np.ndarray, rows: int) -> None:
    if len(values) != rows:
        raise DataError(f"codes and {name} must have the same number of rows, but have {rows} and {len(values)}")


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    if not np.issubdtype(values.dtype, np.number) or np.issubdtype(values.dtype, np.complexfloating):
        raise DataError(f"{name} must be numbers, but are {values.dtype}")
    values = values.astype(np.float64, order="C")
    wrong = np.argwhere(~(np.abs(values) <= LARGEST))  # also true of NaN
    if len(wrong):
        row, *column = wrong[0]
        place = ", ".join(map(str, column))
        raise DataError(f"{name} must be finite, but row {row}, column {place} is {values[tuple(wrong[0])]}")
    return values


def _whole(factors: np.ndarray, rows: int) -> np.ndarray:
    factors = _rectangle("factors", factors)
    _assert_rows("factors", factors, rows)
    if not np.issubdtype(factors.dtype, np.integer) and factors.dtype != bool:
        raise DataError(
            f"factors must be whole numbers, one label per value, but are {factors.dtype}; cast labels with "
            ".astype(int), and put continuous values into bins with np.digitize"
        )
    return factors


def _labels(values: np.ndarray) -> np.ndarray:
    labels = [np.unique(column, return_inverse=True)[1] for column in values.T]
    return np.stack(labels, axis=1) if labels else np.zeros(values.shape, np.int64)


def _logvars(logvars: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    logvars = _rectangle("logvars", logvars)
    if logvars.shape != shape:
        raise DataError(f"logvars must have the shape of codes, {shape}, but have {logvars.shape}")
    return _numbers("logvars", logvars)


def _image_distance(images: np.ndarray, rows: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    images = np.asarray(images)
    _assert_rows("images", images, rows)
    pixels = images.reshape(rows, -1)

    def distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        differences = pixels[first].astype(np.float64) - pixels[second]
        found: np.ndarray = np.mean(differences**2, axis=1)
        return found

    return distance


# ---- drawing rows


def rows_drawn(rows: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct rows in random order: `wanted` of them, or all if there are fewer."""
    return rng.permutation(rows)[:wanted]


def split(rows: int, train: int, test: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows to fit and to test on; a table with fewer than both is split 2 : 1."""
    if rows < 3:
        raise DataError(f"a table to fit and to test on must have at least 3 rows, but it has {rows}")
    enough = rows >= train + test
    train = train if enough else 2 * rows // 3
    drawn = rows_drawn(rows, train + test, rng)
    return drawn[:train], drawn[train:]


def telling(factors: np.ndarray) -> np.ndarray:
    """Factors with two or more values, (k,); all factors if there is none, so that each has its trivial score."""
    varied = factors.max(axis=0) > 0
    return varied if varied.any() else np.ones_like(varied)
