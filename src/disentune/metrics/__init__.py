"""Disentanglement metrics: numbers from a table of codes and factors."""

from typing import Any

import numpy as np

from disentune.metrics import dci, mig
from disentune.parameters import chosen
from disentune.plugin import Catalogue, Metric
from disentune.randomness import metric_rng

METRICS = Catalogue("metric", Metric, [dci.METRIC, mig.METRIC])


def score(name: str, codes: np.ndarray, factors: np.ndarray, seed: int = 0, **params: Any) -> dict[str, float]:
    """Scores of codes (n, d) against integer factors (n, k); the metric's own draws depend on `seed` and its name."""
    metric, checked = chosen(METRICS, name, params)
    scores = metric.score(codes, factors, metric_rng(seed, metric.name), checked)
    return {key: float(value) for key, value in scores.items()}
