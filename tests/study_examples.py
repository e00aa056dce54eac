"""Synthetic studies whose answers are known."""

import numpy as np
import pandas as pd

METRICS = ["mig", "sap", "modularity"]
A = np.array([0.7044, 0.6438, 0.7411, 0.6902, 0.7205])
B = np.array([0.6621, 0.6510, 0.7002, 0.6333, 0.6747])
"""Scores of two arms; row i is seed i."""


def study(datasets=2, methods=3, strengths=4, seeds=5, setting=0.0, method=0.0, noise=1.0, metrics=METRICS, rng=0):
    """Scores that are the sum of normal effects of the method, the setting and the seed, with these deviations.

    Effects are the same on every data set and in every metric; noise is drawn for each score.
    """
    rng = np.random.default_rng(rng)
    effects = rng.normal(size=methods)[:, None] * method + rng.normal(size=(methods, strengths)) * setting
    shape = (datasets, methods, strengths, seeds)
    d, m, h, s = (place.ravel() for place in np.indices(shape))
    frame = {"dataset": [f"data{i}" for i in d], "method": [f"method{i}" for i in m], "strength": 2.0**h, "seed": s}
    scores = {metric: effects[m, h] + noise * rng.normal(size=d.size) for metric in metrics}
    return pd.DataFrame(frame | scores)
