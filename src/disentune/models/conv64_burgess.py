"""Convolutional network for 64x64 images: Burgess et al., arXiv 2018, appendix: four convolutions, two dense layers.

Four convolutions of 32 channels, 4x4 and stride 2, then two dense layers of 256 units;
the decoder is the transpose. The padding is not given; 1 halves the size exactly. Also accepts multiples of 16.
"""

import torch
from pydantic import Field

from disentune.models.convolutional import Architecture, Stage, network
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

ARCHITECTURE = Architecture(
    "conv64_burgess",
    down=(Stage(32, 4, 1), Stage(32, 4, 1), Stage(32, 4, 1), Stage(32, 4, 1)),
    up=(32, 32, 32, 32),
    dense=2,
)


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")


def check(shape: Shape, params: Params) -> None:
    ARCHITECTURE.check(shape)


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    return network(ARCHITECTURE, shape, channels, params.latents, generator)


MODEL = Model(name="conv64_burgess", params=Params, build=build, check=check)
