"""Modularity: Ridgeway & Mozer, NeurIPS 2018: whether each code has information about only one factor."""

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table

ROUNDING = 1e-12
"""Less information than this counts as none: one row of ten thousand in another bin already gives 1e-9."""


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def modularity(information: np.ndarray) -> float:
    """Mean over codes of 1 - (rest of the squared information) / (largest square, for each other factor); of (d, k).

    A code without information counts as 0; with a single factor, every other code counts as 1.
    """
    squares = np.where(information > ROUNDING, information, 0) ** 2
    largest = squares.max(axis=1)
    others = max(1, information.shape[1] - 1)
    excess = (squares.sum(axis=1) - largest) / (others * np.where(largest > 0, largest, 1))
    return float(np.mean(np.where(largest > 0, 1 - excess, 0)))


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Factors with one value are left out; 0 if there are no others."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    labels = labels[:, np.ptp(labels, axis=0) > 0]
    if not labels.shape[1]:
        return {"modularity": 0.0}
    return {"modularity": modularity(mutual_information(binned(table.codes[rows], params.bins), labels))}


METRIC = Metric(name="modularity", params=Params, keys=("modularity",), score=score, fast={"samples": 2_000})
