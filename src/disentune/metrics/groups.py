"""Rows of a table that share the value of one factor, for the scores that hold a factor fixed.

The published procedures draw factors and encode images each time. On a complete grid with deterministic codes, drawing
rows of one table gives the same distribution: a uniformly drawn row has a uniform value, and the rows that share the
value are all ways to vary the rest. On other tables the distribution is that of the table's rows.

A finite table has noise: by chance, rows that share a value of some factor may have closer codes. Learning this must
not be rewarded, so rows to fit on are never tested on. On separate rows, noise scores at chance level on average; the
deviation of a single table depends on its size, so tables that are too small are refused.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from disentune.errors import DataError

CHUNK = 2**16
"""Rows drawn at a time, to limit memory and fit in the processor's cache."""
EXCESS = 0.03
"""How far above chance noise may score."""
DEVIATIONS = 2
"""Standard deviations of the score of noise that must be within the excess; 1 table in 40 exceeds it."""
TRIES = 100
"""Number of splits of a tiny table to try until every factor can be drawn in both halves."""


class Sharing(NamedTuple):
    """Rows of a table, sorted by each factor; rows whose value is not drawn come last."""

    order: np.ndarray
    """(k, n): the rows."""
    first: np.ndarray
    """(k, n): position in the order where the rows with the same value begin."""
    size: np.ndarray
    """(k, n): how many of them there are."""
    shared: np.ndarray
    """(k,): how many rows have a value that is drawn, because another row has it too."""
    factors: np.ndarray
    """Factors that can be drawn: those with two or more values, one of which is shared by several rows."""


def drawable(factors: np.ndarray) -> np.ndarray:
    """The factors of labels (n, k) that can be drawn. Raises DataError if there is none."""
    shared = np.array([(np.bincount(labels) > 1).any() for labels in factors.T])
    found = np.flatnonzero(shared & (factors.max(axis=0) > 0))
    if not len(found):
        raise DataError(
            "no factor has two or more values with one of them in two or more rows "
            f"(factors: {factors.shape[1]}, rows: {len(factors)})"
        )
    return found


def sharing(factors: np.ndarray, rows: np.ndarray, drawable: np.ndarray, grid: bool = False) -> Sharing:
    """Groups of these rows (m,) of labels (n, k).

    On a complete grid, rows with the same value differ in every other factor. With `grid`, only values whose rows still
    differ are drawn; otherwise two factors would be fixed at once, and no code could tell which one is meant.
    """
    labels = np.ascontiguousarray(factors[rows].T)
    columns = [_sorted(labels, column, drawable if grid else drawable[:0]) for column in range(len(labels))]
    order, first, size, shared = (np.stack(arrays) for arrays in zip(*columns, strict=True))
    return Sharing(rows[order], first, size, shared, drawable)


def halves(factors: np.ndarray, drawable: np.ndarray, rng: np.random.Generator) -> tuple[Sharing, Sharing]:
    """All rows of labels (n, k), split at random: one half to fit on, the other to test on.

    Both halves can draw every factor that the table can. Raises DataError if the table is too small for that.
    """
    rows, grid = len(factors), is_complete(factors)
    for _ in range(TRIES):
        drawn = rng.permutation(rows)
        fit, test = (sharing(factors, half, drawable, grid) for half in (drawn[: rows // 2], drawn[rows // 2 :]))
        if fit.shared[drawable].all() and test.shared[drawable].all():
            return fit, test
    raise DataError(
        f"{rows} rows are too few to split: rows to fit on and rows to test on must each have two that share a "
        "value of every factor"
    )


def caution(factors: np.ndarray, needed: int) -> str:
    """Empty for a table with enough rows. A smaller sample raises DataError; for a complete grid there is no larger
    table, so its scores come with this caution."""
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
    """Labels (k, n) sorted by one factor: the order of the rows, start and size of the run of equal values at each
    position, all (n,), and how many rows have a value that is drawn."""
    own = labels[column]
    counts = np.bincount(own)
    alone = ((counts == 1) | _fixes_another(labels, column, others))[own]
    order = np.lexsort((own, alone))
    begins = np.diff(own[order], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(own)), 0))
    return order, first, counts[own[order]], len(own) - int(alone.sum())


def _fixes_another(labels: np.ndarray, column: int, others: np.ndarray) -> np.ndarray:
    """For each value of a factor, whether all rows that have it also agree in another factor."""
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
    """For each position in the order of its factor, a random row with the same value."""
    found: np.ndarray = sharing.order[factor, sharing.first[factor, place] + rng.integers(sharing.size[factor, place])]
    return found


def _others(sharing: Sharing, factor: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same without the row at that position: numbers from there on mean the next row."""
    drawn = sharing.first[factor, place] + rng.integers(sharing.size[factor, place] - 1)
    found: np.ndarray = sharing.order[factor, drawn + (drawn >= place)]
    return found


def _chunks(count: int, members: int) -> list[int]:
    step = max(1, CHUNK // members)
    return [min(step, count - start) for start in range(0, count, step)]
