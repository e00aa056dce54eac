"""Axis alignment: Michlo et al., disent, 2022: how much of what is linear along a factor lies in a single code."""

import numpy as np
from pydantic import Field

from disentune.metrics.linearity import ratios
from disentune.metrics.lines import Mean, lines_drawn, over_factors, unit_range
from disentune.plugin import Count, Frozen, Metric, Table, added

ROUND = 1e-12
"""A direction that is not more dominant than this does not count."""


class Params(Frozen):
    """Lines of the factor grid to use for each factor, and the mean over factors (disent's is geometric)."""

    traversals: Count = Field(1024, ge=1, description="lines of the factor grid per factor")
    mean: Mean = added("arithmetic", description="mean over the factors; disent uses the geometric mean")


def alignment(axis: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """Axis ratio over linear ratio of each line, (lines,); 0 if no direction dominates or the line does not move."""
    stands_out = linear > ROUND
    return np.where(stands_out, np.minimum(axis / np.where(stands_out, linear, 1), 1.0), 0.0)


def along_factor(codes: np.ndarray) -> tuple[float, float]:
    """Means over lines (lines, size, d) of the alignment and of the axis ratio."""
    axis, linear = ratios(codes)
    return float(alignment(axis, linear).mean()), float(axis.mean())


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Means over factors of two or more values; 0 if there is none."""
    codes = unit_range(table.codes)
    found = [along_factor(codes[rows]) for rows in lines_drawn(table.factors, params.traversals, rng)]
    return dict(zip(METRIC.keys, over_factors(found or [(0.0, 0.0)], params.mean), strict=True))


METRIC = Metric(
    name="axis_alignment",
    params=Params,
    keys=("axis_alignment", "axis_alignment_ratio"),
    score=score,
    fast={"traversals": 128},
    lines=True,
)
