"""Adaptive sharing (Locatello et al., ICML 2020, section 4): which latents a pair has in common, found per pair."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from disentune.frameworks.paired import both_images, halves
from disentune.maths.gaussian import kl, kl_to_prior, nats_per_image, sample, symmetric_kl
from disentune.plugin import AutoEncoder, Batch, Losses, Posterior, Step

Divergence = Literal["symmetric_kl", "kl"]
"""disent's symmetric KL, or disentanglement_lib's KL(first || second)."""

DIVERGENCES = {"symmetric_kl": symmetric_kl, "kl": kl}


def below_threshold(divergence: Tensor, ratio: float) -> Tensor:
    """Strictly below low + ratio * (high - low) of its own row, (n, d); the largest never is.

    disentanglement_lib is equivalent: at or above the threshold, a latent keeps its own posterior. It uses twice the
    KL, but a common factor does not change which latents are below the threshold.
    """
    low, high = torch.aminmax(divergence, dim=1, keepdim=True)
    return (divergence < low + ratio * (high - low)) & (divergence < high)  # at ratio 1 the sum may round above high


@torch.no_grad()
def shared_latents(first: Posterior, second: Posterior, ratio: float, divergence: Divergence) -> Tensor:
    """Which latents each pair shares, (n, d)."""
    return below_threshold(DIVERGENCES[divergence](first, second), ratio)


def aggregate(first: Posterior, second: Posterior, average: Posterior, shared: Tensor) -> Posterior:
    """Both posteriors of each pair, stacked, (2n, d), with the average in the shared latents."""
    means = [torch.where(shared, average.mean, own.mean) for own in (first, second)]
    logvars = [torch.where(shared, average.logvar, own.logvar) for own in (first, second)]
    return Posterior(torch.cat(means), torch.cat(logvars))


def adaptive_loss(
    model: AutoEncoder, batch: Batch, params: Any, step: Step, average: Callable[[Posterior, Posterior], Posterior]
) -> Losses:
    """Mean over the two images of reconstruction + beta * KL, with the average in the latents that a pair shares."""
    x = both_images(batch)
    first, second = halves(model.encode(x))
    shared = shared_latents(first, second, params.ratio, params.divergence)
    q = aggregate(first, second, average(first, second), shared)
    recon = batch.recon(model.decode(sample(q, step.rng)), x)
    nats = nats_per_image(kl_to_prior(q))
    return Losses(recon, params.beta * nats, {"kl": nats})
