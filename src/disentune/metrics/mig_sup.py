"""MIG-sup: Li et al., ICLR 2020: gap between the two factors that a code knows most about; MIG seen from the codes."""

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
    """Mean over codes of largest - second share, of (d, k), where a share is information / entropy of the factor (k,).

    A code without information counts as 0; a single factor is compared with 0. Factors with one value are left out; 0
    if there are no others.
    """
    varied = entropy > 0
    shares = information[:, varied] / entropy[varied]
    ranked = np.sort(np.pad(shares, ((0, 0), (2, 0))), axis=1)
    return float(np.mean(ranked[:, -1] - ranked[:, -2]))


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    return {"mig_sup": gap(mutual_information(binned(table.codes[rows], params.bins), labels), entropies(labels))}


METRIC = Metric(name="mig_sup", params=Params, keys=("mig_sup",), score=score, fast={"samples": 2_000})
