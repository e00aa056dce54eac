"""Ada-ML-VAE: Locatello et al., ICML 2020, section 4: as Ada-GVAE, but averaging precisions, not variances."""

import math

import torch
from pydantic import Field

from disentune.frameworks.adaptive import Divergence, adaptive_loss
from disentune.maths.pairs import Original, Pairs
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Posterior, Step


class Params(Frozen):
    """`ratio` sets the threshold between a pair's smallest divergence (0) and its largest (1).

    `divergence: kl` is disentanglement_lib's, `symmetric_kl` disent's.
    """

    beta: float = Field(ge=0, description="weight of the KL; its meaning depends on loss_scale")
    ratio: float = Field(
        0.5,
        ge=0,
        le=1,
        description="where the threshold lies between a pair's smallest divergence (0) and its largest (1)",
    )
    divergence: Divergence = Field(
        "symmetric_kl",
        description="divergence of a pair's posteriors: kl as in disentanglement_lib, symmetric_kl as in disent",
    )
    pairs: Pairs = Field(Original(), description="how the second image of a pair differs from the first")


def product(first: Posterior, second: Posterior) -> Posterior:
    """Precision-weighted mean of the means, and the harmonic mean of the variances v and w, 2 v w / (v + w).

    A normalised product of densities (Bouchacourt et al., AAAI 2018) would have half that variance: as in
    disentanglement_lib and disent, the precision is the mean of both, not their sum.
    """
    share = torch.sigmoid(second.logvar - first.logvar)  # of the first one in both precisions
    logvar = math.log(2) - torch.logaddexp(-first.logvar, -second.logvar)
    return Posterior(torch.lerp(second.mean, first.mean, share), logvar)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    return adaptive_loss(model, batch, params, step, product)


FRAMEWORK = Framework(name="ada_ml_vae", params=Params, loss=loss)
