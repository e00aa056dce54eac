"""Perceptron for the pinwheel: Mathieu et al., ICML 2019: one hidden layer and a softplus standard deviation.

The recon loss defines the meaning of the decoder's outputs, for example a mean and a standard deviation. The paper's
code has two heads, for mean and deviation; here one layer outputs both.
"""

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

FLOOR = 1e-6
"""Smallest standard deviation of a code, as in the paper's code."""


class Params(Frozen):
    latents: Count = Field(2, ge=1, description="size of a code: how many latents the encoder produces")
    width: Count = Field(100, ge=1, description="units of each hidden layer")


class SoftplusDeviation(nn.Module):
    """(n, 2 d) of means and h -> means and log-variances, where the standard deviation is softplus(h) + 1e-6."""

    def forward(self, heads: Tensor) -> Tensor:
        mean, h = heads.chunk(2, dim=1)
        return torch.cat([mean, 2 * torch.log(functional.softplus(h) + FLOOR)], dim=1)


def _perceptron(inputs: int, width: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs)]


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    latents, width, output = params.latents, params.width, (channels, *shape[1:])

    def network() -> AutoEncoder:
        heads = _perceptron(math.prod(shape), width, 2 * latents)
        encoder = nn.Sequential(nn.Flatten(), *heads, SoftplusDeviation())
        decoder = nn.Sequential(*_perceptron(latents, width, math.prod(output)), nn.Unflatten(1, output))
        return AutoEncoder(encoder, decoder, latents)

    return initialised(network, generator)


MODEL = Model(name="pinwheel_mlp", params=Params, build=build)
