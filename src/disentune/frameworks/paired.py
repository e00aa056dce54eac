"""Shared by frameworks of pairs: both images as one batch, and back."""

import torch
from torch import Tensor

from disentune.plugin import Batch, Posterior


def both_images(batch: Batch) -> Tensor:
    """(2n, c, h, w): the first images, followed by their partners."""
    assert batch.pair is not None, "the loop draws partners for params with `pairs`"
    return torch.cat([batch.x, batch.pair])


def halves(q: Posterior) -> tuple[Posterior, Posterior]:
    """(2n, d) of both images -> (n, d) of the first ones, (n, d) of their partners."""
    (first, second), (first_logvar, second_logvar) = q.mean.chunk(2), q.logvar.chunk(2)
    return Posterior(first, first_logvar), Posterior(second, second_logvar)
