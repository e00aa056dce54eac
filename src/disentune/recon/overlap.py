"""Overlap loss: Michlo et al., IJCAI 2023, Eq. 11: a pixel-wise loss + alpha * the same loss of the blurred images."""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.autograd.function import once_differentiable

from disentune.plugin import Count, Frozen, Recon, Shape, added
from disentune.recon import bce
from disentune.recon.normal import HALF_LOG_TAU


class Params(Frozen):
    """The paper uses squared error, a box of radius 31 and alpha 63**2, the area of the kernel, for 64x64 images.

    `normal` is the Gaussian likelihood with standard deviation 1; `bce` interprets the decoder's output as logits.
    `disentune inspect --learn-kernel` finds the taps of a `learned` kernel, the future work that the paper names.
    """

    loss: Literal["mse", "mae", "bce", "normal"] = Field(
        "mse", description="pixel-wise loss of the images and of the blurred images"
    )
    kernel: Literal["box", "gaussian", "learned"] = Field("box", description="shape of the blur")
    radius: Count = Field(ge=1, description="radius of the blur in pixels")
    alpha: float = Field(ge=0, le=1e30, description="weight of the loss of the blurred images")  # float32 holds 3e38
    taps: list[Annotated[float, Field(ge=0, le=1)]] = added(
        [], description="`learned`: weights of a pixel 0, 1, ..., radius away on one axis; scaled to sum to 1"
    )

    @model_validator(mode="after")
    def _taps_of_a_learned_kernel(self) -> Self:
        if self.kernel != "learned":
            if self.taps:
                raise ValueError(f"taps: only for kernel: learned, but the kernel is {self.kernel}")
            return self
        if not self.taps:
            raise ValueError("kernel: learned needs its taps; disentune inspect --learn-kernel FILE finds them")
        if len(self.taps) != self.radius + 1:
            raise ValueError(f"taps: radius {self.radius} needs {self.radius + 1} weights, got {len(self.taps)}")
        if not any(self.taps):
            raise ValueError("taps: must not all be 0")
        return self


def one_side(params: Params) -> np.ndarray:
    """Weights of pixels 0, 1, ..., radius away, (radius + 1,), before they are scaled; sigma = radius / 4."""
    reach = np.arange(params.radius + 1)
    if params.kernel == "learned":
        return np.array(params.taps)
    return np.ones(len(reach)) if params.kernel == "box" else np.exp(-((reach / (params.radius / 4)) ** 2) / 2)


def blur_matrix(size: int, side: np.ndarray) -> np.ndarray:
    """One axis of the blur, (size, size), symmetric: weights sum to 1, zeros beyond the border."""
    radius = len(side) - 1
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    inside = apart <= radius
    total = np.concatenate([side[:0:-1], side]).sum()
    found: np.ndarray = np.where(inside, side[np.where(inside, apart, 0)], 0) / total
    return found


@lru_cache(maxsize=64)
def _axis(size: int, side: tuple[float, ...], times: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = np.linalg.matrix_power(blur_matrix(size, np.array(side)), times)
    with torch.inference_mode(
        False
    ):  # otherwise a first use in an evaluation would make the cache unusable for training
        return torch.from_numpy(matrix).to(device, dtype)


def _axes(images: Tensor, params: Params, times: int = 1) -> tuple[Tensor, Tensor]:
    """Matrices that blur rows (from the left) and columns (from the right) `times` times."""
    side = tuple(one_side(params))
    height, width = (_axis(size, side, times, images.dtype, images.device) for size in images.shape[-2:])
    return height, width


class _Homogeneous(torch.autograd.Function):
    """A loss of the error e = output - target, computed from its gradient.

    If loss(c e) = c**degree loss(e), Euler's theorem gives loss = e.gradient / degree, so the products for the gradient
    also give the value. The error is stored row by row, whatever the layout of the decoder's output, because products
    of small strided matrices would copy them. Second derivatives raise an error.
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
    """Half of `squared`, plus half of log(2 pi) for every pixel of the sharp image, (n,).

    The constant of the blurred image is left out: times the paper's alpha it is 4e7, where float32 cannot resolve a
    nat.
    """
    return squared(output, target, params) / 2 + prod(target.shape[1:]) * HALF_LOG_TAU


def cross_entropy(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Cross-entropy of the target under sigmoid(output), and of the blurred target under blurred probabilities, (n,).

    A blur stays in [0, 1] except for rounding, which could give log 0; `bce.distance` keeps probabilities in
    [SURE, 1 - SURE]. Beyond that only the sharp term, whose logits never saturate, has a gradient.
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
    """The loss, for target b, of a decoder that outputs image a."""
    return per_image(torch.logit(a, eps=bce.SURE) if needs_unit_range(params) else a, b, params)


def to_image(output: Tensor, params: Params) -> Tensor:
    """Probabilities for `bce`."""
    return torch.sigmoid(output) if needs_unit_range(params) else output


def check(shape: Shape, params: Params) -> None:
    """From radius = size - 1 on, every window covers the whole image, and a larger radius only scales the blur down."""
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
