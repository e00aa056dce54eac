"""Convolutional network for 64x64 images: Mathieu et al., ICML 2019, Table 1a: as in their code.

Four convolutions, 4x4 and stride 2, of 32, 32, 64 and 64 channels; then a dense layer of 128 units that has no
activation, so that it and the head together are one linear map of rank 128. The decoder has ReLU after each of its
dense layers. The table says neither padding nor that; both are those of the released code. Its two heads are one here,
of the same numbers: means and log-variances. Multiples of 16 fit as well.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture(
    "conv64_mathieu",
    down=(Stage(32, 4, 1), Stage(32, 4, 1), Stage(64, 4, 1), Stage(64, 4, 1)),
    up=(64, 64, 32, 32),
    hidden=128,
    linear=True,
)


class Params(Frozen):
    latents: Count = Field(10, ge=1, description="size of a code: how many latents the encoder produces")


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv64_mathieu", params=Params, build=build, check=check)
