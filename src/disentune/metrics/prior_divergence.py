"""Prior divergence: Mathieu et al., ICML 2019, Appendix B: KL(p(z) || q(z)) between prior and aggregate posterior."""

import numpy as np
from pydantic import Field

from disentune.metrics.aggregate import log_aggregate, posteriors, prior_of
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Draws from the prior, and posteriors that q(z) is the mean of: it is a little too large where these are few."""

    draws: Count = Field(2000, ge=1, description="draws from the prior")
    samples: Count = Field(5000, ge=1, description="rows whose posteriors make the aggregate posterior")


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Divergence in nats from the prior of the framework; N(0, 1) if it names none, and for arrays."""
    rows, prior = rows_drawn(len(table.codes), params.samples, rng), prior_of(table)
    points = prior.sample(params.draws, table.codes.shape[1], rng)
    means, logvars = posteriors(table)
    gap = prior.log_density(points) - log_aggregate(points, means[rows], logvars[rows])
    return {"prior_divergence": float(gap.mean())}


METRIC = Metric(
    name="prior_divergence",
    params=Params,
    keys=("prior_divergence",),
    score=score,
    fast={"draws": 500, "samples": 1000},
    needs=("logvars",),
    best="min",
)
