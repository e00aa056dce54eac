"""Distances: Michlo et al., disent, 2022: correlation of distances between factors and between codes."""

from typing import Literal

import numpy as np
import scipy
from pydantic import Field

from disentune.metrics.lines import Pairs, lines_drawn, triples, unit_range
from disentune.plugin import Count, Frozen, Metric, Table, added

SIGNIFICANT = 16
"""Distances must differ within this many bits to be ordered: float32 sums have little more precision, and rounding
must not break ties."""
Ties = Literal["rounded", "exact"]
"""Distances are equal if they agree in these bits, or in all bits of single precision, as in disent."""


class Params(Frozen):
    """Number of lines per factor and of random groups of rows, of triples in each, and of rows in a group; and which
    distances count as ties: those that agree in 16 bits or, as in disent, in full single precision."""

    traversals: Count = Field(
        1024, ge=1, description="lines of the factor grid per factor, and number of random groups"
    )
    triples: Count = Field(64, ge=1, description="triples of rows in each line or group")
    group: Count = Field(32, ge=2, description="rows in each random group")
    ties: Ties = added(
        "rounded", description="distances are equal if they agree in 16 bits (rounded) or in 24, as in disent (exact)"
    )


# ---- which pairs


def pairs_by_factor(table: Table, rng: np.random.Generator, params: Params) -> list[Pairs]:
    """Pairs that differ only in one factor, for each factor with two or more values."""
    found = lines_drawn(table.factors, params.traversals, rng)
    return [triples(lines, params.triples, rng) for lines in found]


def pairs_anywhere(table: Table, rng: np.random.Generator, params: Params) -> Pairs:
    """Pairs of random rows; a table of few lines has more pairs on the same line than the whole grid would have."""
    groups = rng.integers(len(table.codes), size=(params.traversals, params.group))
    return triples(groups, params.triples, rng)


# ---- their distances, all (2, g, t)


def comparable_codes(table: Table, ties: Ties) -> np.ndarray:
    """The codes used for distances, rescaled so that the result does not depend on their scale, or as they are."""
    return unit_range(table.codes) if ties == "rounded" else table.codes.astype(np.float32)


def factor_distances(table: Table, pairs: Pairs) -> np.ndarray:
    """L1 over factors; along a line, the difference in its factor."""
    first, second = pairs.rows()
    found: np.ndarray = np.abs(table.values[first] - table.values[second]).sum(axis=-1)
    return found


def code_distances(codes: np.ndarray, pairs: Pairs, order: int = 2) -> np.ndarray:
    """L1 or L2."""
    first, second = pairs.rows()
    found: np.ndarray = np.linalg.norm(codes[first] - codes[second], order, axis=-1)
    return found


# ---- agreement of two sets of distances


def significant(distances: np.ndarray) -> np.ndarray:
    """Distances rounded to this many bits."""
    mantissa, exponent = np.frexp(distances)
    found: np.ndarray = np.ldexp(np.rint(np.ldexp(mantissa, SIGNIFICANT)), exponent - SIGNIFICANT)
    return found


def comparable(distances: np.ndarray, ties: Ties) -> np.ndarray:
    return significant(distances) if ties == "rounded" else distances.astype(np.float32)


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Linear correlation; 0 if one side is constant."""
    a, b = a.ravel() / (np.abs(a).max() or 1.0), b.ravel() / (np.abs(b).max() or 1.0)
    if np.ptp(significant(a)) == 0 or np.ptp(significant(b)) == 0:
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a / np.linalg.norm(a)) @ (b / np.linalg.norm(b)), -1, 1))


def spearman(a: np.ndarray, b: np.ndarray, ties: Ties = "rounded") -> float:
    """Rank correlation; ties share their mean rank."""
    return pearson(*(scipy.stats.rankdata(comparable(side, ties)) for side in (a, b)))


def same_order(a: np.ndarray, b: np.ndarray, ties: Ties = "rounded") -> float:
    """Share of triples in which the closer end is the same for both; a tie must be a tie in both."""
    first, second = (np.sign(one - other) for one, other in (comparable(a, ties), comparable(b, ties)))
    return float(np.mean(first == second))


def along_factor(
    table: Table, codes: np.ndarray, pairs: Pairs, ties: Ties = "rounded"
) -> tuple[float, float, float, float]:
    """Spearman, Pearson and order of codes' L2, and Spearman of their L1, with the factor's distances."""
    truth, l2, l1 = factor_distances(table, pairs), code_distances(codes, pairs), code_distances(codes, pairs, 1)
    ranks = spearman(truth, l2, ties), spearman(truth, l1, ties)
    return ranks[0], pearson(truth, l2), same_order(truth, l2, ties), ranks[1]


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Means over factors with two or more values, 0 if there is none; then the same for pairs of random rows."""
    codes, ties = comparable_codes(table, params.ties), params.ties
    found = [along_factor(table, codes, pairs, ties) for pairs in pairs_by_factor(table, rng, params)]
    anywhere = pairs_anywhere(table, rng, params)
    truth, l2 = factor_distances(table, anywhere), code_distances(codes, anywhere)
    numbers = [*np.mean(found or [(0.0,) * 4], axis=0), spearman(truth, l2, ties), pearson(truth, l2)]
    return dict(zip(METRIC.keys, numbers, strict=True))


METRIC = Metric(
    name="distances",
    params=Params,
    keys=(
        "distances",
        "distances_pearson",
        "distances_same",
        "distances_l1",
        "distances_global",
        "distances_global_pearson",
    ),
    score=score,
    fast={"traversals": 128},
    lines=True,
)
