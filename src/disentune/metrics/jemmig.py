"""JEMMIG, joint entropy minus mutual information gap: Do & Tran, ICLR 2020: MIG that also punishes superfluous detail.

The normalised form, in which large is good: 1 - (H(factor, code) - I(best code) + I(second code)) / (H(factor) +
log(bins)), so it depends on the number of bins.
"""

from typing import Any

import numpy as np
import scipy
from pydantic import Field

from disentune.metrics.information import binned, counts, entropies, mutual_information
from disentune.metrics.table import rows_drawn, telling
from disentune.plugin import Count, Frozen, Metric, Table

ROUNDING = 1e-12
"""Less information than this counts as none."""


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code; Carbonneau et al. (2022) use 10")


def joint_entropies(bins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Entropy of each pair of a code (n, d) and a factor (n, k), (d, k), in nats."""
    shares = counts(bins, labels) / len(bins)
    found: np.ndarray = -scipy.special.xlogy(shares, shares).sum(axis=(2, 3))
    return found


def costs(information: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """H(factor, best code) - I(factor, best code) + I(factor, second code), (k,), from (d, k); small is good.

    A single code is compared with 0.
    """
    ranked = np.sort(np.pad(information, ((1, 0), (0, 0))), axis=0)
    best = information.argmax(axis=0)
    found: np.ndarray = joint[best, np.arange(joint.shape[1])] - ranked[-1] + ranked[-2]
    return found


def normalised(costs: np.ndarray, entropy: np.ndarray, bins: int) -> np.ndarray:
    """1 - cost / its upper bound, (k,): 1 is perfect, 0 is the worst that a code in so many bins can be."""
    found: np.ndarray = 1 - costs / (entropy + np.log(bins))
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Mean over factors; those with one value are left out. A factor of which no code knows anything counts as 0.

    In the published form it has log(bins) / (H(factor) + log(bins)), because constant codes have no detail to punish.
    """
    rows = rows_drawn(len(table.codes), params.samples, rng)
    bins, labels = binned(table.codes[rows], params.bins), table.factors[rows]
    information = mutual_information(bins, labels)
    raw = costs(information, joint_entropies(bins, labels))
    known = information.max(axis=0) > ROUNDING
    scores = np.where(known, normalised(raw, entropies(labels), params.bins), 0)
    return {"jemmig": float(scores[telling(labels)].mean()), "jemmig_nats": raw}


METRIC = Metric(
    name="jemmig",
    params=Params,
    keys=("jemmig",),
    score=score,
    details=("jemmig_nats",),
    fast={"samples": 2_000},
)
