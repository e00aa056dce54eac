"""Gaussian Wasserstein correlation: Locatello et al., ICML 2019: cost of moving codes to independent Gaussians."""

import numpy as np
from pydantic import Field

from disentune.metrics.gaussian_total_correlation import centred
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")


def cost_and_trace(deviations: np.ndarray) -> tuple[float, float]:
    """Squared 2-Wasserstein distance from N(0, C) to N(0, D), and tr C; C the covariance, D its diagonal.

    The distance is 2 tr C - 2 tr (D^1/2 C D^1/2)^1/2. The last trace is the sum of the singular values of the
    deviations (n, d) times D^1/2, so that no root is taken of a rounded 0.
    """
    scaled = deviations / np.sqrt(max(len(deviations) - 1, 1))
    std = np.linalg.norm(scaled, axis=0)
    trace = float(np.sum(std**2))
    return max(0.0, 2 * trace - 2 * float(np.linalg.svd(scaled * std, compute_uv=False).sum())), trace


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Constant codes cost 0, and the share of the trace is then 0 too."""
    deviations = centred(table.codes[rows_drawn(len(table.codes), params.samples, rng)])
    scale = float(np.abs(deviations).max()) or 1.0  # squares of the smallest codes would vanish
    cost, trace = cost_and_trace(deviations / scale)
    return {
        "gaussian_wasserstein": cost * scale * scale,
        "gaussian_wasserstein_normalised": cost / trace if trace else 0.0,
    }


METRIC = Metric(
    name="gaussian_wasserstein",
    params=Params,
    keys=("gaussian_wasserstein", "gaussian_wasserstein_normalised"),
    score=score,
    fast={"samples": 2_000},
    needs=(),
    representations=("mean", "sampled"),
    best="min",
)
