"""MIG, mutual information gap: Chen et al., NeurIPS 2018, Eq. 6, with codes in equal-width bins."""

import numpy as np
from pydantic import Field
from scipy.special import xlogy

from disentune.metrics.table import checked, rows_drawn
from disentune.plugin import Count, Frozen, Metric


class Params(Frozen):
    """Rows of the table to use, and bins for each code."""

    samples: Count = Field(10_000, ge=1)
    bins: Count = Field(20, ge=2)


def binned(codes: np.ndarray, bins: int) -> np.ndarray:
    """Each code's bin, 0 to bins - 1, (n, d): equal widths over its own range, the maximum in the last bin."""
    edges = np.linspace(codes.min(axis=0), codes.max(axis=0), bins + 1)
    columns = [np.searchsorted(edge[1:-1], code, side="right") for edge, code in zip(edges.T, codes.T, strict=True)]
    return np.stack(columns, axis=1)


def counts(bins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How often each bin of a code meets each label of a factor, (d, k, bins, labels), by one histogram."""
    shape = (bins.shape[1], labels.shape[1], bins.max() + 1, labels.max() + 1)
    codes, factors = np.arange(shape[0])[:, None], np.arange(shape[1])
    cells = np.ravel_multi_index((codes, factors, bins[:, :, None], labels[:, None, :]), shape)
    return np.bincount(cells.ravel(), minlength=int(np.prod(shape))).reshape(shape)


def mutual_information(bins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each code with each factor, (d, k), in nats, from the empirical frequencies."""
    joint = counts(bins, labels)
    expected = joint.sum(axis=2, keepdims=True) * joint.sum(axis=3, keepdims=True) / len(bins)
    return xlogy(joint, joint / np.where(expected > 0, expected, 1)).sum(axis=(2, 3)) / len(bins)


def entropies(labels: np.ndarray) -> np.ndarray:
    """Of each factor, (k,), in nats."""
    frequencies = [np.bincount(column) / len(column) for column in labels.T]
    return np.array([-xlogy(p, p).sum() for p in frequencies])


def gap(information: np.ndarray, entropy: np.ndarray) -> float:
    """Mean over factors of (largest - second) / entropy.

    A single code is compared with 0. A factor of one value has nothing to tell and is left out; with no other, 0.
    """
    ranked = np.sort(np.vstack([np.zeros_like(entropy), information]), axis=0)
    varied = entropy > 0
    return float(np.mean((ranked[-1] - ranked[-2])[varied] / entropy[varied])) if varied.any() else 0.0


def score(codes: np.ndarray, factors: np.ndarray, rng: np.random.Generator, params: Params) -> dict[str, float]:
    codes, labels = checked(codes, factors)
    rows = rows_drawn(len(codes), params.samples, rng)
    labels = labels[rows]
    return {"mig": gap(mutual_information(binned(codes[rows], params.bins), labels), entropies(labels))}


METRIC = Metric(name="mig", params=Params, keys=("mig",), score=score)
