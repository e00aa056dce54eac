"""Absolute error: code of Mathieu et al., ICML 2019: the Laplace likelihood up to its scale and a constant."""

from torch import Tensor
from torch.nn.functional import l1_loss

from disentune.plugin import Frozen, Recon


class Params(Frozen):
    """Nothing to choose."""


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Sum over pixels of the absolute error, (n,)."""
    return l1_loss(output, target, reduction="none").sum(dim=(1, 2, 3))


RECON = Recon(name="mae", params=Params, per_image=per_image, distance=per_image)
