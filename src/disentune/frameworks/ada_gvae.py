"""Ada-GVAE: Locatello et al., ICML 2020, section 4: posteriors of a pair are averaged where they differ little."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from disentune.gaussian import kl_to_prior, nats_per_image, sample, symmetric_kl
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Posterior, Step


class Params(Frozen):
    """`ratio` sets the threshold between a pair's smallest divergence (0) and its largest (1)."""

    beta: float = Field(ge=0)
    ratio: float = Field(0.5, ge=0, le=1)
    pairs: Literal["original"] = "original"


def shared_latents(q: Posterior, p: Posterior, ratio: float) -> Tensor:
    """Which latents a pair shares, (n, d): the divergence lies below the pair's threshold; the largest never does."""
    with torch.no_grad():
        divergence = symmetric_kl(q, p)
        low, high = torch.aminmax(divergence, dim=1, keepdim=True)
        return divergence < low + ratio * (high - low)


def average(q: Posterior, p: Posterior) -> Posterior:
    """Mean of the means and mean of the variances (Bouchacourt et al., AAAI 2018, as Ada-GVAE uses it)."""
    return Posterior((q.mean + p.mean) / 2, torch.logaddexp(q.logvar, p.logvar) - math.log(2))


def aggregate(q: Posterior, p: Posterior, ratio: float) -> Posterior:
    """Both posteriors of each pair, one batch under the other, (2n, d), the shared latents averaged."""
    shared, mid = shared_latents(q, p, ratio), average(q, p)
    means = [torch.where(shared, mid.mean, own.mean) for own in (q, p)]
    logvars = [torch.where(shared, mid.logvar, own.logvar) for own in (q, p)]
    return Posterior(torch.cat(means), torch.cat(logvars))


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Mean over the two observations of reconstruction + beta * KL, with aggregated posteriors."""
    assert batch.pair is not None, "the loop draws pairs for a framework with draws='pair'"
    x = torch.cat([batch.x, batch.pair])
    encoded = model.encode(x)
    (first, second), (first_logvar, second_logvar) = encoded.mean.chunk(2), encoded.logvar.chunk(2)
    q = aggregate(Posterior(first, first_logvar), Posterior(second, second_logvar), params.ratio)
    recon = batch.recon(model.decode(sample(q, step.rng)), x)
    kl = nats_per_image(kl_to_prior(q))
    return Losses(recon, params.beta * kl, {"kl": kl})


FRAMEWORK = Framework(name="ada_gvae", params=Params, loss=loss, draws="pair")
