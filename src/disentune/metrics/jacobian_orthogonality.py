"""Jacobian orthogonality: Rolinek et al., CVPR 2019, Sec. 4: distance of the decoder's local axes from the latents.

The decoder's Jacobian at a code is J = U S V^T. Its columns are orthogonal where V is a signed permutation matrix: each
latent then moves the image in a direction of its own. Zietlow et al. (ICML 2021) show that a VAE's loss favours such
decoders. The score is the mean over images of ||V - P||, where P is the signed permutation matrix nearest to V
(Frobenius norm): 0 is orthogonal. Only active latents count, because the others do not change the image. If two
singular values are equal, V is arbitrary, so compare scores only between decoders whose latents differ in importance.
"""

import numpy as np
import scipy.optimize
from pydantic import Field

from disentune.errors import DataError
from disentune.metrics.active_units import variances
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows of the table to use, and the mean posterior variance below which a latent is active."""

    samples: Count = Field(256, ge=1, description="rows of the table to use")
    threshold: float = Field(0.8, gt=0, description="mean posterior variance below which a latent is active")


def distance_to_signed_permutation(rotation: np.ndarray) -> float:
    """||V - P|| of an orthogonal matrix (d, d) and the signed permutation matrix P nearest to it.

    ||V - P||^2 = 2 d - 2 sum_i |V_ip(i)|, so the nearest permutation has the largest sum of absolute entries.
    """
    rows, columns = scipy.optimize.linear_sum_assignment(np.abs(rotation), maximize=True)
    overlap = np.abs(rotation[rows, columns]).sum()
    return float(np.sqrt(max(0.0, 2 * len(rotation) - 2 * overlap)))


def axes(gram: np.ndarray) -> np.ndarray:
    """V of the singular value decomposition J = U S V^T, from J^T J (..., d, d)."""
    found: np.ndarray = np.linalg.eigh(gram).eigenvectors
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    assert table.gram is not None
    assert table.logvars is not None
    active = np.flatnonzero(variances(table.logvars).mean(axis=0) < params.threshold)
    if not len(active):
        raise DataError(f"no latent is active: every mean posterior variance is at least {params.threshold:g}")
    grams = table.gram(rows_drawn(len(table.codes), params.samples, rng))
    if not np.isfinite(grams).all():
        raise DataError("the decoder's Jacobian is not finite")
    rotations = axes(grams[:, active[:, None], active])
    return {"jacobian_orthogonality": float(np.mean([distance_to_signed_permutation(v) for v in rotations]))}


METRIC = Metric(
    name="jacobian_orthogonality",
    params=Params,
    keys=("jacobian_orthogonality",),
    score=score,
    fast={"samples": 64},
    needs=("gram", "logvars"),
    best="min",
)
