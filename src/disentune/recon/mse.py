"""Squared error: Kingma & Welling, ICLR 2014: the Gaussian likelihood up to a factor and a constant."""

from torch import Tensor
from torch.nn.functional import mse_loss

from disentune.plugin import Frozen, Recon


class Params(Frozen):
    """Nothing to choose."""


def per_image(output: Tensor, target: Tensor, params: Params) -> Tensor:
    """Sum over pixels of the squared error, (n,)."""
    return mse_loss(output, target, reduction="none").sum(dim=(1, 2, 3))


RECON = Recon(name="mse", params=Params, per_image=per_image, distance=per_image)
