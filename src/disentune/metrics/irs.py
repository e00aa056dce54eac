"""IRS, interventional robustness score: Suter et al., ICML 2019: how constant a code is while its factor is fixed."""

from typing import Any

import numpy as np
from pydantic import Field

from disentune.errors import DataError
from disentune.metrics.information import binned
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table, Whole, added


class Params(Frozen):
    """Rows of the table to use, quantile of the deviations (1 is the maximum, as in the paper), and bins for the
    factors in `ordered`, given by position from 0, which have ordered real values; all others keep their labels."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    quantile: float = Field(
        0.99, ge=0, le=1, description="quantile of the deviations; 1 is the maximum, as in the paper"
    )
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each factor in `ordered`")
    ordered: list[Whole] = added(
        [], description="positions, from 0, of the factors with ordered real values, which are binned"
    )


def labels_of(table: Table, rows: np.ndarray, params: Params) -> np.ndarray:
    """Labels (n, k) of rows (n,), or bins of ordered factors. The numbering of labels does not matter."""
    labels: np.ndarray = table.factors[rows]
    factors = table.factors.shape[1]
    for column in params.ordered:
        if not 0 <= column < factors:
            raise DataError(f"ordered: factor {column} does not exist; the table has factors 0 to {factors - 1}")
        labels[:, column] = binned(table.values[rows, column, None], params.bins)[:, 0]
    return labels


def can_be_judged(labels: np.ndarray) -> bool:
    """Whether a factor (n,) has two or more values, one of them in two or more rows."""
    counts = np.unique(labels, return_counts=True)[1]
    return len(counts) > 1 and bool((counts > 1).any())


def deviation(codes: np.ndarray, labels: np.ndarray, quantile: float) -> np.ndarray:
    """Deviations of codes (n, d) from their mean at each value of a factor (n,): mean over values of the quantile,
        (d,).

    A value that only one row has is left out.
    """
    counts = np.unique(labels, return_counts=True)[1]
    rows = np.argsort(labels, kind="stable")
    groups = [group for group in np.split(codes[rows], np.cumsum(counts)[:-1]) if len(group) > 1]
    spreads = (np.quantile(np.abs(group - group.mean(axis=0)), quantile, axis=0) for group in groups)
    found: np.ndarray = sum(spreads) / len(groups)
    return found


def robustness(codes: np.ndarray, labels: np.ndarray, reach: np.ndarray, quantile: float) -> np.ndarray:
    """1 - deviation at fixed values of a factor / reach (d,) of each code, (d, k). A code without reach has 0."""
    deviations = np.stack([deviation(codes, column, quantile) for column in labels.T], axis=1)
    moves = reach[:, None] > 0
    return np.where(moves, 1 - deviations / np.where(moves, reach[:, None], 1), 0)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Mean over codes of the score of the most robust factor, the parent; codes are weighted by reach, the largest
        deviation.

    Factors that cannot be judged are left out. 0 if there are no others, or if all codes are constant; -1 marks a code
    without a parent.
    """
    rows = rows_drawn(len(table.codes), params.samples, rng)
    codes, labels = table.codes[rows], labels_of(table, rows, params)
    reach = np.where(np.ptp(codes, axis=0) > 0, np.abs(codes - codes.mean(axis=0)).max(axis=0), 0)
    judged = np.array([can_be_judged(column) for column in labels.T])
    matrix = np.zeros((codes.shape[1], len(judged)))
    if not judged.any() or not reach.any():
        return {"irs": 0.0, "irs_matrix": matrix, "irs_parents": np.full(len(matrix), -1)}
    matrix[:, judged] = robustness(codes, labels[:, judged], reach, params.quantile)
    ranked = np.where(judged, matrix, -np.inf)
    parents = np.where(reach > 0, ranked.argmax(axis=1), -1)
    return {"irs": ranked.max(axis=1) @ (reach / reach.sum()), "irs_matrix": matrix, "irs_parents": parents}


METRIC = Metric(
    name="irs",
    params=Params,
    keys=("irs",),
    score=score,
    details=("irs_matrix", "irs_parents"),
    fast={"samples": 2_000},
)
