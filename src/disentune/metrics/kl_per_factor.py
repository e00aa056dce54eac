"""KL per factor: after Burgess et al., arXiv 2018, Fig. 4: nats that each factor's own latent has spent.

Each factor is matched with one latent, so that their mutual information is largest in sum; its number is the KL of that
latent from N(0, 1). With fewer latents than factors, some have none and count 0. The figure `capacity` draws it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field
from scipy.optimize import linear_sum_assignment

from disentune.metrics.information import binned, mutual_information
from disentune.metrics.kl_per_latent import kl_to_prior
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")


def matched(information: np.ndarray, kl: np.ndarray) -> np.ndarray:
    """KL (k,) of the latents that factors are matched with, by mutual information (d, k) and KL (d,)."""
    found = np.zeros(information.shape[1])
    latents, factors = linear_sum_assignment(information, maximize=True)
    found[factors] = kl[latents]
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    assert table.logvars is not None
    rows = rows_drawn(len(table.codes), params.samples, rng)
    means = (table.codes if table.means is None else table.means)[rows]
    information = mutual_information(binned(means, params.bins), table.factors[rows])
    values = matched(information, kl_to_prior(means, table.logvars[rows]))
    names = np.array(table.names or [f"factor {number}" for number in range(len(values))])
    return {"kl_per_factor": float(values.mean()), "kl_per_factor_values": values, "kl_per_factor_names": names}


METRIC = Metric(
    name="kl_per_factor",
    params=Params,
    keys=("kl_per_factor",),
    score=score,
    details=("kl_per_factor_values", "kl_per_factor_names"),
    fast={"samples": 2_000},
    needs=("factors", "logvars"),
)
