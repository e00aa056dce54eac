"""MIG: Chen et al., NeurIPS 2018, Eq. 6: mutual information gap, with codes in equal-width bins."""

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned, entropies, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def gap(information: np.ndarray, entropy: np.ndarray) -> float:
    """Mean over factors of (largest - second) / entropy.

    A single code is compared with 0. Factors with one value are left out; 0 if there are no others.
    """
    ranked = np.sort(np.vstack([np.zeros_like(entropy), information]), axis=0)
    varied = entropy > 0
    return float(np.mean((ranked[-1] - ranked[-2])[varied] / entropy[varied])) if varied.any() else 0.0


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    return {"mig": gap(mutual_information(binned(table.codes[rows], params.bins), labels), entropies(labels))}


METRIC = Metric(name="mig", params=Params, keys=("mig",), score=score, fast={"samples": 2_000})
