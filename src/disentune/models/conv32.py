"""Convolutional network for 32x32 images: after Michlo et al., IJCAI 2023: conv64 without its second stage.

Unpublished. At 32x32 the dense layers are those of conv64 at 64x64: 1600 features in, 64x4x4 out. Also accepts
multiples of 8.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture("conv32", down=(Stage(32, 4, 2), Stage(64, 4, 2), Stage(64, 4, 2)), up=(64, 64, 32))


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv32", params=Params, build=build, check=check)
