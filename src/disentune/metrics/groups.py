"""Rows of a table that share the value of one factor, for the scores that hold a factor fixed.

The published procedures draw factors and encode anew. On a complete grid with deterministic codes, drawing rows of
one table is the same law: a row drawn uniformly has a uniform value, and the rows that share it are all the ways to
vary the rest. On other tables the law is that of the table's own rows.

A table has its own noise: by chance, rows that share a value of some factor have codes that are closer. What is learned
of that must not be scored, so rows to fit on are never tested on. On rows of its own, noise scores chance on average;
how far a single table is from that depends on its size, and too small a table is refused.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from disentune.errors import DataError

CHUNK = 2**16
"""Rows drawn at a time: what bounds memory, and fits a processor's cache."""
EXCESS = 0.03
"""How far above chance noise may score."""
DEVIATIONS = 2
"""Standard deviations of noise's score between tables that must lie within the excess: 1 table in 40 has more."""
TRIES = 100
"""Divisions of a tiny table that are looked at for one that leaves every factor in both halves."""


class Sharing(NamedTuple):
    """Rows of a table, sorted by each factor, those whose value is not drawn last."""

    order: np.ndarray
    """(k, n): the rows."""
    first: np.ndarray
    """(k, n): where in the order the rows of the same value begin."""
    size: np.ndarray
    """(k, n): how many of them there are."""
    shared: np.ndarray
    """(k,): how many rows have a value that is drawn, because another row has it too."""
    factors: np.ndarray
    """Factors that can be drawn: of two values or more, one of them shared."""


def drawable(factors: np.ndarray) -> np.ndarray:
    """Of labels (n, k) the factors that can be drawn. Raises DataError when there is none."""
    shared = np.array([(np.bincount(labels) > 1).any() for labels in factors.T])
    found = np.flatnonzero(shared & (factors.max(axis=0) > 0))
    if not len(found):
        raise DataError(
            "a factor must have two values or more, and two rows that share one, "
            f"but none of {factors.shape[1]} does in {len(factors)} rows"
        )
    return found


def sharing(factors: np.ndarray, rows: np.ndarray, drawable: np.ndarray, grid: bool = False) -> Sharing:
    """Of these rows (m,) of labels (n, k).

    On a complete grid, rows of one value differ in every other factor. With `grid` only values whose rows still differ
    are drawn: else two factors would be fixed at once, and no code could tell which one is meant.
    """
    labels = np.ascontiguousarray(factors[rows].T)
    columns = [_sorted(labels, column, drawable if grid else drawable[:0]) for column in range(len(labels))]
    order, first, size, shared = (np.stack(arrays) for arrays in zip(*columns, strict=True))
    return Sharing(rows[order], first, size, shared, drawable)


def halves(factors: np.ndarray, drawable: np.ndarray, rng: np.random.Generator) -> tuple[Sharing, Sharing]:
    """All rows of labels (n, k), divided at random: one half to fit on, the other to test on.

    Both halves can draw what the table can. DataError when it is too small for that.
    """
    rows, grid = len(factors), is_complete(factors)
    for _ in range(TRIES):
        drawn = rng.permutation(rows)
        fit, test = (sharing(factors, half, drawable, grid) for half in (drawn[: rows // 2], drawn[rows // 2 :]))
        if fit.shared[drawable].all() and test.shared[drawable].all():
            return fit, test
    raise DataError(
        f"{rows} rows are too few to divide: those to fit on and those to test on must each have two that share a "
        "value of every factor"
    )


def caution(factors: np.ndarray, needed: int) -> str:
    """Nothing for a table of so many rows or more. A smaller sample is refused with DataError; of a complete grid
    there is no larger table, so its scores come with this text."""
    rows = len(factors)
    if rows >= needed:
        return ""
    text = f"with fewer than {needed:,} rows noise may score more than {EXCESS} above chance"
    if not is_complete(factors):
        raise DataError(f"{text}, and the table has {rows:,}; score a table of {needed:,} rows or more")
    return f"{text}, and the whole grid has {rows:,}"


def is_complete(factors: np.ndarray) -> bool:
    """Whether labels (n, k) are every combination of values, each once."""
    sizes, rows = tuple((factors.max(axis=0) + 1).tolist()), len(factors)
    return math.prod(sizes) == rows and len(np.unique(np.ravel_multi_index(tuple(factors.T), sizes))) == rows


def _sorted(labels: np.ndarray, column: int, others: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Of labels (k, n), by one factor: order of the rows, beginning and size of the run that each place of it lies in,
    all (n,), and how many rows have a value that is drawn."""
    own = labels[column]
    counts = np.bincount(own)
    alone = ((counts == 1) | _fixes_another(labels, column, others))[own]
    order = np.lexsort((own, alone))
    begins = np.diff(own[order], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(own)), 0))
    return order, first, counts[own[order]], len(own) - int(alone.sum())


def _fixes_another(labels: np.ndarray, column: int, others: np.ndarray) -> np.ndarray:
    """Of each value of a factor, whether all rows that have it agree in one of the others too."""
    own = labels[column]
    found = np.zeros(own.max() + 1, bool)
    for other in others[others != column]:
        seen = np.zeros((len(found), labels[other].max() + 1), bool)
        seen[own, labels[other]] = True
        found |= seen.sum(axis=1) == 1
    return found


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

    Each pair shares a value of its own: that of its row, which is drawn uniformly. No row is its own partner.
    """
    for part in _chunks(count, members):
        factor = rng.choice(sharing.factors, size=(part, 1))
        place = rng.integers(sharing.shared[factor], size=(part, members))
        yield factor[:, 0], sharing.order[factor, place], _others(sharing, factor, place, rng)


def _alike(sharing: Sharing, factor: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each place in the order of its factor, a row drawn from those of the same value."""
    found: np.ndarray = sharing.order[factor, sharing.first[factor, place] + rng.integers(sharing.size[factor, place])]
    return found


def _others(sharing: Sharing, factor: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same without the row at that place: a number from there on stands for the next row."""
    drawn = sharing.first[factor, place] + rng.integers(sharing.size[factor, place] - 1)
    found: np.ndarray = sharing.order[factor, drawn + (drawn >= place)]
    return found


def _chunks(count: int, members: int) -> list[int]:
    step = max(1, CHUNK // members)
    return [min(step, count - start) for start in range(0, count, step)]
