"""Covariance of codes over a batch, and its distance from the identity (Kumar et al., ICLR 2018, Eq. 6 and 7)."""

from collections.abc import Callable

import torch
from torch import Tensor

from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Context, Losses, Posterior, Step


def covariance_of_means(q: Posterior) -> Tensor:
    """Cov[mean] over the batch, divided by n, (d, d)."""
    centred = q.mean - q.mean.mean(dim=0)
    return centred.T @ centred / len(centred)


def covariance_of_codes(q: Posterior) -> Tensor:
    """Cov[z] of the batch's aggregate posterior, (d, d): Cov[mean], and on its diagonal also the mean variance."""
    return covariance_of_means(q) + torch.diag(torch.exp(q.logvar).mean(dim=0))


def off_diagonal(covariance: Tensor) -> Tensor:
    """Sum of squares off the diagonal, a scalar; (i, j) and (j, i) both count."""
    return (covariance - torch.diag(covariance.diagonal())).square().sum()


def diagonal(covariance: Tensor) -> Tensor:
    """Sum of squared distances of the diagonal from 1, a scalar."""
    return (covariance.diagonal() - 1).square().sum()


def dip_loss(
    model: AutoEncoder,
    batch: Batch,
    step: Step,
    covariance_of: Callable[[Posterior], Tensor],
    lambda_od: float,
    lambda_d: float,
) -> Losses:
    """Reconstruction + KL + lambda_od * sum of Cov_ij^2 + lambda_d * sum of (Cov_ii - 1)^2; rows have both sums."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl, covariance = nats_per_image(kl_to_prior(q)), covariance_of(q)
    dip_od, dip_d = off_diagonal(covariance), diagonal(covariance)
    return Losses(recon, kl + lambda_od * dip_od + lambda_d * dip_d, {"kl": kl, "dip_od": dip_od, "dip_d": dip_d})


def check_batch(setting: Context, params: object) -> None:
    if setting.batch_size < 2:
        raise ValueError("a DIP-VAE computes a covariance over the batch: training.batch_size must be >= 2")
