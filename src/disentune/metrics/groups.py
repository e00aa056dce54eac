"""Rows of a table that share the value of one factor, for the scores that hold a factor fixed.

The published procedures draw factors and encode anew. On a complete grid with deterministic codes, drawing rows of
one table is the same law: a row drawn uniformly has a uniform value, and the rows that share it are all the ways to
vary the rest. On other tables the law is that of the table's own rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from disentune.errors import DataError

CHUNK = 2**16
"""Rows drawn at a time: what bounds memory, and fits a processor's cache."""


class Sharing(NamedTuple):
    """The rows of a table, sorted by each factor, those whose value no other row has last."""

    order: np.ndarray
    """(k, n): the rows."""
    first: np.ndarray
    """(k, n): where in the order the rows of the same value begin."""
    size: np.ndarray
    """(k, n): how many of them there are."""
    shared: np.ndarray
    """(k,): how many rows have a value that another row has too; only these are drawn."""
    factors: np.ndarray
    """Factors that can be drawn: of two values or more, one of them shared."""


def sharing(factors: np.ndarray) -> Sharing:
    """Of labels (n, k). Raises DataError when no factor can be drawn."""
    columns = [_sorted(labels) for labels in factors.T]
    order, first, size = (np.stack(arrays) for arrays in zip(*columns, strict=True))
    shared = (size > 1).sum(axis=1)
    drawable = np.flatnonzero((shared > 0) & (factors.max(axis=0) > 0))
    if not len(drawable):
        raise DataError(
            "a factor must have two values or more, and two rows that share one, "
            f"but none of {factors.shape[1]} does in {len(factors)} rows"
        )
    return Sharing(order, first, size, shared, drawable)


def _sorted(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order of the rows, beginning and size of the run that each place of it lies in; all (n,)."""
    size = np.bincount(labels)[labels]
    order = np.lexsort((labels, size == 1))
    begins = np.diff(labels[order], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(labels)), 0))
    return order, first, size[order]


def groups(
    sharing: Sharing, count: int, members: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`count` groups, a chunk at a time: the fixed factor (g,), and rows (g, members) that share one value of it.

    The value is that of a row drawn uniformly; the members are drawn with replacement.
    """
    for part in _chunks(count, members):
        factor = rng.choice(sharing.factors, size=(part, 1))
        place = rng.integers(sharing.shared[factor])
        yield factor[:, 0], _alike(sharing, factor, np.broadcast_to(place, (part, members)), rng)


def pairs(
    sharing: Sharing, count: int, members: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """`count` groups of pairs, a chunk at a time: the fixed factor (g,), rows (g, members) and their partners.

    Each pair shares a value of its own: that of its row, which is drawn uniformly.
    """
    for part in _chunks(count, members):
        factor = rng.choice(sharing.factors, size=(part, 1))
        place = rng.integers(sharing.shared[factor], size=(part, members))
        yield factor[:, 0], sharing.order[factor, place], _alike(sharing, factor, place, rng)


def _alike(sharing: Sharing, factor: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each place in the order of its factor, a row drawn from those of the same value."""
    return sharing.order[factor, sharing.first[factor, place] + rng.integers(sharing.size[factor, place])]


def _chunks(count: int, members: int) -> list[int]:
    step = max(1, CHUNK // members)
    return [min(step, count - start) for start in range(0, count, step)]
