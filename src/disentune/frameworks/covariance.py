"""Covariance of codes over a batch, and its distance from the identity (Kumar et al., ICLR 2018, Eq. 6 and 7)."""

import torch
from torch import Tensor

from disentune.plugin import Posterior


def covariance_of_means(q: Posterior) -> Tensor:
    """Cov[mean] over the batch, divided by n, (d, d)."""
    centred = q.mean - q.mean.mean(dim=0)
    return centred.T @ centred / len(centred)


def covariance_of_codes(q: Posterior) -> Tensor:
    """Cov[z] of the batch's aggregate posterior, (d, d): Cov[mean], and on its diagonal also the mean variance."""
    return covariance_of_means(q) + torch.diag(torch.exp(q.logvar).mean(dim=0))


def off_diagonal(covariance: Tensor) -> Tensor:
    """Sum of squares off the diagonal, a scalar; (i, j) and (j, i) both count."""
    return (covariance - torch.diag(covariance.diagonal())).square().sum()


def diagonal(covariance: Tensor) -> Tensor:
    """Sum of squared distances of the diagonal from 1, a scalar."""
    return (covariance.diagonal() - 1).square().sum()
