"""Compiled distance of a product of two codes to its points; only `fos.py` imports it, and late, because numba is slow
to load."""

import numpy as np

from disentune.metrics.compiled import compiled


@compiled
def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Largest squared distance of a point (first[i], second[j]) to the nearest point (first[r], second[r]), of (n,).

    A point is left as soon as something is as near as the farthest point so far, which takes few comparisons.
    """
    farthest = 0.0
    for one in first:
        for other in second:
            nearest = np.inf
            for row in range(len(first)):
                apart = (one - first[row]) ** 2 + (other - second[row]) ** 2
                if apart < nearest:
                    nearest = apart
                    if nearest <= farthest:
                        break
            if nearest > farthest:
                farthest = nearest
    return farthest
