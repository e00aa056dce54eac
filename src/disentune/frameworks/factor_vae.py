"""FactorVAE: Kim & Mnih, ICML 2018, Eq. 2: VAE + gamma * total correlation, estimated by a discriminator."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.maths.adam import Adam
from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.maths.initialise import initialised
from disentune.maths.pairs import Independent
from disentune.plugin import AutoEncoder, Batch, Context, Count, Framework, Frozen, Helper, Losses, Step

JOINT, PERMUTED = 0, 1
"""The discriminator's classes."""
DEEPEST = 100


class Params(Frozen):
    """The discriminator has `depth` hidden layers of `width` units and its own Adam.

    `permuted` is the source of the codes that it learns to distinguish from the joint ones: a `second_batch`, as in the
    paper's Algorithm 2, or the `same_batch`, as in disentanglement_lib, which halves the number of images to draw and
    encode.
    """

    gamma: float = Field(ge=0, description="weight of the total correlation; 0 is the VAE")
    permuted: Literal["second_batch", "same_batch"] = Field(
        "second_batch",
        description="source of the permuted codes: a second batch (the paper) or the same one (disentanglement_lib)",
    )
    depth: Count = Field(6, ge=1, description="hidden layers of the discriminator")
    width: Count = Field(1000, ge=1, description="units of each hidden layer")
    helper_learning_rate: float = Field(1e-4, gt=0, description="learning rate of the discriminator")

    @property
    def pairs(self) -> Independent | None:
        return Independent() if self.permuted == "second_batch" else None


def discriminator(setting: Context, params: Params, generator: torch.Generator) -> nn.Module:
    """Codes (n, d) -> logits (n, 2): joint, permuted."""
    sizes = [setting.latents, *[params.width] * params.depth]

    def network() -> nn.Sequential:
        hidden = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.LeakyReLU(0.2))]
        return nn.Sequential(*hidden, nn.Linear(params.width, 2))

    return initialised(network, generator)


def optimiser(parameters: Iterable[nn.Parameter], params: Params) -> Adam:
    return Adam(parameters, params.helper_learning_rate, betas=(0.5, 0.9))


def permuted(z: Tensor, rng: np.random.Generator) -> Tensor:
    """Each latent shuffled independently over the batch, (n, d): a draw from the product of the marginals."""
    n, d = z.shape
    order = rng.permuted(np.tile(np.arange(n)[:, None], d), axis=0)
    return z.gather(0, torch.from_numpy(order).to(z.device))


def total_correlation(logits: Tensor) -> Tensor:
    """Mean log-odds of joint against permuted, Eq. 3, from logits (n, 2); a scalar, in nats."""
    return (logits[:, JOINT] - logits[:, PERMUTED]).mean()


def discrimination(network: nn.Module, joint: Tensor, product: Tensor) -> Tensor:
    """Half the cross-entropy of joint codes plus half that of as many permuted ones."""
    labels = torch.tensor([JOINT, PERMUTED], device=joint.device).repeat_interleave(len(joint))
    return nn.functional.cross_entropy(network(torch.cat([joint, product])), labels)


@torch.no_grad()
def product_codes(model: AutoEncoder, z: Tensor, second: Tensor | None, rng: np.random.Generator) -> Tensor:
    """Permuted codes of the second batch of images, or without one of the batch's own codes z, (n, d)."""
    return permuted(z if second is None else sample(model.encode(second), rng), rng)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + KL + gamma * TC; the discriminator learns on detached codes, in a separate forward pass.

    Both learn from the weights at the start of the step, as in disentanglement_lib; Algorithm 2 updates the VAE first.
    """
    q = model.encode(batch.x)
    z = sample(q, step.rng)
    recon = batch.recon(model.decode(z), batch.x)
    kl, tc = nats_per_image(kl_to_prior(q)), total_correlation(step.helper(z))
    second = batch.pair if params.permuted == "second_batch" else None
    told_apart = discrimination(step.helper, z.detach(), product_codes(model, z, second, step.rng))
    latent = kl + params.gamma * tc
    return Losses(recon, latent, {"kl": kl, "tc": tc}, {"discriminator_loss": told_apart}, told_apart)


def check(setting: Context, params: Params) -> None:
    if setting.batch_size < 2:
        raise ValueError("factor_vae permutes codes over the batch: training.batch_size must be >= 2")
    if params.depth > DEEPEST:
        raise ValueError(f"a discriminator may have at most {DEEPEST} hidden layers, but depth is {params.depth}")


FRAMEWORK = Framework(
    name="factor_vae",
    params=Params,
    loss=loss,
    parts=("kl", "tc"),
    watch=("discriminator_loss",),
    helper=Helper(discriminator, optimiser),
    read_once=("helper_learning_rate",),
    check=check,
)
