"""Decomposition VAE: Mathieu et al., ICML 2019, Eq. 7: beta controls overlap, alpha how well q(z) fits the prior."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.frameworks.divergences import inclusive_kl, mmd_imq
from disentune.frameworks.priors import Anisotropic, Isotropic, Law, Mixture, Prior, StudentT
from disentune.maths.gaussian import sample
from disentune.plugin import AutoEncoder, Batch, Context, Framework, Frozen, Images, Losses, Posterior, Step


class Params(Frozen):
    """`beta` weights the KL of each posterior from the prior, `alpha` the divergence of the aggregate posterior from
    it.

    alpha 0 with the isotropic prior is the beta-VAE; beta 0 with alpha above 0 is a Wasserstein autoencoder.
    `divergence` is KL(prior || aggregate posterior), or the maximum mean discrepancy with inverse multiquadratic
    kernels. Rows report it even at alpha 0, where it has no effect, because its values with and without alpha are
    compared (the paper's Fig. 4).
    """

    beta: float = Field(ge=0, description="weight of each posterior's KL from the prior")
    alpha: float = Field(0.0, ge=0, description="weight of the aggregate posterior's divergence from the prior")
    prior: Prior = Field(Isotropic(), description="prior distribution of the codes")
    divergence: Literal["inclusive_kl", "mmd_imq"] = Field(
        "inclusive_kl", description="KL(prior || aggregate posterior), or their maximum mean discrepancy"
    )


def law(params: Params, extra: Any) -> Law:
    """The prior of the codes; the anisotropic one is the module that `extra` made."""
    found: Law = extra if isinstance(params.prior, Anisotropic) else params.prior
    return found


def to_normal(params: Params) -> Callable[[np.ndarray], np.ndarray] | None:
    return params.prior.to_normal if isinstance(params.prior, StudentT) else None


def divergence(params: Params, prior: Law, q: Posterior, z: Tensor, rng: np.random.Generator) -> Tensor:
    """D(q(z), p(z)) of the batch, estimated with as many draws from the prior as the batch has images."""
    points = prior.sample(z, rng)
    if params.divergence == "mmd_imq":
        return mmd_imq(points, z)
    return inclusive_kl(points, prior.log_density(points), q)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + beta * KL(q(z|x) || p(z)) + alpha * D(q(z), p(z)), all with one sample of each posterior."""
    prior = law(params, step.extra)
    q = model.encode(batch.x)
    z = sample(q, step.rng)
    recon = batch.recon(model.decode(z), batch.x)
    kl, gap = prior.kl(q, z), divergence(params, prior, q, z, step.rng)
    latent = params.beta * kl
    if params.alpha:  # 0 times an overflow would not be 0
        latent = latent + params.alpha * gap
    return Losses(recon, latent, {"kl": kl, "divergence": gap})


def extra(setting: Context, params: Params, generator: torch.Generator, images: Images) -> nn.Module | None:
    """The anisotropic prior, which needs the data's principal components; other priors have no state."""
    return params.prior.law(setting.latents, images) if isinstance(params.prior, Anisotropic) else None


def check(setting: Context, params: Params) -> None:
    if isinstance(params.prior, Anisotropic | Mixture):
        params.prior.check(setting)
    if params.divergence == "mmd_imq" and setting.batch_size < 2:
        raise ValueError("divergence: mmd_imq compares images of a batch, so training.batch_size must be at least 2")


FRAMEWORK = Framework(
    name="decomposition_vae",
    params=Params,
    loss=loss,
    parts=("kl", "divergence"),
    extra=extra,
    check=check,
    prior=law,
    to_normal=to_normal,
)
