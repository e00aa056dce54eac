"""Weights from a given generator, whatever state torch's global one is in."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)
MOST_WEIGHTS = 200_000_000
"""Of a network: 0.8 GB, and four times as much in training. Those of the papers have a few million."""


def initialised(build: Callable[[], M], generator: torch.Generator) -> M:
    """A network of linear and convolutional layers: weights Xavier-normal (Glorot & Bengio, AISTATS 2010, Eq. 12, as a
    normal law), biases 0.

    On the meta device, torch's own initialisation neither costs time nor draws from the global generator; a network
    that no machine would hold is refused there, with a ValueError, and so is one with buffers, whose values are lost.
    """
    with torch.device("meta"):
        module = build()
    weights = sum(parameter.numel() for parameter in module.parameters())
    if weights > MOST_WEIGHTS:
        raise ValueError(f"a network may have {MOST_WEIGHTS:,} weights, but this one has {weights:,}; make it smaller")
    if names := [name for name, _ in module.named_buffers()]:
        raise ValueError(f"a network with buffers ({', '.join(names)}) cannot be initialised so: it would lose them")
    # Not `to_empty`, which does the same and loads a library of symbolic maths for it: a second of every process.
    empty = {name: torch.empty(parameter.shape) for name, parameter in module.named_parameters()}
    module.load_state_dict(empty, assign=True)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    return module
