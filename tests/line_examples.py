"""Tables of whole lines of a factor grid, for the metrics that follow one factor at a time."""

import numpy as np

EIGHT = (8,) * 6
"""Factor sizes of XYSquares."""


def factors_of_lines(lines=128, sizes=EIGHT, seed=0):
    """Distinct points in random order: `lines` random lines along each factor."""
    rng = np.random.default_rng(seed)
    points = [_lines(rng.integers(0, sizes, size=(lines, len(sizes))), k, size) for k, size in enumerate(sizes)]
    return rng.permutation(np.unique(np.concatenate(points), axis=0))


def _lines(points, column, size):
    points = points.repeat(size, axis=0)
    points[:, column] = np.tile(np.arange(size), len(points) // size)
    return points


def full_grid(sizes):
    return np.stack([axis.ravel() for axis in np.indices(sizes)], axis=1)


def random_codes(factors, latents=9, seed=1):
    """An independent code for each image."""
    return np.random.default_rng(seed).normal(size=(len(factors), latents))
