"""Binary cross-entropy on logits: Kingma & Welling, ICLR 2014, appendix C.1: the Bernoulli likelihood."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from disentune.plugin import Frozen, Recon

SURE = 1e-6
"""Probabilities of a distance are in [SURE, 1 - SURE], so a wrong black or white pixel costs ln(1 / SURE) = 13.8
nats."""


class Params(Frozen):
    """Nothing to choose."""


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Sum over pixels of the cross-entropy of a target in [0, 1], (n,)."""
    return binary_cross_entropy_with_logits(output, target, reduction="none").sum(dim=(1, 2, 3))


def distance(a: Tensor, b: Tensor, params: Params) -> Tensor:
    """The loss, for target b, of a decoder whose probabilities are image a; smallest for a = b, not symmetric."""
    return per_image(torch.logit(a, eps=SURE), b, params)


def to_image(output: Tensor, params: Params) -> Tensor:
    """Probabilities."""
    return torch.sigmoid(output)


RECON = Recon(
    name="bce",
    params=Params,
    per_image=per_image,
    distance=distance,
    to_image=to_image,
    needs_unit_range=lambda params: True,
)
