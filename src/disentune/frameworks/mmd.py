"""Maximum mean discrepancy between two samples (Gretton et al., JMLR 2012, Eq. 3), and kernels for it."""

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor, float], Tensor]
"""(squared distances, scale) -> similarities in (0, 1]."""


def rbf(squares: Tensor, scale: float) -> Tensor:
    """Gaussian kernel exp(-squares / scale)."""
    return torch.exp(-squares / scale)


def imq(squares: Tensor, scale: float) -> Tensor:
    """Inverse multiquadratic kernel scale / (scale + squares), with heavier tails than the Gaussian one."""
    return scale / (scale + squares)


KERNELS: dict[str, Kernel] = {"rbf": rbf, "imq": imq}


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """(n, d) and (m, d) -> (n, m), by differences: exactly 0 for equal rows, with finite gradients there."""
    return (x[:, None] - y).square().sum(dim=2)


def _mean_off_diagonal(similarities: Tensor) -> Tensor:
    n = len(similarities)
    return (similarities.sum() - similarities.trace()) / (n * (n - 1))


def mmd(x: Tensor, y: Tensor, kernel: Kernel, scale: float) -> Tensor:
    """Unbiased estimate of the squared MMD of x (n, d) and y (m, d), a scalar; if the MMD is 0, often negative."""
    within = [_mean_off_diagonal(kernel(squared_distances(one, one), scale)) for one in (x, y)]
    return sum(within) - 2 * kernel(squared_distances(x, y), scale).mean()
