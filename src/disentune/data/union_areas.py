"""How many pixels a few equal squares cover together, counted over all their places on a grid."""

from itertools import combinations

import numpy as np


def union_areas(squares: int, side: int, step: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """Areas of the union, and in how many of the places**(2 * squares) pictures each occurs; exact.

    Inclusion and exclusion over sets of squares; the overlap of a set is its width times its height, so the two
    axes are counted apart and combined by an outer product.
    """
    sets = [chosen for size in range(squares) for chosen in combinations(range(squares), size + 1)]
    offsets, pictures = _offsets(squares, places)
    spreads = np.stack([np.ptp(offsets[:, chosen], axis=1) for chosen in sets], axis=1)
    overlaps, which = np.unique(np.maximum(side - step * spreads, 0), axis=0, return_inverse=True)
    pictures = np.bincount(which.ravel(), weights=pictures)
    signs = [1 if len(chosen) % 2 else -1 for chosen in sets]
    return ((overlaps * signs) @ overlaps.T).ravel(), np.outer(pictures, pictures).ravel()


def _offsets(squares: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """Along one axis: places relative to the first square, (m, squares), and how often each occurs."""
    reach = np.arange(1 - places, places)
    axes = np.meshgrid(np.zeros(1, int), *[reach] * (squares - 1))
    offsets = np.stack([axis.ravel() for axis in axes], axis=1)
    return offsets, np.maximum(places - np.ptp(offsets, axis=1), 0)
