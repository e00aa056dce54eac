"""Mutual information of a continuous code and labels from nearest neighbours: Ross, PLOS ONE 2014.

scikit-learn's `mutual_info_classif` computes the same with trees; in one dimension, sorting is enough.
"""

import numpy as np
import scipy

from disentune.metrics.udr import standardised

UNITS = 2.0**50
"""Per standard deviation: whole numbers, so that no difference of two codes is rounded."""
NOISE = 1e-10
"""Deviation of the noise that separates equal values, as in scikit-learn."""


def nearest_information(codes: np.ndarray, labels: np.ndarray, neighbours: int, rng: np.random.Generator) -> np.ndarray:
    """Mutual information of each code (n, d) with each factor (n, k), (d, k), in nats and at least 0; 0 for constant
    codes."""
    unit = standardised(codes)
    places = np.rint((unit + NOISE * rng.standard_normal(unit.shape)) * UNITS).astype(np.int64)
    digamma = scipy.special.digamma(np.maximum(np.arange(len(codes) + 1), 1))
    found = np.zeros((codes.shape[1], labels.shape[1]))
    for code in np.flatnonzero(np.ptp(codes, axis=0) > 0):
        order = np.argsort(places[:, code])
        for factor in range(labels.shape[1]):
            found[code, factor] = _information(places[order, code], labels[order, factor], neighbours, digamma)
    return found


def _information(places: np.ndarray, labels: np.ndarray, neighbours: int, digamma: np.ndarray) -> float:
    """Of a sorted code (n,). Rows with a value that no other row has are left out, because they have no neighbour."""
    shared = np.bincount(labels)[labels] > 1
    places, labels = places[shared], labels[shared]
    if not len(places):
        return 0.0
    order = np.argsort(labels, kind="stable")
    grouped, sizes = places[order], np.bincount(labels)
    sizes = sizes[sizes > 0]
    known = np.minimum(neighbours, sizes - 1)
    radius = _radii(grouped, sizes, known)
    low = np.searchsorted(places, grouped - radius, side="right")
    inside = np.maximum(np.searchsorted(places, grouped + radius, side="left") - low, 1)
    shares = sizes / len(places)
    expected = digamma[len(places)] + shares @ (digamma[known] - digamma[sizes])
    return max(0.0, float(expected - digamma[inside].mean()))


def _radii(grouped: np.ndarray, sizes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Distance (n,) of each place to its last neighbour, where rows of a value stand together, in order.

    The neighbours of a place are a window around it: of all windows with so many others, the one that ends nearest.
    """
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    last, others = first + np.repeat(sizes, sizes) - 1, np.repeat(known, sizes)
    here, radius = np.arange(len(grouped)), np.full(len(grouped), np.iinfo(np.int64).max)
    for before in range(int(known.max()) + 1):
        left = here - before
        right = left + others
        fits = (left >= first) & (right <= last) & (before <= others)
        low, high = grouped[np.where(fits, left, here)], grouped[np.where(fits, right, here)]
        reach = np.maximum(grouped - low, high - grouped)
        radius = np.where(fits, np.minimum(radius, reach), radius)
    return radius
