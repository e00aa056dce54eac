"""FoS, distance to factorised support: Roth et al., ICLR 2023 (HFS): whether every combination of two codes occurs.

For each pair of codes, the squared Hausdorff distance from the product of their values to the values that occur
together. `fos` is the sum over pairs, as published, and depends on scale and number of codes; `fos_normalised` is the
mean over pairs of codes with variance 1. A maximum grows with the rows of a batch and follows outliers, so compare
scores of equal batches only.
"""

from itertools import combinations

import numpy as np
from pydantic import Field

from disentune.metrics.table import rows_drawn
from disentune.metrics.udr import standardised
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and rows of each batch; rows that fill no batch are left out."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    batch: Count = Field(128, ge=2, description="rows whose products are compared; a smaller table is one batch")


def distances(batches: np.ndarray) -> np.ndarray:
    """Squared distance of each pair of columns, (batches, pairs), from codes (batches, rows, d)."""
    from disentune.metrics import hausdorff

    columns = np.ascontiguousarray(batches.transpose(0, 2, 1))
    pairs = list(combinations(range(columns.shape[1]), 2))
    found = [[hausdorff.distance(codes[one], codes[other]) for one, other in pairs] for codes in columns]
    return np.array(found)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Means over batches; 0 for a single code."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    if table.codes.shape[1] == 1:
        return {"fos": 0.0, "fos_normalised": 0.0}
    size = min(params.batch, len(rows))
    batched = rows[: len(rows) // size * size].reshape(-1, size)
    unit = standardised(table.codes[rows])[: batched.size].reshape(*batched.shape, -1)
    return {
        "fos": float(distances(table.codes[batched]).sum(axis=1).mean()),
        "fos_normalised": float(distances(unit).mean()),
    }


METRIC = Metric(
    name="fos",
    params=Params,
    keys=("fos", "fos_normalised"),
    score=score,
    fast={"samples": 2_000},
    needs=(),
    best="min",
)
