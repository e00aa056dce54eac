"""The table that metrics score: codes (n, d) beside the factors (n, k) of the same images."""

import numpy as np

from disentune.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
"""Trees split in float32, so larger codes have no meaning for every metric."""


def checked(codes: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes as float64; factors as int64 labels that count from 0, in the order of their values."""
    codes, factors = np.asarray(codes), np.asarray(factors)
    for name, table in (("codes", codes), ("factors", factors)):
        if table.ndim != 2 or 0 in table.shape:
            raise DataError(f"{name} must be a table of rows and columns, but its shape is {table.shape}")
    if len(codes) != len(factors):
        raise DataError(f"codes and factors must have equal rows, but have {len(codes)} and {len(factors)}")
    return _numbers(codes), _labels(factors)


def _numbers(codes: np.ndarray) -> np.ndarray:
    if not np.issubdtype(codes.dtype, np.number) or np.issubdtype(codes.dtype, np.complexfloating):
        raise DataError(f"codes must be numbers, but are {codes.dtype}")
    codes = codes.astype(np.float64)
    wrong = np.argwhere(~(np.abs(codes) <= LARGEST))  # also true of NaN
    if len(wrong):
        row, column = wrong[0]
        raise DataError(f"codes must be finite, but row {row}, column {column} is {codes[row, column]}")
    return codes


def _labels(factors: np.ndarray) -> np.ndarray:
    if not np.issubdtype(factors.dtype, np.integer):
        raise DataError(f"factors must be whole numbers, but are {factors.dtype}")
    return np.stack([np.unique(column, return_inverse=True)[1] for column in factors.T], axis=1)


def rows_drawn(rows: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct rows in random order: `wanted` of them, or all when there are fewer."""
    return rng.permutation(rows)[:wanted]
