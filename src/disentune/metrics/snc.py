"""SNC, single neuron classification: Mahon et al., 2023: accuracy of the one code that is matched to each factor."""

from typing import Any

import numpy as np
import scipy
from pydantic import Field

from disentune.metrics.information import counts, equal_counts, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")


def matched(joint: np.ndarray) -> float:
    """Share of rows whose bin is matched to their value, from counts (bins, values), for the best matching."""
    rows, columns = scipy.optimize.linear_sum_assignment(joint, maximize=True)
    return float(joint[rows, columns].sum() / joint.sum())


def in_bins(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Codes (n, d) in as many equally filled bins as the factor (n,) has values, (n, d)."""
    values = int(labels.max()) + 1
    return np.stack([equal_counts(code, values) for code in codes.T], axis=1)


def accuracies(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Accuracy (k,) of the code (n, d) matched to each factor (n, k), which has its values matched to the code's bins.

    A factor that no code is left for has 0.
    """
    bins = [in_bins(codes, labels) for labels in factors.T]
    information = np.hstack(
        [mutual_information(*pair) for pair in zip(bins, np.hsplit(factors, len(bins)), strict=True)]
    )
    found = np.zeros(len(bins))
    for code, factor in zip(*scipy.optimize.linear_sum_assignment(information, maximize=True), strict=True):
        found[factor] = matched(counts(bins[factor][:, [code]], factors[:, [factor]])[0, 0])
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Mean over factors; those with one value are left out; 0 if there are no others."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    codes, labels = table.codes[rows], table.factors[rows]
    varied, found = np.ptp(labels, axis=0) > 0, np.zeros(labels.shape[1])
    if varied.any():
        found[varied] = accuracies(codes, labels[:, varied])
    return {"snc": float(found[varied].mean()) if varied.any() else 0.0, "snc_factors": found}


METRIC = Metric(
    name="snc",
    params=Params,
    keys=("snc",),
    score=score,
    details=("snc_factors",),
    fast={"samples": 2_000},
)
