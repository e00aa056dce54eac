"""Hoyer sparsity: Mathieu et al., ICML 2019: 1 if each image uses one code, 0 if it uses all codes equally."""

import numpy as np

from disentune.plugin import Frozen, Metric, Table


class Params(Frozen):
    """Nothing to choose."""


def scaled(codes: np.ndarray) -> np.ndarray:
    """Codes divided by their standard deviation, not centred, (n, d); constant codes are left out."""
    varied = codes[:, np.ptp(codes, axis=0) > 0]
    varied = varied / np.abs(varied).max(axis=0)  # squares of the smallest would vanish
    found: np.ndarray = varied / varied.std(axis=0)
    return found


def sparsity(z: np.ndarray) -> float:
    """(sqrt d - mean of |z|_1 / |z|_2) / (sqrt d - 1) over rows of (n, d).

    A row of zeros has no direction and is left out. One code or none cannot be sparse: 0.
    """
    z = z[z.any(axis=1)]
    root = np.sqrt(z.shape[1])
    if root <= 1:
        return 0.0
    ratio = np.linalg.norm(z, 1, axis=1) / np.linalg.norm(z, axis=1)
    return float(np.clip((root - ratio.mean()) / (root - 1), 0, 1))


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    return {"hoyer": sparsity(scaled(table.codes))}


METRIC = Metric(
    name="hoyer", params=Params, keys=("hoyer",), score=score, needs=(), representations=("mean", "sampled")
)
