"""Diagonal Gaussians: samples and divergences (Kingma & Welling, ICLR 2014, Eq. 10 and appendix B)."""

import math

import numpy as np
import torch
from torch import Tensor

from disentune.plugin import Posterior


def sample(q: Posterior, rng: np.random.Generator) -> Tensor:
    """Reparameterised z = mean + std * noise, (n, d).

    The noise is drawn in float64 on the CPU and then cast, so that every device and precision gets the same draw.
    """
    noise = torch.from_numpy(rng.standard_normal(tuple(q.mean.shape)))
    return q.mean + torch.exp(q.logvar / 2) * noise.to(q.mean)


def kl(q: Posterior, p: Posterior) -> Tensor:
    """KL(q || p) of each latent, (n, d), in nats."""
    log_ratio = q.logvar - p.logvar
    squares = (q.mean - p.mean).square() * torch.exp(-p.logvar)
    return (torch.exp(log_ratio) + squares - 1 - log_ratio) / 2


def kl_to_prior(q: Posterior) -> Tensor:
    """KL(q || N(0, 1)) of each latent, (n, d), in nats."""
    return (torch.exp(q.logvar) + q.mean.square() - 1 - q.logvar) / 2


def symmetric_kl(q: Posterior, p: Posterior) -> Tensor:
    """Half of KL(q || p) plus half of KL(p || q), (n, d); exactly 0 where q equals p."""
    return (kl(q, p) + kl(p, q)) / 2


def nats_per_image(divergence: Tensor) -> Tensor:
    """(n, d) -> scalar: mean over the batch of the sum over latents."""
    return divergence.sum() / len(divergence)


def log_density(q: Posterior, z: Tensor) -> Tensor:
    """log q(z) of each latent, in nats; q and z are broadcast against each other."""
    squares = (z - q.mean).square() * torch.exp(-q.logvar)
    return -(math.log(2 * math.pi) + q.logvar + squares) / 2
