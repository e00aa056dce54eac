"""Weights from a given generator, whatever state torch's global one is in."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)
MOST_WEIGHTS = 200_000_000
"""Maximum number of weights of a network: 0.8 GB, and four times that in training. Networks in the papers have a few
million."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm)
"""Layers that begin with scale 1, shift 0 and, where they have them, statistics of their own."""


def xavier(weight: Tensor, generator: torch.Generator) -> None:
    """Glorot & Bengio, AISTATS 2010, Eq. 12, as a normal law."""
    nn.init.xavier_normal_(weight, generator=generator)


def initialised(
    build: Callable[[], M], generator: torch.Generator, draw: Callable[[Tensor, torch.Generator], None] = xavier
) -> M:
    """A network of linear and convolutional layers, whose weights `draw` fills, with biases 0; normalisations start as
    the identity, their running statistics as torch has them.

    On the meta device, torch's own initialisation costs no time and does not draw from the global generator. Raises
    ValueError for a network that is too large, and for one with buffers outside normalisation layers, whose values
    would be lost.
    """
    with torch.device("meta"):
        module = build()
    weights = sum(parameter.numel() for parameter in module.parameters())
    if weights > MOST_WEIGHTS:
        raise ValueError(
            f"a network may have at most {MOST_WEIGHTS:,} weights, but this one has {weights:,}; make it smaller"
        )
    norms = {name: layer for name, layer in module.named_modules() if isinstance(layer, NORMS)}
    if lost := [name for name, _ in module.named_buffers() if name.rpartition(".")[0] not in norms]:
        raise ValueError(
            f"a network with buffers ({', '.join(lost)}) cannot be initialised this way: their values would be lost"
        )
    # Not `to_empty`, which does the same but loads a library of symbolic maths: a second in every process.
    empty = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in module.state_dict().items()}
    module.load_state_dict(empty, assign=True)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            draw(parameter, generator)
        else:
            nn.init.zeros_(parameter)
    for layer in norms.values():
        layer.reset_parameters()
    return module
