"""Manipulations of images: Zietlow et al., ICML 2021, section 4: x' = x + epsilon m(w), reflected into [0, 1].

m sees the factors w through a single number, so all images with the same number are changed alike, and |m| <= 1. The
paper leaves the scaling of w, the activation of the single unit and what bounds m open: here each factor is spread
evenly over [-1, 1], the unit is logistic and m a hyperbolic tangent. At a black or white pixel a change and its
opposite look the same after reflection, so a unit between -1 and 1 tends to give its two ends the same images.
"""

import torch
from torch import Tensor, nn

from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder


class Bottleneck(nn.Sequential):
    """Factors (n, k) -> (n, 1) in [0, 1]: the hidden layer of one unit."""


def bottleneck(factors: int, generator: torch.Generator) -> Bottleneck:
    return initialised(lambda: Bottleneck(nn.Linear(factors, 1), nn.Sigmoid()), generator)


def pattern(model: AutoEncoder, unit: Tensor) -> Tensor:
    """m, (n, c, h, w) in [-1, 1]: what the decoder draws when each of its latents is the hidden unit (n, 1)."""
    return torch.tanh(model.decode(unit.expand(-1, model.latents)))


def manipulated(x: Tensor, change: Tensor) -> Tensor:
    """Images in [0, 1] plus a change in [-1, 1], reflected at 0 and 1; no pixel ends farther away than its change."""
    moved = (x + change).abs()
    return torch.minimum(moved, 2 - moved)
