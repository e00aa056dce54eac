"""Convolutional network for 64x64 images: Michlo et al., IJCAI 2023, Table A3, with the padding of 2 of their code."""

import torch
from pydantic import Field
from torch import nn

from disentune.models.initialise import initialised
from disentune.plugin import AutoEncoder, Count, Frozen, Model, Shape


class Params(Frozen):
    latents: Count = Field(ge=1)


def check(shape: Shape, params: Params) -> None:
    if shape[1:] != (64, 64):
        raise ValueError(f"conv64 needs images of 64x64, but these are {shape[1]}x{shape[2]}; mlp takes any size")


def _encoder(channels: int, latents: int) -> nn.Module:
    # 64 -> 33 -> 17 -> 9 -> 5 pixels a side
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 32), (32, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, kernel_size=4, stride=2, padding=2), nn.ReLU()]
    dense = [nn.Linear(64 * 5 * 5, 256), nn.ReLU(), nn.Linear(256, 2 * latents)]
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _decoder(channels: int, latents: int) -> nn.Module:
    dense = [nn.Linear(latents, 256), nn.ReLU(), nn.Linear(256, 64 * 4 * 4), nn.ReLU(), nn.Unflatten(1, (64, 4, 4))]
    layers: list[nn.Module] = []
    for inputs, outputs in ((64, 64), (64, 32), (32, 32), (32, channels)):
        layers += [nn.ConvTranspose2d(inputs, outputs, kernel_size=4, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*dense, *layers[:-1])


def build(shape: Shape, params: Params, generator: torch.Generator) -> AutoEncoder:
    check(shape, params)
    channels, latents = shape[0], params.latents
    return initialised(
        lambda: AutoEncoder(_encoder(channels, latents), _decoder(channels, latents), latents), generator
    )


MODEL = Model(name="conv64", params=Params, build=build, check=check)
