"""Laplace likelihood in nats: Mathieu et al., ICML 2019, section 6.3: with a fixed scale, 0.1 in the paper."""

import math

from pydantic import Field
from torch import Tensor
from torch.nn.functional import l1_loss

from disentune.plugin import Frozen, Recon


class Params(Frozen):
    """A smaller scale weighs pixels more, against the terms on latents."""

    scale: float = Field(0.1, gt=0, description="mean absolute deviation of each pixel")


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """-log Laplace(target; output, scale) summed over pixels, (n,); negative where the density exceeds 1."""
    absolute = l1_loss(output, target, reduction="none").sum(dim=(1, 2, 3))
    return absolute / params.scale + math.prod(target.shape[1:]) * math.log(2 * params.scale)


RECON = Recon(name="laplace", params=Params, per_image=per_image, distance=per_image)
