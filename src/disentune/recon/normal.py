"""Gaussian likelihood in nats: Mathieu et al., ICML 2019, pinwheel: with a fixed or a learned standard deviation."""

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.nn.functional import mse_loss, softplus

from disentune.plugin import Frozen, Recon

HALF_LOG_TAU = math.log(2 * math.pi) / 2
FLOOR = 1e-6
"""Added to a learned standard deviation, as Mathieu's encoder does; his decoder adds nothing.

Without it, a single pixel that fits exactly makes the likelihood infinite; in float32, softplus is 0 below -104.
"""


def _number_or_learned(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "learned" and not (number and 0 < value < math.inf):
        raise ValueError(f"must be a number > 0 or the word learned, got {value!r}")
    return value


class Params(Frozen):
    """`learned`: the decoder outputs each pixel's mean and, by softplus, its standard deviation."""

    std: Annotated[Annotated[float, Field(gt=0)] | Literal["learned"], BeforeValidator(_number_or_learned)] = Field(
        1.0, description="standard deviation of each pixel, or learned: given by the decoder"
    )


def channels(images: int, params: Params) -> int:
    """Means, then the same number of raw values for the standard deviations."""
    return 2 * images if params.std == "learned" else images


def fixed(output: Tensor, target: Tensor, std: float) -> Tensor:
    """-log N(target; output, std**2) summed over pixels, (n,)."""
    squares = mse_loss(output, target, reduction="none").sum(dim=(1, 2, 3))
    return squares / (2 * std**2) + math.prod(target.shape[1:]) * (math.log(std) + HALF_LOG_TAU)


def learned(output: Tensor, target: Tensor) -> Tensor:
    """-log N(target; mean, std**2) summed over pixels, (n,); output is (n, 2 c, h, w)."""
    mean, raw = output.chunk(2, dim=1)
    std = softplus(raw) + FLOOR
    nats = ((target - mean) / std).square() / 2 + torch.log(std)
    return nats.sum(dim=(1, 2, 3)) + math.prod(target.shape[1:]) * HALF_LOG_TAU


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Negative log-likelihood summed over pixels, (n,); negative where the density exceeds 1."""
    return learned(output, target) if params.std == "learned" else fixed(output, target, params.std)


def distance(a: Tensor, b: Tensor, params: Params) -> Tensor:
    """The loss, for target b, of a decoder whose means are image a; an image has no std, so learned counts as 1."""
    return fixed(a, b, 1.0 if params.std == "learned" else params.std)


def to_image(output: Tensor, params: Params) -> Tensor:
    """Means."""
    return output.chunk(2, dim=1)[0] if params.std == "learned" else output


RECON = Recon(
    name="normal", params=Params, per_image=per_image, distance=distance, to_image=to_image, channels=channels
)
