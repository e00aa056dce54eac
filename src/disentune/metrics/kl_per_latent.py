"""KL per latent: Kingma & Welling, ICLR 2014, Appendix B: nats by which a posterior differs from N(0, 1)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from disentune.metrics.active_units import variances
from disentune.plugin import Frozen, Metric, Table


class Params(Frozen):
    """Nothing to choose."""


def kl_to_prior(means: np.ndarray, logvars: np.ndarray) -> np.ndarray:
    """KL of each latent, averaged over rows, (d,)."""
    found: np.ndarray = 0.5 * (means**2 + variances(logvars) - 1 - logvars).mean(axis=0)
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    """Uses the table's posterior means if it has them; otherwise the codes must be these means."""
    assert table.logvars is not None
    values = kl_to_prior(table.codes if table.means is None else table.means, table.logvars)
    return {"kl_per_latent": float(values.mean()), "kl_per_latent_values": values}


METRIC = Metric(
    name="kl_per_latent",
    params=Params,
    keys=("kl_per_latent",),
    score=score,
    details=("kl_per_latent_values",),
    needs=("logvars",),
    best="min",
)
