"""Active units: Zietlow et al., ICML 2021: how many latents have a mean posterior variance below 0.8."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from disentune.plugin import Frozen, Metric, Table

LARGEST_LOGVAR = 600.0
"""Larger log-variances are clipped to this, so that no mean of variances overflows."""


class Params(Frozen):
    """A latent is active if its posterior variance, averaged over the table, is below the threshold."""

    threshold: float = Field(0.8, gt=0, description="a latent is active when its mean posterior variance is below this")


def variances(logvars: np.ndarray) -> np.ndarray:
    """Variances of the posteriors, in the shape of their logarithms."""
    found: np.ndarray = np.exp(np.minimum(logvars, LARGEST_LOGVAR))
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    assert table.logvars is not None
    variance = variances(table.logvars).mean(axis=0)
    return {"active_units": float(np.sum(variance < params.threshold)), "active_units_variance": variance}


METRIC = Metric(
    name="active_units",
    params=Params,
    keys=("active_units",),
    score=score,
    details=("active_units_variance",),
    needs=("logvars",),
)
