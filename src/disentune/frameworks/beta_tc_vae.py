"""beta-TCVAE: Chen et al., NeurIPS 2018, Eq. 4: weights of the KL's three parts; by default VAE + (beta - 1) * TC.

The KL is index-code mutual information + total correlation + dimension-wise KL; alpha, beta and gamma weigh these.

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
from disentune.plugin import AutoEncoder, Batch, Context, Framework, Frozen, Losses, Posterior, Step, added


class Params(Frozen):
    """beta weights the total correlation; 1 is the VAE, whatever the estimator. alpha and gamma weight the other two
    parts of the KL; the paper uses 1 for both and tries 0 for alpha.

    `estimator`: `mws` (minibatch-weighted, the paper's choice) overstates the TC by about (d - 1) log N, a constant
    without gradient; `mss` (stratified) is an unbiased estimate of q(z), but not of its logarithm: the TC is too low,
    and may be negative if the batch is a small share of the data.
    """

    beta: float = Field(ge=0, description="weight of the total correlation; 1 is the VAE")
    estimator: Literal["mws", "mss"] = Field(
        "mws",
        description="estimator of the total correlation: mws (minibatch-weighted, the paper's) or mss (stratified)",
    )
    alpha: float = added(1.0, ge=0, description="weight of the mutual information of images and codes")
    gamma: float = added(1.0, ge=0, description="weight of the KL of each latent's aggregate from the prior")


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


def log_aggregate(z: Tensor, q: Posterior, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """log q(z) and the sum over latents of log q(z_d), each a weighted log-sum-exp, (n,)."""
    log_q, log_weights = log_density(q, z[:, None]), log_weights.to(z)
    joint = torch.logsumexp(log_weights + log_q.sum(dim=2), dim=1)
    marginals = torch.logsumexp(log_weights[:, :, None] + log_q, dim=1)
    return joint, marginals.sum(dim=1)


def total_correlation(z: Tensor, q: Posterior, log_weights: Tensor) -> Tensor:
    """Mean over the batch of log q(z) - sum over latents of log q(z_d); a scalar."""
    joint, marginals = log_aggregate(z, q, log_weights)
    return (joint - marginals).mean()


def other_parts(z: Tensor, q: Posterior, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Index-code mutual information and dimension-wise KL from N(0, 1), each a mean over the batch; scalars."""
    joint, marginals = log_aggregate(z, q, log_weights)
    prior = Posterior(torch.zeros_like(z[0]), torch.zeros_like(z[0]))
    information = log_density(q, z).sum(dim=1) - joint
    return information.mean(), (marginals - log_density(prior, z).sum(dim=1)).mean()


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + KL + (beta - 1) * TC, with the KL in closed form, and likewise (alpha - 1) and (gamma - 1) times
    the other two parts."""
    q = model.encode(batch.x)
    z = sample(q, step.rng)
    recon = batch.recon(model.decode(z), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    log_weights = LOG_WEIGHTS[params.estimator](len(z), batch.population)
    tc = total_correlation(z, q, log_weights)
    latent = kl + (params.beta - 1) * tc
    if (params.alpha, params.gamma) != (1, 1):
        information, marginal_kl = other_parts(z, q, log_weights)
        latent = latent + (params.alpha - 1) * information + (params.gamma - 1) * marginal_kl
    return Losses(recon, latent, {"kl": kl, "tc": tc})


def check(setting: Context, params: Params) -> None:
    size, population = setting.batch_size, setting.population
    if size < 2:
        raise ValueError("beta_tc_vae compares the images of a batch: training.batch_size must be >= 2")
    if params.estimator == "mss" and size > population:
        raise ValueError(
            f"estimator mss needs training.batch_size <= {population}, the images of the data set, got {size}"
        )


FRAMEWORK = Framework(name="beta_tc_vae", params=Params, loss=loss, parts=("kl", "tc"), check=check)
