"""QLAE: Hsu et al., NeurIPS 2023: an autoencoder whose codes are quantised, each latent to a few learned values.

A main ingredient is a strong weight decay of everything except biases and values, which belongs to the optimiser:
`training.optimiser: {decoupled: true, weight_decay: 0.1}` (0.001 on MPI3D), with `training.clip: 1`. Their terms are
means over latents and pixels, so the defaults are meant for `loss_scale: mean`.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.maths.gaussian import nats_per_image
from disentune.plugin import AutoEncoder, Batch, Context, Count, Framework, Frozen, Losses, Posterior, Step

REACH = 0.5
"""The values of a latent begin evenly spaced from -REACH to REACH."""


class Params(Frozen):
    """`quantisation` pulls values to codes, `commitment` codes to values; both see the same distances.

    Log-variances are not used.
    """

    values: Count = Field(10, ge=2, le=10_000, description="values that each latent can take")
    quantisation: float = Field(0.01, ge=0, description="weight of the distance of values from codes")
    commitment: float = Field(0.01, ge=0, description="weight of the distance of codes from values")
    codebook: Literal["per_latent", "shared"] = Field(
        "per_latent", description="values of its own for each latent, or the same for all (the paper's ablation)"
    )
    learned: bool = Field(True, description="whether values are trained")


class Codebook(nn.Module):
    """`values` (d, v), or (1, v) if all latents share them."""

    def __init__(self, latents: int, params: Params):
        super().__init__()
        rows = latents if params.codebook == "per_latent" else 1
        values = torch.linspace(-REACH, REACH, params.values).repeat(rows, 1)
        self.values = nn.Parameter(values) if params.learned else nn.Buffer(values)

    def forward(self, z: Tensor) -> Tensor:
        """(n, d) -> the nearest value of each latent, (n, d); the first of several that are equally near."""
        values = self.values.expand(z.shape[1], -1)
        nearest = (z.detach()[:, :, None] - values.detach()).abs().argmin(dim=2)
        return values.expand(len(z), -1, -1).gather(2, nearest[:, :, None])[:, :, 0]


def extra(setting: Context, params: Params, generator: torch.Generator, images: Any) -> Codebook:
    return Codebook(setting.latents, params)


def code(q: Posterior, params: Params, extra: nn.Module | None) -> Tensor:
    """The quantised means."""
    assert extra is not None
    found: Tensor = extra(q.mean)
    return found


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + quantisation * sum |stop(z) - q|^2 + commitment * sum |z - stop(q)|^2. The decoder sees q, and
    its gradient passes to z as if nothing had been quantised."""
    z = model.encode(batch.x).mean
    q = step.extra(z)
    recon = batch.recon(model.decode(z + (q - z).detach()), batch.x)
    of_values = nats_per_image((z.detach() - q).square())
    of_codes = nats_per_image((z - q.detach()).square())
    latent = params.quantisation * of_values + params.commitment * of_codes
    return Losses(recon, latent, {"quantisation_error": of_codes})


FRAMEWORK = Framework(
    name="qlae",
    params=Params,
    loss=loss,
    parts=("quantisation_error",),
    extra=extra,
    code=code,
    discrete=True,
)
