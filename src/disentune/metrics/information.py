"""Mutual information and entropy of labels, from empirical frequencies, in nats."""

import math

import numpy as np
import scipy

from disentune.errors import DataError

MOST_CELLS = 10**8
"""Maximum number of cells in a histogram of codes and labels: 0.8 GB."""


def binned(codes: np.ndarray, bins: int) -> np.ndarray:
    """Each code's bin, 0 to bins - 1, (n, d): equal widths over its own range, the maximum in the last bin."""
    return np.stack([_binned(code, bins) for code in codes.T], axis=1)


def _binned(code: np.ndarray, bins: int) -> np.ndarray:
    """Computes the edges of one column at a time, because for several NumPy's rounding depends on the others."""
    edges = np.linspace(code.min(), code.max(), bins + 1)
    return np.searchsorted(edges[1:-1], code, side="right")


def equal_counts(code: np.ndarray, bins: int) -> np.ndarray:
    """Bin of each value (n,), 0 to bins - 1, with as many rows in each as equal values, which stay together, allow.

    Each cut is the one between two values that is nearest to where equal numbers of rows would be cut.
    """
    ranked = np.sort(code)
    places = np.concatenate([[0], np.flatnonzero(ranked[1:] > ranked[:-1]) + 1, [len(code)]])
    wanted = np.arange(1, bins) * len(code) / bins
    above = np.searchsorted(places, wanted)
    nearer_below = wanted - places[above - 1] <= places[above] - wanted
    cuts = np.where(nearer_below, places[above - 1], places[above])
    return np.searchsorted(cuts, np.searchsorted(ranked, code), side="right")


def counts(bins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Joint counts of each code's bins and each factor's labels, (d, k, bins, labels), by one histogram."""
    shape = (bins.shape[1], labels.shape[1], int(bins.max()) + 1, int(labels.max()) + 1)
    if math.prod(shape) > MOST_CELLS:
        codes, factors, *sizes = shape
        raise DataError(
            f"{codes} codes in {sizes[0]} bins and {factors} factors of up to {sizes[1]} values make "
            f"{math.prod(shape):,} counts, and at most {MOST_CELLS:,} fit; choose fewer bins"
        )
    codes, factors = np.arange(shape[0])[:, None], np.arange(shape[1])
    cells = np.ravel_multi_index((codes, factors, bins[:, :, None], labels[:, None, :]), shape)
    return np.bincount(cells.ravel(), minlength=int(np.prod(shape))).reshape(shape)


def mutual_information(bins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mutual information of each code with each factor, (d, k)."""
    joint = counts(bins, labels)
    expected = joint.sum(axis=2, keepdims=True) * joint.sum(axis=3, keepdims=True) / len(bins)
    ratio = joint / np.where(expected > 0, expected, 1)
    found: np.ndarray = scipy.special.xlogy(joint, ratio).sum(axis=(2, 3)) / len(bins)
    return found


def entropies(labels: np.ndarray) -> np.ndarray:
    """Entropy of each factor, (k,)."""
    frequencies = [np.bincount(column) / len(column) for column in labels.T]
    return np.array([-scipy.special.xlogy(p, p).sum() for p in frequencies])
