"""Whole lines of the factor grid in a table, which are rows that differ only in one factor; and triples within them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from disentune.errors import DataError
from disentune.metrics.table import rows_drawn

ROOM = 2**31
"""Keys below this can be multiplied by the size of another factor without overflow."""


def lines_drawn(factors: np.ndarray, wanted: int, rng: np.random.Generator) -> list[np.ndarray]:
    """For each factor of two or more values: up to `wanted` distinct lines, rows (lines, size) in order of value."""
    varied = np.flatnonzero(factors.any(axis=0))
    found = [complete_lines(factors, column) for column in map(int, varied)]
    return [lines[rows_drawn(len(lines), wanted, rng)] for lines in found]


def complete_lines(factors: np.ndarray, column: int) -> np.ndarray:
    """Rows (lines, size) that agree in all other factors and have every value of this one; the first of duplicates."""
    size = int(factors[:, column].max()) + 1
    cells, rows = np.unique(line_keys(factors, column) * size + factors[:, column], return_index=True)
    starts, counts = np.unique(cells // size, return_index=True, return_counts=True)[1:]
    starts = starts[counts == size]
    if not len(starts):
        raise DataError(
            f"the table must have images that differ only in factor column {column} and have all of its {size} values, "
            "but it has no such line; use a table of the whole grid, which has all lines"
        )
    found: np.ndarray = rows[starts[:, None] + np.arange(size)]
    return found


def line_keys(factors: np.ndarray, column: int) -> np.ndarray:
    """A number that identifies the combination of the other factors, (n,)."""
    keys, bound = np.zeros(len(factors), np.int64), 1
    for labels in np.delete(factors, column, axis=1).T:
        size = int(labels.max()) + 1
        keys, bound = keys * size + labels, bound * size
        if bound > ROOM:
            keys = np.unique(keys, return_inverse=True)[1]
            bound = len(keys)
    return keys


def unit_range(codes: np.ndarray) -> np.ndarray:
    """Codes divided by the largest one: the shape of a line does not depend on scale, but squares of tiny codes
    underflow."""
    return codes / (np.abs(codes).max() or 1.0)


Mean = Literal["arithmetic", "geometric"]
"""Mean over factors; disent's is geometric."""


def over_factors(found: Sequence[Sequence[float]], mean: Mean) -> np.ndarray:
    """Mean over factors of numbers >= 0, (factors, numbers) -> (numbers,)."""
    if mean == "arithmetic":
        arithmetic: np.ndarray = np.mean(found, axis=0)
        return arithmetic
    geometric: np.ndarray = np.prod(np.asarray(found) ** (1 / len(found)), axis=0)
    return geometric


# ---- triples


@dataclass(frozen=True)
class Pairs:
    """Pairs within groups of rows: (anchor, positive) and (anchor, negative) of t triples in each of g groups."""

    groups: np.ndarray
    """(g, size) rows."""
    first: np.ndarray
    """(2, g, t) positions in the group."""
    second: np.ndarray
    """(2, g, t)."""

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """First and second row of each pair, (2, g, t)."""
        group = np.arange(len(self.groups))[:, None]
        return self.groups[group, self.first], self.groups[group, self.second]


def triples(groups: np.ndarray, wanted: int, rng: np.random.Generator) -> Pairs:
    """`wanted` random triples in each group; a member may occur twice in a triple."""
    anchor, positive, negative = rng.integers(groups.shape[1], size=(3, len(groups), wanted))
    return Pairs(groups, np.stack([anchor, anchor]), np.stack([positive, negative]))
