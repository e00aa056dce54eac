"""DCIMIG, or 3CharM: Sepliarskaia et al., 2019: each code counts only for its best factor, by its lead over others."""

import numpy as np
from pydantic import Field

from disentune.metrics.information import binned, entropies, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def gaps(information: np.ndarray) -> np.ndarray:
    """For each factor the largest lead of a code that knows most about it, (k,), from (d, k); 0 if no code does.

    A code's lead is its largest - second information; a single factor is compared with 0.
    """
    best = information.argmax(axis=1)
    ranked = np.sort(np.pad(information, ((0, 0), (1, 0))), axis=1)
    found = np.zeros(information.shape[1])
    np.maximum.at(found, best, ranked[:, -1] - ranked[:, -2])
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Sum over factors of the largest lead / sum of their entropies; 0 if all factors have one value."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    whole = entropies(labels).sum()
    leads = gaps(mutual_information(binned(table.codes[rows], params.bins), labels))
    return {"dcimig": float(leads.sum() / whole) if whole > 0 else 0.0}


METRIC = Metric(name="dcimig", params=Params, keys=("dcimig",), score=score, fast={"samples": 2_000})
