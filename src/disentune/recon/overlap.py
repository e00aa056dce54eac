"""Overlap loss: Michlo et al., IJCAI 2023, Eq. 11: a pixel-wise loss + alpha * the same loss of the blurred images."""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from disentune.plugin import Count, Frozen, Recon, Shape
from disentune.recon import bce
from disentune.recon.normal import HALF_LOG_TAU


class Params(Frozen):
    """The paper's: squared error, a box of radius 31 and alpha 63**2, the area of the kernel, for 64x64 images.

    `normal` is the Gaussian likelihood of standard deviation 1; `bce` takes the decoder's output for logits.
    """

    loss: Literal["mse", "mae", "bce", "normal"] = "mse"
    kernel: Literal["box", "gaussian"] = "box"
    radius: Count = Field(ge=1)
    alpha: float = Field(ge=0, le=1e30)  # float32 holds 3e38


def blur_matrix(size: int, kernel: str, radius: int) -> np.ndarray:
    """One axis of the blur, (size, size), symmetric: weights sum to 1, zeros beyond the border, sigma = radius / 4."""
    reach = np.arange(-radius, radius + 1)
    weights = np.ones(len(reach)) if kernel == "box" else np.exp(-((reach / (radius / 4)) ** 2) / 2)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    inside = apart <= radius
    found: np.ndarray = np.where(inside, weights[radius + np.where(inside, apart, 0)], 0) / weights.sum()
    return found


@lru_cache(maxsize=64)
def _axis(size: int, kernel: str, radius: int, times: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = np.linalg.matrix_power(blur_matrix(size, kernel, radius), times)
    with torch.inference_mode(False):  # else a first use in an evaluation would spoil the cache for training
        return torch.from_numpy(matrix).to(device, dtype)


def _axes(images: Tensor, params: Params, times: int = 1) -> tuple[Tensor, Tensor]:
    """Matrices that blur rows (from the left) and columns (from the right) so many times over."""
    height, width = (
        _axis(size, params.kernel, params.radius, times, images.dtype, images.device) for size in images.shape[-2:]
    )
    return height, width


class _Homogeneous(torch.autograd.Function):
    """A loss of the error e = output - target, from its gradient alone.

    Where loss(c e) = c**degree loss(e), Euler's theorem says that loss = e.gradient / degree, so the products that
    give the gradient give the value. The error is laid out by rows whatever the layout of the decoder's output:
    small products of strided matrices would copy them. Asking for second derivatives raises.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, target: Tensor, gradient: Callable[[Tensor], Tensor], degree: int) -> Tensor:
        error = torch.empty_like(target, memory_format=torch.contiguous_format)
        torch.sub(output, target, out=error)
        slope = gradient(error)
        ctx.save_for_backward(slope)
        return error.mul_(slope).sum(dim=(1, 2, 3)) / degree

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (slope,) = ctx.saved_tensors
        toward = upstream.reshape(-1, 1, 1, 1) * slope
        return toward, -toward if ctx.needs_input_grad[1] else None, None, None


def _plus_product(start: Tensor, rows: Tensor, images: Tensor, columns: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * start + alpha * (rows @ images @ columns) of contiguous (n, c, h, w), with the sum inside the product."""
    width = images.shape[-1]
    half = (rows @ images.view(-1, *images.shape[-2:])).view(-1, width)
    return torch.addmm(start.view(-1, width), half, columns, beta=beta, alpha=alpha).view_as(images)


def squared(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """e.e + alpha * (Ae).(Ae), (n,): the blur A is symmetric, so the gradient is 2 (e + alpha * AAe)."""

    def gradient(error: Tensor) -> Tensor:
        rows, columns = _axes(error, params, times=2)
        return _plus_product(error, rows, error, columns, beta=2, alpha=2 * params.alpha)

    found: Tensor = _Homogeneous.apply(output, target, gradient, 2)
    return found


def absolute(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """|e| + alpha * |Ae| summed over pixels, (n,): the gradient is sign(e) + alpha * A sign(Ae)."""

    def gradient(error: Tensor) -> Tensor:
        rows, columns = _axes(error, params)
        signs = (rows @ error @ columns).sign_()
        return _plus_product(error.sign(), rows, signs, columns, beta=1, alpha=params.alpha)

    found: Tensor = _Homogeneous.apply(output, target, gradient, 1)
    return found


def gaussian(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Half of `squared`, and half of log(2 pi) for every pixel of the sharp image, (n,).

    The blurred image's constant is left out: times the paper's alpha it is 4e7, of which float32 keeps no nat.
    """
    return squared(output, target, params) / 2 + prod(target.shape[1:]) * HALF_LOG_TAU


def cross_entropy(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Of the target under sigmoid(output), and of the blurred target under the blurred probabilities, (n,).

    A blur keeps [0, 1] but for rounding, which would give log 0 or worse; `bce.distance` holds probabilities in
    [SURE, 1 - SURE]. Beyond it only the sharp term, whose logits never saturate, has a gradient.
    """
    rows, columns = _axes(target, params)
    shown, wanted = rows @ torch.sigmoid(output) @ columns, rows @ target @ columns
    return bce.per_image(output, target, bce.Params()) + params.alpha * bce.distance(shown, wanted, bce.Params())


LOSSES = {"mse": squared, "mae": absolute, "bce": cross_entropy, "normal": gaussian}


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Eq. 11 with sums over pixels, (n,)."""
    return LOSSES[params.loss](output, target, params)


def needs_unit_range(params: Params) -> bool:
    return params.loss == "bce"


def distance(a: Tensor, b: Tensor, params: Params) -> Tensor:
    """The loss, for target b, of a decoder that shows image a."""
    return per_image(torch.logit(a, eps=bce.SURE) if needs_unit_range(params) else a, b, params)


def to_image(output: Tensor, params: Params) -> Tensor:
    """Probabilities for `bce`."""
    return torch.sigmoid(output) if needs_unit_range(params) else output


def check(shape: Shape, params: Params) -> None:
    """From radius = size - 1 on, every window covers the whole image, and a larger one only shrinks the blur."""
    side = max(shape[1:])
    if params.radius >= side:
        raise ValueError(f"radius must be 1 to {side - 1} for images of {shape[1]}x{shape[2]}, but is {params.radius}")


RECON = Recon(
    name="overlap",
    params=Params,
    per_image=per_image,
    distance=distance,
    to_image=to_image,
    needs_unit_range=needs_unit_range,
    check=check,
)
