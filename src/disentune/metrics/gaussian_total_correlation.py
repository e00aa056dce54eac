"""Gaussian total correlation: Locatello et al., ICML 2019: how far from independent Gaussian codes are."""

import numpy as np
from pydantic import Field

from disentune.errors import DataError
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table

VISIBLE = 1e-6
"""Smallest weight with which a code counts as part of a unit-length combination."""


class Params(Frozen):
    """Rows of the table to use."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")


def centred(codes: np.ndarray) -> np.ndarray:
    """Centred codes, (n, d); exactly 0 for a constant code, whose mean may be rounded."""
    moved = codes - codes[0]
    found: np.ndarray = moved - moved.mean(axis=0)
    return found


def total_correlation(codes: np.ndarray) -> float:
    """0.5 * (sum of log variances - log determinant of the covariance) of codes (n, d), in nats.

    With columns of unit length the determinant is the product of the squared singular values, which lose nothing
    to a near-singular covariance. A constant code is independent of all others and left out.
    """
    deviations = centred(codes)
    varied = np.flatnonzero(deviations.any(axis=0))
    if len(varied) < 2:
        return 0.0
    if len(codes) <= len(varied):
        raise DataError(f"must have more rows than the {len(varied)} codes that vary, but has {len(codes)} rows")
    singular, directions = np.linalg.svd(_unit_columns(deviations[:, varied]), full_matrices=False)[1:]
    dependent = singular <= singular[0] * len(codes) * np.finfo(float).eps
    if dependent.any():
        names = varied[(np.abs(directions[dependent]) > VISIBLE).any(axis=0)]
        raise DataError(f"codes must not be collinear, but columns {', '.join(map(str, names))} are")
    return max(0.0, float(-np.log(singular).sum()))


def _unit_columns(deviations: np.ndarray) -> np.ndarray:
    deviations = deviations / np.abs(deviations).max(axis=0)  # squares of the smallest would vanish
    found: np.ndarray = deviations / np.linalg.norm(deviations, axis=0)
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    rows = rows_drawn(len(table.codes), params.samples, rng)
    return {"gaussian_total_correlation": total_correlation(table.codes[rows])}


METRIC = Metric(
    name="gaussian_total_correlation",
    params=Params,
    keys=("gaussian_total_correlation",),
    score=score,
    fast={"samples": 2_000},
    needs=(),
    representations=("mean", "sampled"),
    best="min",
)
