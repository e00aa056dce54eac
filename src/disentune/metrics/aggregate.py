"""The aggregate posterior q(z) = mean of q(z|x) over a table's rows, and the prior that it is compared with."""

import math

import numpy as np
from scipy.special import logsumexp

from disentune.plugin import CodeLaw, Table

CHUNK = 256
"""Points whose densities under every posterior are held at once."""
SMALLEST = -300.0
"""The smallest log-variance; smaller ones would overflow."""


def posteriors(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Means and log-variances, (n, d) each; codes must be the means, unless the table has these."""
    assert table.logvars is not None
    return table.codes if table.means is None else table.means, table.logvars


def prior_of(table: Table) -> CodeLaw:
    return table.prior or STANDARD_NORMAL


def _log_normal(codes: np.ndarray) -> np.ndarray:
    found: np.ndarray = -((codes**2).sum(axis=1) + codes.shape[1] * math.log(2 * math.pi)) / 2
    return found


STANDARD_NORMAL = CodeLaw(_log_normal, lambda count, latents, rng: rng.standard_normal((count, latents)))


def log_aggregate(points: np.ndarray, means: np.ndarray, logvars: np.ndarray) -> np.ndarray:
    """log q(z) at points (m, d), (m,)."""
    parts = np.array_split(points, max(1, -(-len(points) // CHUNK)))
    return np.concatenate([_log_mixture(part, means, logvars) for part in parts])


def _log_mixture(points: np.ndarray, means: np.ndarray, logvars: np.ndarray) -> np.ndarray:
    """One latent after the other: differences keep their digits, which a multiplied out square would lose."""
    logvars = np.maximum(logvars, SMALLEST)
    exponents = np.tile(logvars.sum(axis=1) + means.shape[1] * math.log(2 * math.pi), (len(points), 1))
    for point, mean, precision in zip(points.T, means.T, np.exp(-logvars).T, strict=True):
        exponents += (point[:, None] - mean) ** 2 * precision
    found: np.ndarray = logsumexp(-exponents / 2, axis=1) - math.log(len(means))
    return found
