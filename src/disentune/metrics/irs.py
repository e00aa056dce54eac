"""IRS, interventional robustness score: Suter et al., ICML 2019: how still a code stays with its factor."""

from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, quantile of the deviations (1 is the paper's largest one), and bins for factors."""

    samples: Count = Field(10_000, ge=1)
    quantile: float = Field(0.99, ge=0, le=1)
    bins: Count = Field(20, ge=2, le=10_000)


def deviation(codes: np.ndarray, labels: np.ndarray, quantile: float) -> np.ndarray:
    """Of codes (n, d) from their mean at each value of one factor (n,): mean over values of the quantile, (d,)."""
    values, counts = np.unique(labels, return_counts=True)
    rows = np.argsort(labels, kind="stable")
    groups = np.split(codes[rows], np.cumsum(counts)[:-1])
    return sum(np.quantile(np.abs(group - group.mean(axis=0)), quantile, axis=0) for group in groups) / len(values)


def robustness(codes: np.ndarray, labels: np.ndarray, reach: np.ndarray, quantile: float) -> np.ndarray:
    """1 - deviation at fixed values of a factor / reach (d,) of each code, (d, k). A code without reach has 0."""
    deviations = np.stack([deviation(codes, column, quantile) for column in labels.T], axis=1)
    moves = reach[:, None] > 0
    return np.where(moves, 1 - deviations / np.where(moves, reach[:, None], 1), 0)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Mean over codes of the most robust factor, its parent; codes weigh by their reach, the largest deviation.

    Factors of one value cannot be moved and are left out. With no other, or with constant codes alone, 0; a code that
    has no parent has -1.
    """
    rows = rows_drawn(len(table.codes), params.samples, rng)
    codes, values = table.codes[rows], table.values[rows]
    reach = np.where(np.ptp(codes, axis=0) > 0, np.abs(codes - codes.mean(axis=0)).max(axis=0), 0)
    matrix = robustness(codes, binned(values, params.bins), reach, params.quantile)
    varied = np.ptp(values, axis=0) > 0
    matrix = np.where(varied, matrix, 0)
    if not varied.any() or not reach.any():
        return {"irs": 0.0, "irs_matrix": matrix, "irs_parents": np.full(len(matrix), -1)}
    ranked = np.where(varied, matrix, -np.inf)
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
