"""SlowVAE: Klindt et al., ICLR 2021: codes of a pair differ by a sparse step with a Laplace distribution."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from disentune.frameworks.paired import both_images, halves
from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.maths.pairs import Laplace, Pairs
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Posterior, Step


class Params(Frozen):
    """The paper's weights, which multiply terms of a pair; half of each applies to an image.

    A pair costs two reconstructions, `beta` times the KL of one image to N(0, 1), and `gamma` times the KL of the
    other to Laplace(mean of the first's code, `rate`). With `directions: mean`, either image may be the earlier one,
    with equal probability. `as_published` is the released code: it adds the cross-entropies of both directions, but
    subtracts the entropy of one, so the pull towards the partner is twice that of gamma.
    """

    beta: float = Field(1.0, ge=0, description="weight of the KL to N(0, 1) of one image of a pair")
    gamma: float = Field(10.0, ge=0, description="weight of the KL between the images of a pair")
    rate: float = Field(6.0, gt=0, description="inverse scale of the Laplace distribution; larger is sparser")
    directions: Literal["mean", "as_published"] = Field(
        "mean",
        description="mean: either image of a pair may be the earlier one; as_published: the sum of the released code",
    )
    pairs: Pairs = Field(Laplace(), description="how the second image of a pair differs from the first")


def cross_entropy_with_laplace(mean: Tensor, logvar: Tensor, rate: float) -> Tensor:
    """-E log Laplace(z; 0, rate) for z of N(mean, exp(logvar)), elementwise: rate * E|z| - log(rate / 2).

    E|z| = s sqrt(2 / pi) exp(-t^2 / 2) + mean erf(t / sqrt 2) with deviation s and t = mean / s.
    """
    logvar = logvar.clamp(min=-100)  # s = e^-50 is effectively 0; smaller values make 1 / s infinite and 0 * inf a NaN
    t = mean * torch.exp(-logvar / 2)
    size = math.sqrt(2 / math.pi) * torch.exp((logvar - t.square()) / 2) + mean * torch.erf(t / math.sqrt(2))
    return rate * size - math.log(rate / 2)


def entropy(q: Posterior) -> Tensor:
    """Entropy of each latent, (n, d), in nats."""
    return (q.logvar + math.log(2 * math.pi * math.e)) / 2


def transition(q: Posterior, p: Posterior, params: Params) -> Tensor:
    """KL of each image's posterior to the Laplace distribution around its partner's mean, stacked, (2n, d).

    Gradients reach both means.
    """
    steps = torch.cat([q.mean - p.mean, p.mean - q.mean])
    both = Posterior(steps, torch.cat([q.logvar, p.logvar]))
    counted = 2 if params.directions == "as_published" else 1
    return counted * cross_entropy_with_laplace(both.mean, both.logvar, params.rate) - entropy(both)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Mean over both images of reconstruction + beta / 2 * KL + gamma / 2 * transition: half of a pair's loss."""
    x = both_images(batch)
    q = model.encode(x)
    recon = batch.recon(model.decode(sample(q, step.rng)), x)
    kl, moved = nats_per_image(kl_to_prior(q)), nats_per_image(transition(*halves(q), params))
    return Losses(recon, (params.beta * kl + params.gamma * moved) / 2, {"kl": kl, "transition": moved})


FRAMEWORK = Framework(name="slow_vae", params=Params, loss=loss, parts=("kl", "transition"))
