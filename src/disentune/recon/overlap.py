"""Overlap loss: Michlo et al., IJCAI 2023, Eq. 11: squared error + alpha * squared error of the blurred images."""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from disentune.plugin import Count, Frozen, Recon, Shape


class Params(Frozen):
    """The paper's: a box of radius 31 and alpha 63**2, the area of the kernel, for 64x64 images."""

    kernel: Literal["box", "gaussian"] = "box"
    radius: Count = Field(ge=1)
    alpha: float = Field(ge=0)


def blur_matrix(size: int, kernel: str, radius: int) -> np.ndarray:
    """One axis of the blur, (size, size), symmetric: weights sum to 1, zeros beyond the border, sigma = radius / 4."""
    reach = np.arange(-radius, radius + 1)
    weights = np.ones(len(reach)) if kernel == "box" else np.exp(-((reach / (radius / 4)) ** 2) / 2)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    inside = apart <= radius
    return np.where(inside, weights[radius + np.where(inside, apart, 0)], 0) / weights.sum()


@lru_cache(maxsize=64)
def _blurred_twice(size: int, kernel: str, radius: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = blur_matrix(size, kernel, radius)
    return torch.from_numpy(matrix @ matrix).to(device, dtype)


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """e.e + alpha * (Ae).(Ae) for e = output - target, sums over pixels, (n,).

    The blur A is symmetric and acts on rows and columns apart, so (Ae).(Ae) = e.(AAe) and the loss is e.g with
    g = e + alpha * AAe, whose gradient is 2 g. Holding g fixed in 2 e.g - e.g gives that value and that gradient
    from one pair of small products each way. Second derivatives are not those of the loss.
    """
    error = output - target
    height, width = error.shape[-2:]
    fixed = error.detach()
    rows = _blurred_twice(height, params.kernel, params.radius, error.dtype, error.device)
    columns = _blurred_twice(width, params.kernel, params.radius, error.dtype, error.device)
    half_gradient = fixed + params.alpha * (rows @ fixed @ columns)
    value = (error * half_gradient).flatten(1).sum(dim=1)
    return 2 * value - value.detach()


def check(shape: Shape, params: Params) -> None:
    """From radius = size - 1 on, every window covers the whole image, and a larger one only shrinks the blur."""
    side = max(shape[1:])
    if params.radius >= side:
        raise ValueError(f"radius must be 1 to {side - 1} for images of {shape[1]}x{shape[2]}, but is {params.radius}")


RECON = Recon(name="overlap", params=Params, per_image=per_image, distance=per_image, check=check)
