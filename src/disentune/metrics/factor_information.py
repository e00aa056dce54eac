"""Factor information: Chen et al., NeurIPS 2018, Eq. 6, first term: share of each factor that the best latent tells.

The share is the mutual information over the factor's entropy. Over training it shows which factor is learnt first.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned, entropies, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def shares(information: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    """Share of each factor's entropy (k,) that its best latent tells, from information (d, k); 0 if it is constant."""
    best: np.ndarray = information.max(axis=0)
    found: np.ndarray = np.divide(best, entropy, out=np.zeros_like(best), where=entropy > 0)
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    values = shares(mutual_information(binned(table.codes[rows], params.bins), labels), entropies(labels))
    names = np.array(table.names or [f"factor {number}" for number in range(len(values))])
    found = {"factor_information_values": values, "factor_information_names": names}
    return {"factor_information": float(values.mean()), **found}


METRIC = Metric(
    name="factor_information",
    params=Params,
    keys=("factor_information",),
    score=score,
    details=("factor_information_values", "factor_information_names"),
    fast={"samples": 2_000},
)
