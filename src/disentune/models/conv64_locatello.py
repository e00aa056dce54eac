"""Convolutional network for 64x64 images: Locatello et al., ICML 2019: as in their disentanglement_lib.

Its last two kernels are 2x2 (the paper's table says 4x4); TensorFlow's padding "same" is 1 for 4x4 and 0 for 2x2 at
stride 2. Their two heads are one layer here, with the same numbers. Also accepts multiples of 16.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture(
    "conv64_locatello", down=(Stage(32, 4, 1), Stage(32, 4, 1), Stage(64, 2, 0), Stage(64, 2, 0)), up=(64, 64, 32, 32)
)


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv64_locatello", params=Params, build=build, check=check)
