"""Densities of codes under the posteriors of other images, in blocks: what a mixture of all posteriors takes to know.

Everything is in nats and in float64. A row of a block is one code, a column one image's posterior.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from disentune.metrics.active_units import LARGEST_LOGVAR
from disentune.metrics.table import rows_drawn
from disentune.plugin import Table

BLOCK = 2**22
"""Numbers of a block of codes, posteriors and latents: 32 MB."""
LOG_TAU = math.log(2 * math.pi)


class Gaussians(NamedTuple):
    """Posteriors of n images, (n, d) each, and one draw from each of them."""

    means: np.ndarray
    logvars: np.ndarray
    z: np.ndarray

    def some(self, rows: slice) -> "Gaussians":
        return Gaussians(self.means[rows], self.logvars[rows], self.z[rows])


def drawn(table: Table, wanted: int, rng: np.random.Generator) -> Gaussians:
    """The posteriors of `wanted` random images, or of all, with a code from each; variances are clipped to float64."""
    assert table.logvars is not None
    rows = rows_drawn(len(table.codes), wanted, rng)
    means = (table.codes if table.means is None else table.means)[rows]
    logvars = np.clip(table.logvars[rows], -LARGEST_LOGVAR, LARGEST_LOGVAR)
    return Gaussians(means, logvars, means + np.exp(logvars / 2) * rng.standard_normal(means.shape))


def log_densities(z: np.ndarray, means: np.ndarray, logvars: np.ndarray) -> np.ndarray:
    """log N(z; mean, variance) of each latent; all three are broadcast against each other."""
    with np.errstate(over="ignore"):
        squares = (z - means) ** 2 * np.exp(-logvars)
    found: np.ndarray = -(LOG_TAU + logvars + squares) / 2
    return found


def blocks(q: Gaussians) -> Iterator[tuple[slice, np.ndarray]]:
    """Some codes at a time, and the log-density of each latent of each under every posterior, (m, n, d)."""
    n, d = q.means.shape
    step = max(1, BLOCK // (n * d))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        yield rows, log_densities(q.z[rows, None], q.means, q.logvars)


def own_log_densities(q: Gaussians) -> np.ndarray:
    """log q(z|x) of each code under its own posterior, (n,)."""
    found: np.ndarray = log_densities(q.z, q.means, q.logvars).sum(axis=1)
    return found
