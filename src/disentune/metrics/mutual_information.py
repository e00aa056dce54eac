"""Mutual information between codes: Locatello et al., ICML 2019: mean over pairs of codes in equal-width bins."""

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def between_codes(bins: np.ndarray) -> float:
    """Mean over all pairs of two columns of (n, d), in nats; 0 for a single code."""
    later = [mutual_information(bins[:, code + 1 :], bins[:, [code]]) for code in range(bins.shape[1] - 1)]
    return float(np.mean(np.concatenate(later))) if later else 0.0


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    rows = rows_drawn(len(table.codes), params.samples, rng)
    return {"mutual_information": between_codes(binned(table.codes[rows], params.bins))}


METRIC = Metric(
    name="mutual_information",
    params=Params,
    keys=("mutual_information",),
    score=score,
    fast={"samples": 2_000},
    needs=(),
    representations=("mean", "sampled"),
    best="min",
)
