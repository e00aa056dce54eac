"""Tripod: Hsu et al., ICML 2024: quantised codes with little dependence, and a decoder whose latents do not interact.

Three parts: codes tanh(z) rounded to evenly spaced values (finite scalar quantisation); a kernel estimate of the
multi-information of a batch's codes; and the Hessian penalty of the decoder's layers, normalised so that no layer can
shrink it by its scale. Their terms are means over pixels, but not over latents: for `loss_scale: mean`, multiply the
published weights by the number of latents.
"""

import math
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.plugin import AutoEncoder, Batch, Context, Count, Framework, Frozen, Losses, Posterior, Step

NARROWEST, SMALLEST = 1e-6, 1e-10
"""Added to the deviations of codes, and to the denominator of the Hessian penalty."""


class Params(Frozen):
    """Published weights (multi-information, Hessian): Shapes3D 1e-4, 1e-2; MPI3D 1e-8, 1e-4; Falcor3D 1e-10, 1e-2;
    Isaac3D 1e-4, 1e-8. Log-variances are not used.

    The released code gives marginals a wider kernel than the joint density, so its estimate is not 0 for independent
    latents; `same` gives both the narrower one. It also normalises the Hessian penalty for each image. A decoder with
    ReLU is linear around most codes, so the denominator of an image is often exactly 0 and its ratio has no bound;
    `over_batch` divides the means over the batch.
    """

    multi_information: float = Field(ge=0, description="weight of the dependence of latents")
    hessian: float = Field(ge=0, description="weight of the normalised Hessian penalty")
    values: Count = Field(12, ge=2, le=10_000, description="values that each latent can take")
    bandwidth: Literal["as_released", "same"] = Field(
        "as_released", description="kernels of the marginals: wider than those of the joint density, or the same"
    )
    normalised: Literal["over_batch", "as_released"] = Field(
        "over_batch", description="the Hessian penalty is divided after its mean over the batch, or for each image"
    )
    perturbations: Count = Field(2, ge=2, le=10_000, description="random directions for each estimate of a variance")
    epsilon: float = Field(0.1, gt=0, description="length of a step in such a direction, in deviations of the codes")


def quantised(squashed: Tensor, values: int) -> Tensor:
    """Codes in [-1, 1] rounded to so many evenly spaced values; gradients pass as if they had not been."""
    places = (squashed + 1) / 2 * (values - 1)
    rounded = 2 * places.round() / (values - 1) - 1
    return squashed + (rounded - squashed).detach()


def code(q: Posterior, params: Params, extra: nn.Module | None) -> Tensor:
    return quantised(q.mean.tanh(), params.values)


def multi_information(codes: Tensor, deviations: Tensor, bandwidth: str) -> Tensor:
    """Mean over the batch of log q(z) - sum over latents of log q(z_d), by Gaussian kernels around the codes (n, d); a
    scalar. The joint density has Silverman's bandwidth for d latents."""
    n, d = codes.shape
    narrow = (4 / (d + 2)) ** (1 / (d + 4)) * n ** (-1 / (d + 4))
    squares = ((codes[:, None] - codes) / deviations).square()

    def log_kernel(width: float) -> Tensor:
        return -squares / (2 * width**2) - (deviations.log() + math.log(width) + math.log(2 * math.pi) / 2)

    joint = torch.logsumexp(log_kernel(narrow).sum(dim=2), dim=1) - math.log(n)
    marginals = torch.logsumexp(log_kernel(1.0 if bandwidth == "as_released" else narrow), dim=1) - math.log(n)
    return (joint - marginals.sum(dim=1)).mean()


def directions(n: int, d: int, params: Params, rng: np.random.Generator) -> np.ndarray:
    """(2, k, n, d): signs, then normal numbers."""
    size = (params.perturbations, n, d)
    return np.stack([rng.choice([-1.0, 1.0], size=size), rng.standard_normal(size)])


def interaction(model: AutoEncoder, codes: Tensor, deviations: Tensor, params: Params, moves: np.ndarray) -> Tensor:
    """Sum over the decoder's hidden layers of the normalised Hessian penalty; a scalar.

    The variance of v^T H v over signs v sees only interactions of two latents, that over normal v the whole Hessian
    (Peebles et al., ECCV 2020); with many directions their ratio is between 0 and 1, whatever the scale of the layer. A
    decoder without hidden layers gives 0.
    """
    step = torch.from_numpy(moves).to(codes) * (params.epsilon * deviations)
    around = torch.stack([codes + step, codes - step])
    total = codes.new_zeros(())
    for layer in model.stages(around.flatten(0, 3))[:-1]:
        both = (
            layer.unflatten(0, around.shape[:-1]).sum(dim=0) / params.epsilon**2
        )  # f(z) is the same in all directions
        spread = (both - both.mean(dim=1, keepdim=True)).square().mean(dim=1)
        signs, normals = spread.flatten(2).mean(dim=2)
        if params.normalised == "over_batch":
            signs, normals = signs.mean(), normals.mean()
        total = total + (signs / (normals + SMALLEST)).mean()
    return total


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + multi_information * dependence of the codes + hessian * interaction in the decoder."""
    squashed = model.encode(batch.x).mean.tanh()
    codes, deviations = quantised(squashed, params.values), squashed.std(dim=0, correction=0) + NARROWEST
    recon = batch.recon(model.decode(codes), batch.x)
    dependence = multi_information(codes, deviations, params.bandwidth)
    n, d = codes.shape
    apart = interaction(model, codes, deviations, params, directions(n, d, params, step.rng))
    latent = params.multi_information * dependence + params.hessian * apart
    return Losses(recon, latent, {"multi_information": dependence}, {"interaction": apart})


def check(setting: Context, params: Params) -> None:
    if setting.batch_size < 2:
        raise ValueError("tripod compares the codes of a batch: training.batch_size must be >= 2")


FRAMEWORK = Framework(
    name="tripod",
    params=Params,
    loss=loss,
    parts=("multi_information",),
    watch=("interaction",),
    code=code,
    discrete=True,
    check=check,
)
