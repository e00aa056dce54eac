"""Ada-GVAE: Locatello et al., ICML 2020, section 4: posteriors of a pair are averaged where they differ little."""

import math
from functools import partial
from typing import Literal

import torch
from pydantic import Field

from disentune.frameworks.adaptive import Divergence, adaptive_loss
from disentune.maths.pairs import Original, Pairs
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Posterior, Step


class Params(Frozen):
    """`ratio` sets the threshold between a pair's smallest divergence (0) and its largest (1).

    `divergence: kl` is that of disentanglement_lib, `symmetric_kl` that of disent. `averaging: as_published` uses the
    second image's mean for both and ignores the first one's; variances are still averaged. disent did so from October
    2021 to June 2022, and the models of Michlo et al., IJCAI 2023, were almost certainly trained with it.
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
    averaging: Literal["mean", "as_published"] = Field(
        "mean", description="how shared latents are averaged; as_published uses the second image's mean for both"
    )
    pairs: Pairs = Field(Original(), description="how the second image of a pair differs from the first")


def average(first: Posterior, second: Posterior, averaging: str = "mean") -> Posterior:
    """Mean of the means and mean of the variances."""
    mean = second.mean if averaging == "as_published" else (first.mean + second.mean) / 2
    return Posterior(mean, torch.logaddexp(first.logvar, second.logvar) - math.log(2))


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    return adaptive_loss(model, batch, params, step, partial(average, averaging=params.averaging))


FRAMEWORK = Framework(name="ada_gvae", params=Params, loss=loss)
