"""beta-TCVAE: Chen et al., NeurIPS 2018, Eq. 4: VAE + (beta - 1) * total correlation, estimated in the batch.

The aggregate posterior q(z) = mean over the N images of q(z | x) is estimated from the batch's B posteriors, each with
a weight (the paper's appendix C). Log-weights are added once to the joint density and once to each marginal one.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from disentune.maths.gaussian import kl_to_prior, log_density, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Context, Framework, Frozen, Losses, Posterior, Step


class Params(Frozen):
    """beta weighs the total correlation; 1 is the VAE, whatever the estimator.

    `estimator`: `mws` (minibatch-weighted, the paper's choice) overstates the TC by about (d - 1) log N, a constant
    without gradient; `mss` (stratified) estimates q(z) without bias, but not its logarithm: the TC comes out too low
    and may be negative where the batch is a small share of the data.
    """

    beta: float = Field(ge=0)
    estimator: Literal["mws", "mss"] = "mws"


def mws_log_weights(n: int, population: int) -> Tensor:
    """Minibatch-weighted sampling: every posterior 1 / (N B), (n, n)."""
    return torch.full((n, n), -math.log(population * n), dtype=torch.float64)


def mss_log_weights(n: int, population: int) -> Tensor:
    """Minibatch-stratified sampling with M = B - 1, (n, n): row i holds code i's weights, which add up to 1.

    A code's own posterior weighs 1 / N, the next in the batch (N - M) / (N M), the others 1 / M. Over batches of
    different images the estimate of q(z) has no bias; the loop may repeat one, which adds (q(z | its own) - q(z)) / N.
    """
    others = n - 1
    own = torch.eye(n, dtype=torch.float64)
    following = own.roll(1, dims=1)
    rest = 1 - own - following
    return torch.log(own / population + following * (population - others) / (population * others) + rest / others)


LOG_WEIGHTS: dict[str, Callable[[int, int], Tensor]] = {"mws": mws_log_weights, "mss": mss_log_weights}


def total_correlation(z: Tensor, q: Posterior, log_weights: Tensor) -> Tensor:
    """Mean over the batch of log q(z) - sum over latents of log q(z_d), each a weighted log-sum-exp; a scalar."""
    log_q, log_weights = log_density(q, z[:, None]), log_weights.to(z)
    joint = torch.logsumexp(log_weights + log_q.sum(dim=2), dim=1)
    marginals = torch.logsumexp(log_weights[:, :, None] + log_q, dim=1)
    return (joint - marginals.sum(dim=1)).mean()


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + KL + (beta - 1) * TC, with the KL in closed form."""
    q = model.encode(batch.x)
    z = sample(q, step.rng)
    recon = batch.recon(model.decode(z), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    tc = total_correlation(z, q, LOG_WEIGHTS[params.estimator](len(z), batch.population))
    return Losses(recon, kl + (params.beta - 1) * tc, {"kl": kl, "tc": tc})


def check(setting: Context, params: Params) -> None:
    size, population = setting.batch_size, setting.population
    if size < 2:
        raise ValueError("beta_tc_vae compares the images of a batch: training.batch_size must be >= 2")
    if params.estimator == "mss" and size > population:
        raise ValueError(
            f"estimator mss needs training.batch_size <= {population}, the images of the data set, got {size}"
        )


FRAMEWORK = Framework(name="beta_tc_vae", params=Params, loss=loss, parts=("kl", "tc"), check=check)
