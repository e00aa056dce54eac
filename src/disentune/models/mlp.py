"""Multi-layer perceptron with ReLU: our own: the smallest network that shows the effects, for images of any size."""

import math
from itertools import pairwise

import torch
from pydantic import Field
from torch import nn

from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape

DEEPEST = 100


class Params(Frozen):
    """`depth` hidden layers of `width` units in the encoder, and as many in the decoder."""

    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")
    width: Count = Field(128, ge=1, description="units of each hidden layer")
    depth: Count = Field(2, ge=1, description="hidden layers of the encoder, and of the decoder")


def check(shape: Shape, params: Params) -> None:
    if params.depth > DEEPEST:
        raise ValueError(f"mlp may have at most {DEEPEST} hidden layers, but depth is {params.depth}")


def _layers(sizes: list[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    output, hidden = (channels, *shape[1:]), [params.width] * params.depth

    def network() -> AutoEncoder:
        encoder = nn.Sequential(nn.Flatten(), *_layers([math.prod(shape), *hidden, 2 * params.latents]))
        decoder = nn.Sequential(*_layers([params.latents, *hidden, math.prod(output)]), nn.Unflatten(1, output))
        return AutoEncoder(encoder, decoder, params.latents)

    return initialised(network, generator)


MODEL = Model(name="mlp", params=Params, build=build, check=check)
