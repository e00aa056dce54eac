"""KL decomposition: Hoffman & Johnson 2016; Chen et al., NeurIPS 2018, Eq. 2: what the KL to N(0, 1) is made of.

KL = index-code mutual information I(x; z) (`_mi`) + total correlation of q(z) (`_tc`) + dimension-wise KL of each
q(z_d) from N(0, 1) (`_marginals`), where q(z) is the mean of the images' posteriors. Of up to `samples` images q(z) is
computed exactly; only expectations over codes are averages, of one draw from each posterior. They enter as differences
log q(z|x) - log q(z), of the joint and of each latent, which vary little: the total correlation is the sum over latents
of I(x; z_d) less I(x; z), and the dimension-wise KL what remains of the KL in closed form. So the three add up to it
exactly, and I(x; z) never exceeds the logarithm of the number of images.

The numbers ending in `_minibatch` are what the same codes give when q(z) is estimated from small batches, as in
training (Mathieu et al., ICML 2019, appendix C). The logarithm of a noisy density is too small on average, so the
entropy of q(z) is overstated: where the posteriors of a batch hardly overlap, it tends to log n + E[H(q(z|x))] and the
mutual information to log n, whatever the codes.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field
from scipy.special import logsumexp

from disentune.metrics.kl_per_latent import kl_to_prior
from disentune.metrics.posteriors import Gaussians, blocks, drawn, log_densities, own_log_densities
from disentune.plugin import Count, Frozen, Metric, Table

MI, TC, MARGINALS = (f"kl_decomposition_{part}" for part in ("mi", "tc", "marginals"))
PARTS = (MI, TC, MARGINALS)
NEAR = 1.0
"""Nats below its largest possible value from which on the mutual information comes with a warning."""


class Params(Frozen):
    """Images whose posteriors make up q(z), and images of a batch."""

    samples: Count = Field(20_000, ge=2, le=20_000, description="images whose posteriors make up q(z)")
    batch_size: Count = Field(64, ge=2, description="images from which q(z) is estimated for the _minibatch numbers")


class Aggregate(NamedTuple):
    """At each code, (n,): log q(z), and the sum over latents of log q(z_d)."""

    joint: np.ndarray
    marginals: np.ndarray


def exact(q: Gaussians) -> Aggregate:
    """Under the mixture of all n posteriors."""
    found = [_mixed(log_q, np.zeros(len(q.means))) for _, log_q in blocks(q)]
    joint, marginals = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n, d = q.means.shape
    return Aggregate(joint - math.log(n), marginals - d * math.log(n))


def minibatch(q: Gaussians, size: int) -> Aggregate:
    """The estimate of appendix C in one batch after another: a code's own posterior weighs 1 / n, the others in its
    batch (n - 1) / (n (B - 1)). A rest that makes no whole batch is left out, unless it is all there is."""
    n = len(q.means)
    size = min(size, n)
    weights = np.full((size, size), math.log((n - 1) / (n * (size - 1))) if size > 1 else 0.0)
    np.fill_diagonal(weights, -math.log(n))
    batches = (q.some(slice(start, start + size)) for start in range(0, n - size + 1, size))
    found = [_mixed(log_densities(b.z[:, None], b.means, b.logvars), weights) for b in batches]
    return Aggregate(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _mixed(log_q: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted sums over posteriors, log_q (m, n, d) and log-weights (n,) or (m, n) -> joint (m,), marginals (m,)."""
    joint = logsumexp(log_q.sum(axis=2) + log_weights, axis=1)
    marginals = logsumexp(log_q + np.broadcast_to(log_weights, log_q.shape[:2])[..., None], axis=1)
    return joint, marginals.sum(axis=1)


def parts(q: Gaussians, aggregate: Aggregate) -> dict[str, float]:
    """Means over the codes that the aggregate has."""
    q = q.some(slice(0, len(aggregate.joint)))
    own, kl = own_log_densities(q), float(kl_to_prior(q.means, q.logvars).sum())
    together, one_by_one = (float((own - other).mean()) for other in aggregate)
    return {MI: together, TC: one_by_one - together, MARGINALS: kl - one_by_one}


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    q = drawn(table, params.samples, rng)
    found = parts(q, exact(q))
    estimated = parts(q, minibatch(q, params.batch_size))
    return {**found, **{f"{name}_minibatch": value for name, value in estimated.items()}, **_caution(q, found)}


def _caution(q: Gaussians, found: Mapping[str, float]) -> dict[str, str]:
    largest = math.log(len(q.means))
    if found[MI] < largest - NEAR:
        return {}
    text = f"{MI} is close to log {len(q.means)} = {largest:.2f}, the most that so many images can show"
    return {"caution": f"{text}; of more images it may be larger, and the total correlation smaller"}


METRIC = Metric(
    name="kl_decomposition",
    params=Params,
    keys=(*PARTS, *(f"{name}_minibatch" for name in PARTS)),
    score=score,
    fast={"samples": 2_000},
    needs=("logvars",),
    rows=lambda params: 2,
    best="min",
)
