"""Prior log-density: Mathieu et al., ICML 2019, Appendix C: mean log p(z) over draws from the aggregate posterior."""

import numpy as np
from pydantic import Field

from disentune.metrics.aggregate import posteriors, prior_of
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Draws from the posterior of each row."""

    draws: Count = Field(10, ge=1, le=1000, description="draws from the posterior of each row")


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Log-density in nats under the prior of the framework; N(0, 1) if it names none, and for arrays."""
    means, logvars = posteriors(table)
    deviations, prior = np.exp(logvars / 2), prior_of(table)
    drawn = (means + deviations * rng.standard_normal(means.shape) for _ in range(params.draws))
    return {"prior_log_density": float(np.mean([prior.log_density(codes).mean() for codes in drawn]))}


METRIC = Metric(
    name="prior_log_density",
    params=Params,
    keys=("prior_log_density",),
    score=score,
    fast={"draws": 1},
    needs=("logvars",),
)
