"""Convolutional network for 64x64 images: Michlo et al., IJCAI 2023, Table A3, with the padding of 2 of their code.

The padding is hidden in the table: 64 -> 33 -> 17 -> 9 -> 5 pixels a side, so 1600 features and not 1024. Multiples of
16 fit as well.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture(
    "conv64", down=(Stage(32, 4, 2), Stage(32, 4, 2), Stage(64, 4, 2), Stage(64, 4, 2)), up=(64, 64, 32, 32)
)


class Params(Frozen):
    latents: Count = Field(ge=1)


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv64", params=Params, build=build, check=check)
