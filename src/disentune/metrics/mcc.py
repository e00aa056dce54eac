"""MCC: Klindt et al., ICLR 2021 (SlowVAE): mean correlation coefficient of matched codes and factors."""

from typing import Literal

import numpy as np
import scipy
from pydantic import Field

from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and whether correlations are of ranks or of values."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    correlation: Literal["spearman", "pearson"] = Field(
        "spearman", description="spearman: of ranks; pearson: of values"
    )


def correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each column of (n, d) with each of (n, k), (d, k); 0 for constant columns."""
    found: np.ndarray = _unit(first).T @ _unit(second)
    return found


def _unit(columns: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and length 1; constant columns become 0."""
    span = np.ptp(columns, axis=0)
    scaled = (columns - columns[0]) / np.where(span > 0, span, 1)  # so that no square overflows or vanishes
    centred = scaled - scaled.mean(axis=0)
    found: np.ndarray = centred / np.where(span > 0, np.linalg.norm(centred, axis=0), 1)
    return found


def matched(strength: np.ndarray, factors: int) -> float:
    """Mean over the first `factors` columns of (d, k), with each row matched to one column to maximise the sum.

    A factor without a matching row counts as 0.
    """
    rows, columns = scipy.optimize.linear_sum_assignment(strength, maximize=True)
    return float(strength[rows, columns][columns < factors].sum() / factors)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Codes beyond the number of factors are matched with columns of noise, as published.

    Factors with one value are left out; 0 if there are no others.
    """
    rows = rows_drawn(len(table.codes), params.samples, rng)
    codes, factors = table.codes[rows], table.values[rows]
    factors = factors[:, np.ptp(factors, axis=0) > 0]
    if not factors.shape[1]:
        return {"mcc": 0.0}
    noise = rng.standard_normal((len(rows), max(0, codes.shape[1] - factors.shape[1])))
    columns = np.hstack([factors, noise])
    if params.correlation == "spearman":
        codes, columns = (scipy.stats.rankdata(one, axis=0) for one in (codes, columns))
    return {"mcc": matched(np.abs(correlations(codes, columns)), factors.shape[1])}


METRIC = Metric(name="mcc", params=Params, keys=("mcc",), score=score, fast={"samples": 2_000})
