"""Linear VAE: Lucas et al. 2019; Zietlow et al., ICML 2021: one dense layer each way, whose optimum is PCA.

In theory the log-variance does not depend on x. Here the encoder's single layer outputs both mean and log-variance;
with a squared error, its weights for the log-variance are zero at the optimum.
"""

import math

import torch
from pydantic import Field
from torch import nn

from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape


class Params(Frozen):
    latents: Count = Field(ge=1, description="size of a code: how many latents the encoder produces")


def build(shape: Shape, channels: int, params: Params, generator: torch.Generator) -> AutoEncoder:
    output = (channels, *shape[1:])

    def network() -> AutoEncoder:
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 2 * params.latents))
        decoder = nn.Sequential(nn.Linear(params.latents, math.prod(output)), nn.Unflatten(1, output))
        return AutoEncoder(encoder, decoder, params.latents)

    return initialised(network, generator)


MODEL = Model(name="linear", params=Params, build=build)
