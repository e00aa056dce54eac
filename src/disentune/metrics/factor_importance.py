"""Factor importance: Michlo et al., IJCAI 2023, Table A1: mean distance of images that differ in one factor only.

It is the distance under the reconstruction loss, so it depends on the data set and the loss, not on the model. A VAE is
expected to learn the factor with the largest one first (section 4.3). The number is the mean over factors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.lines import lines_drawn
from disentune.metrics.perceived_distances import BATCH
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Lines of the factor grid for each factor; of each line, all pairs of two values."""

    traversals: Count = Field(64, ge=1, description="lines of the factor grid per factor")


def mean_distance(table: Table, lines: np.ndarray) -> float:
    """Over all pairs of two rows of each line, (lines, size); the earlier value is the output, the later the target."""
    assert table.distance is not None
    first, second = np.triu_indices(lines.shape[1], k=1)
    shown, target = lines[:, first].ravel(), lines[:, second].ravel()
    starts = range(0, len(shown), BATCH)
    found = [table.distance(shown[start : start + BATCH], target[start : start + BATCH]) for start in starts]
    return float(np.concatenate(found).astype(np.float64).mean())


def score(table: Table, rng: np.random.Generator, params: Params) -> Mapping[str, Any]:
    """Factors of a single value have none and count 0."""
    varied = np.flatnonzero(table.factors.any(axis=0))
    values = np.zeros(table.factors.shape[1])
    values[varied] = [mean_distance(table, lines) for lines in lines_drawn(table.factors, params.traversals, rng)]
    names = np.array(table.names or [f"factor {number}" for number in range(len(values))])
    found = {"factor_importance_values": values, "factor_importance_names": names}
    return {"factor_importance": float(values.mean()), **found}


METRIC = Metric(
    name="factor_importance",
    params=Params,
    keys=("factor_importance",),
    score=score,
    details=("factor_importance_values", "factor_importance_names"),
    fast={"traversals": 16},
    needs=("factors", "distance"),
    lines=True,
)
