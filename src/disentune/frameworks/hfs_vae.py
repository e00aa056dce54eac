"""HFS: Roth et al., ICLR 2023: VAE + the Hausdorff distance of codes from their factorised support.

Codes may be correlated, but every combination of values that latents take one by one should occur. For two latents, the
distance is that of the combination farthest from its nearest code; the loss adds it up over random pairs of latents.
"""

from itertools import combinations
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Context, Count, Framework, Frozen, Losses, Step

EPSILON = 1e-6
"""Added to variances before their root, as in the released code."""


class Params(Frozen):
    """gamma 0 (with delta 0) is the beta-VAE. The distance is not divided by anything, so the meaning of gamma depends
    on the batch size and on the number of pairs.

    The released code computes the scale over the latents of each image, where the spread of each latent over the batch
    was meant.
    """

    beta: float = Field(1.0, ge=0, description="weight of the KL")
    gamma: float = Field(1.0, ge=0, description="weight of the distance from the factorised support")
    delta: float = Field(0.0, ge=0, description="weight of the penalty on latents with a standard deviation below 1")
    latent_pairs: Count | None = Field(
        25, ge=1, description="random pairs of latents per step; null, or more than there are: all pairs"
    )
    scale: Literal["over_batch", "as_released"] = Field(
        "over_batch", description="what delta sees: the deviation of each latent over the batch, or of each code"
    )


@torch.no_grad()
def farthest(z: Tensor, pairs: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """For each pair of latents (p, 2): rows a, b (p,) whose combination (z_ai, z_bj) is farthest from its nearest code,
    and the row c of that code. The first of equals, in the order of b, then a.

    Computed without gradients, one row c at a time, which needs n^2 numbers per pair instead of n^3.
    """
    one, other = (z.T[torch.from_numpy(pairs[:, side])] for side in (0, 1))
    near, far = ((codes[:, :, None] - codes[:, None, :]).square() for codes in (one, other))
    nearest, candidate = torch.full_like(near, torch.inf), torch.empty_like(near)
    for row in range(len(z)):
        torch.add(far[:, row, :, None], near[:, row, None, :], out=candidate)
        torch.minimum(nearest, candidate, out=nearest)
    place = nearest.flatten(1).argmax(dim=1)
    b, a = place // len(z), place % len(z)
    each = torch.arange(len(pairs), device=z.device)
    return a, b, (near[each, a] + far[each, b]).argmin(dim=1)


def support_distance(z: Tensor, pairs: np.ndarray) -> Tensor:
    """Sum over pairs of latents of the squared Hausdorff distance between codes (n, d) and the product of what each
    latent takes; a scalar. Both ends of the distance have gradients: without those of the combination training diverges
    (Roth et al.)."""
    a, b, c = farthest(z, pairs)
    i, j = (torch.from_numpy(pairs[:, side]).to(z.device) for side in (0, 1))
    return ((z[a, i] - z[c, i]).square() + (z[b, j] - z[c, j]).square()).sum()


def narrowness(z: Tensor, scale: str) -> Tensor:
    """Sum of max(0, 1 - standard deviation); a scalar."""
    deviations = (z.var(dim=0 if scale == "over_batch" else 1) + EPSILON).sqrt()
    return (1 - deviations).relu().sum()


def chosen_pairs(latents: int, count: int | None, rng: np.random.Generator) -> np.ndarray:
    """Distinct pairs of latents, (p, 2)."""
    every = np.array([*combinations(range(latents), 2)])
    if count is None or count >= len(every):
        return every
    return every[rng.choice(len(every), count, replace=False)]


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + beta * KL + gamma * distance of the means from their factorised support + delta * narrowness."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    distance = support_distance(q.mean, chosen_pairs(q.mean.shape[1], params.latent_pairs, step.rng))
    latent = params.beta * kl + params.gamma * distance
    if params.delta:
        latent = latent + params.delta * narrowness(q.mean, params.scale)
    return Losses(recon, latent, {"kl": kl}, {"support_distance": distance})


def check(setting: Context, params: Params) -> None:
    if setting.latents < 2:
        raise ValueError("hfs_vae compares pairs of latents: model.latents must be >= 2")
    if setting.batch_size < 2:
        raise ValueError("hfs_vae compares the codes of a batch: training.batch_size must be >= 2")


FRAMEWORK = Framework(name="hfs_vae", params=Params, loss=loss, watch=("support_distance",), check=check)
