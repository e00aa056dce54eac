"""Divergences between the aggregate posterior q(z) = E_x q(z|x) and a prior: Mathieu et al., ICML 2019, appendix B."""

import math

import torch
from torch import Tensor

from disentune.maths.gaussian import log_density
from disentune.plugin import Posterior

SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def inclusive_kl(points: Tensor, log_prior: Tensor, q: Posterior) -> Tensor:
    """KL(p(z) || q(z)) from points (m, d) drawn from the prior and log p at them (m,); a scalar, in nats.

    q(z) is the mean of the batch's n posteriors. The paper has sums instead of both means.
    """
    each = Posterior(q.mean[None], q.logvar[None])
    log_posteriors = log_density(each, points[:, None]).sum(dim=2)
    log_aggregate = torch.logsumexp(log_posteriors, dim=1) - math.log(len(q.mean))
    return (log_prior - log_aggregate).mean()


def _imq(x: Tensor, y: Tensor) -> Tensor:
    """Inverse multiquadratic kernels C / (C + (x_i - y_j)^2) of each latent with C = 2 s, added over all scales s."""
    squares = (x[:, None] - y[None]).square()
    return sum((2 * s / (2 * s + squares) for s in SCALES), torch.zeros_like(squares)).sum()


def mmd_imq(x: Tensor, y: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples (n, d), latent by latent; a scalar, not in nats.

    Summed over latents and scales as in the authors' code; the paper's kernel uses all latents together. The means
    within a sample exclude pairs of a point with itself, so the value is unbiased and may be negative.
    """
    n, d = x.shape
    itself = n * d * len(SCALES)
    within = _imq(x, x) - itself + _imq(y, y) - itself
    return within / (n * (n - 1)) - 2 * _imq(x, y) / n**2
