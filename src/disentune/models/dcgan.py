"""DCGAN as an autoencoder: Radford et al., ICLR 2016: in the form of Mathieu et al., ICML 2019, Table 1c.

Convolutions of 4x4 and stride 2 halve the image until its shorter side has 4 pixels: three of them at 32 pixels (32, 64
and 128 channels: the released code, on Fashion-MNIST), four at 64 pixels (up to 256: the paper, on CelebA). A last
convolution over what is left gives means and, by softplus, deviations; the decoder is the transpose. Each convolution
except the outermost is followed by batch normalisation, so the codes of an image depend on its batch while a model is
trained, and on running statistics when it is scored.
"""

import math
from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.maths.initialise import initialised
from disentune.models.pinwheel_mlp import SoftplusDeviation
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

FIRST = 32
"""Channels of the first convolution; each further one has twice as many."""
LEFT = 4
"""Pixels of the shorter side that the last convolution sees at once."""
DEVIATION, SLOPE = 0.02, 0.2
"""Standard deviation of the initial weights, and slope of LeakyReLU below 0."""


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")
    normalise_first: bool = Field(
        True, description="batch normalisation after the first convolution too: the paper; false: its released code"
    )


def stages(shape: Shape) -> int:
    """How many convolutions halve an image. Raises ValueError for a size that halving does not bring to 4 pixels."""
    height, width = shape[1:]
    short = min(height, width)
    halvings = max(0, round(math.log2(short / LEFT)))
    if halvings < 1 or short != LEFT * 2**halvings or max(height, width) % 2**halvings:
        raise ValueError(
            f"dcgan needs a shorter side of 8, 16, 32, 64 or 128 pixels and a longer one that halves as often, but "
            f"these are {height}x{width}; 32x32 and 64x64 are the published sizes; mlp supports any size"
        )
    return halvings


def check(shape: Shape, params: Params) -> None:
    stages(shape)


def _drawn(weight: Tensor, generator: torch.Generator) -> None:
    nn.init.normal_(weight, 0, DEVIATION, generator=generator)


def _encoder(shape: Shape, widths: list[int], params: Params, left: tuple[int, int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise([shape[0], *widths])):
        layers.append(nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False))
        layers += [nn.BatchNorm2d(after)] if number or params.normalise_first else []
        layers.append(nn.LeakyReLU(SLOPE, inplace=True))
    head = nn.Conv2d(widths[-1], 2 * params.latents, left)
    return nn.Sequential(*layers, head, nn.Flatten(), SoftplusDeviation())


def _decoder(channels: int, widths: list[int], params: Params, left: tuple[int, int]) -> nn.Sequential:
    lift = nn.ConvTranspose2d(params.latents, widths[-1], left, bias=False)
    layers: list[nn.Module] = [nn.Unflatten(1, (params.latents, 1, 1)), lift, *_settled(widths[-1])]
    for before, after in pairwise(reversed(widths)):
        layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False), *_settled(after)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[0], channels, 4, stride=2, padding=1))


def _settled(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    halvings = stages(shape)
    widths = [FIRST * 2**number for number in range(halvings)]
    left = shape[1] // 2**halvings, shape[2] // 2**halvings

    def network() -> AutoEncoder:
        encoder, decoder = _encoder(shape, widths, params, left), _decoder(channels, widths, params, left)
        return AutoEncoder(encoder, decoder, params.latents)

    return initialised(network, generator, _drawn)


MODEL = Model(name="dcgan", params=Params, build=build, check=check)
