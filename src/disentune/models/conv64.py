"""Convolutional network for 64x64 images: Michlo et al., IJCAI 2023, Table A3: with a padding of 2, as in their code.

The table does not show the padding: 64 -> 33 -> 17 -> 9 -> 5 pixels per side, so 1600 features and not 1024. Also
accepts multiples of 16.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture(
    "conv64", down=(Stage(32, 4, 2), Stage(32, 4, 2), Stage(64, 4, 2), Stage(64, 4, 2)), up=(64, 64, 32, 32)
)


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv64", params=Params, build=build, check=check)
