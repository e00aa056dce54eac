"""Shared by the convolutional models: their layers, the supported image sizes, and how a network is built.

Names and shapes of the parameters are those of the same network made of nn.Conv2d and nn.ConvTranspose2d; only the
computation on a CPU differs. Measured with one thread at 3x64x64 (benchmarks/bench_conv_step.py), these are faster: the
layout channels_last between the layers; the bias of a transposed convolution added outside it, because oneDNN's
gradient of it is slow in that layout; ReLU in place; and the last layer's forward pass as in `_LastUp`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder, Shape

HIDDEN = 256
"""Units of a dense layer, unless an architecture says otherwise."""


class Stage(NamedTuple):
    """A convolution with stride 2, which halves the image, or nearly so."""

    outputs: int
    kernel: int
    padding: int


@dataclass(frozen=True)
class Architecture:
    """The encoder has the stages `down`, `dense` layers and a head.

    The decoder has the same number of dense layers, makes a small image of `up[0]` channels, and doubles it once for
    each of `up`, the input channels of these layers.
    """

    name: str
    down: tuple[Stage, ...]
    up: tuple[int, ...]
    dense: int = 1
    hidden: int = HIDDEN
    linear: bool = False
    """Whether the encoder's dense layers have no activation."""

    def check(self, shape: Shape) -> None:
        """Raises ValueError for a size that the decoder cannot reach by doubling."""
        sides, multiple = shape[1:], 2 ** len(self.up)
        if any(side % multiple for side in sides):
            nearest = [max(1, (side + multiple // 2) // multiple) * multiple for side in sides]
            raise ValueError(
                f"{self.name} needs a height and width that are multiples of {multiple}, but these are "
                f"{sides[0]}x{sides[1]}; the nearest supported size is {nearest[0]}x{nearest[1]}; mlp supports any size"
            )

    def features(self, shape: Shape) -> int:
        """Number of features after the last stage."""
        height, width = shape[1:]
        for stage in self.down:
            height, width = ((side + 2 * stage.padding - stage.kernel) // 2 + 1 for side in (height, width))
        return self.down[-1].outputs * height * width


def network(
    architecture: Architecture, shape: Shape, channels: int, latents: int, generator: torch.Generator
) -> AutoEncoder:
    """From images of this shape to images of `channels` channels and the same size."""
    architecture.check(shape)
    up, units = architecture.up, [architecture.hidden] * architecture.dense
    small = (up[0], *(side // 2 ** len(up) for side in shape[1:]))

    def both() -> AutoEncoder:
        widths = [architecture.features(shape), *units, 2 * latents]
        head = _linear(widths) if architecture.linear else _dense(widths)
        encoder = [*_downward(shape[0], architecture.down), nn.Flatten(), *head]
        lift = [*_dense([latents, *units, prod(small)]), nn.ReLU(inplace=True), nn.Unflatten(1, small)]
        return AutoEncoder(nn.Sequential(*encoder), nn.Sequential(*lift, *_upward(up, channels)), latents)

    return initialised(both, generator)


def _downward(channels: int, stages: Sequence[Stage]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for outputs, kernel, padding in stages:
        layers += [Down(channels, outputs, kernel, stride=2, padding=padding), nn.ReLU(inplace=True)]
        channels = outputs
    return layers


def _upward(inputs: Sequence[int], channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(inputs):
        layers += [Up(before, after), nn.ReLU(inplace=True)]
    return [*layers, LastUp(inputs[-1], channels)]


def _dense(widths: list[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
    return layers[:-1]


def _linear(widths: list[int]) -> list[nn.Module]:
    return [nn.Linear(before, after) for before, after in pairwise(widths)]


class Down(nn.Conv2d):
    """A convolution that uses the fast layout; inside a network its input already has it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_laid_out(x))


class Up(nn.ConvTranspose2d):
    """Kernel 4, stride 2, padding 1: doubles the image exactly."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, kernel_size=4, stride=2, padding=1)

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        assert self.bias is not None
        doubled = functional.conv_transpose2d(_laid_out(x), self.weight, None, stride=2, padding=1)
        bias = self.bias[:, None, None]
        return doubled + bias if torch.compiler.is_compiling() else doubled.add_(bias)


class LastUp(Up):
    """The same layer for the few channels of an image; returns the usual layout of images."""

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):  # which casts plain layers, but not ours
            return functional.conv_transpose2d(x, self.weight, self.bias, stride=2, padding=1)
        if torch.compiler.is_compiling():  # the compiler handles the gradient of plain layers, but not of ours
            assert self.bias is not None
            parities = functional.conv2d(_laid_out(x), _windows(self.weight), self.bias.repeat_interleave(4), padding=1)
            return functional.pixel_shuffle(parities, 2)[:, :, 1:-1, 1:-1]
        found: Tensor = _LastUp.apply(_laid_out(x), self.weight, self.bias)
        return found


class _LastUp(torch.autograd.Function):
    """A transposed convolution of kernel 4, stride 2 and padding 1 whose forward is a convolution of kernel 2.

    The output pixels of one parity (there are 2x2) see a window of 2x2 inputs through every second weight. So the
    four parities are four channels of one convolution, interleaved afterwards (Shi et al., arXiv 1609.07009). That
    takes 6 ms where oneDNN's forward takes 14 (batch 64, 32 to 3 channels); oneDNN's backward is fast and is kept.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        windows = _windows(weight)
        unused = -len(windows) % 8  # full vectors: 16 channels take 4.5 ms, 12 take 6.2
        windows = functional.pad(windows, (0, 0, 0, 0, 0, 0, 0, unused))
        biases = functional.pad(bias.repeat_interleave(4), (0, unused))
        return _interleaved(functional.conv2d(x, windows, biases, padding=1), len(bias))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (gradient,) = ctx.saved_tensors, gradients
        needed = [*ctx.needs_input_grad[:2], False]
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [2, 2], [1, 1], [1, 1], True, [0, 0], 1, needed
        )
        return of_x, of_weight, gradient.sum((0, 2, 3))


def _laid_out(x: Tensor) -> Tensor:
    """x in channels_last on a CPU; copies only if necessary.

    Tensor.contiguous would keep the strides of a single channel, which torch mistakes for the other layout.
    """
    if x.device.type != "cpu":
        return x
    if torch.compiler.is_compiling():
        return x.contiguous(memory_format=torch.channels_last)
    pixels = x.permute(0, 2, 3, 1)
    return pixels.flatten().view(pixels.shape).permute(0, 3, 1, 2)


def _windows(weight: Tensor) -> Tensor:
    """Weights (inputs, c, 4, 4) -> (4 c, inputs, 2, 2), the four parities of a channel together."""
    rows_and_columns = weight.unflatten(3, (2, 2)).unflatten(2, (2, 2)).flip(2, 4)
    found: Tensor = rows_and_columns.permute(1, 3, 5, 0, 2, 4).flatten(0, 2)
    return found


def _interleaved(parities: Tensor, channels: int) -> Tensor:
    """(n, at least 4 c, h + 1, w + 1) -> (n, c, 2 h, 2 w): the outermost pixels lie in the transposed padding."""
    rows_and_columns = parities[:, : 4 * channels].unflatten(1, (channels, 2, 2)).permute(0, 1, 4, 2, 5, 3)
    found: Tensor = rows_and_columns.flatten(4, 5).flatten(2, 3)[:, :, 1:-1, 1:-1].contiguous()
    return found
