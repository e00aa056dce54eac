"""Reconstruction loss: Kingma & Welling, ICLR 2014, Eq. 10: mean over images of the sum over pixels."""

import numpy as np
from pydantic import Field

from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to decode."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to decode")


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    assert table.reconstruction is not None
    rows = rows_drawn(len(table.codes), params.samples, rng)
    return {"reconstruction": float(np.mean(table.reconstruction(rows), dtype=np.float64))}


METRIC = Metric(
    name="reconstruction",
    params=Params,
    keys=("reconstruction",),
    score=score,
    fast={"samples": 2_000},
    needs=("reconstruction",),
    representations=("mean", "sampled"),
    best="min",
)
