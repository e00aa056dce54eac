"""Perceived distances: Michlo et al., IJCAI 2023: the loss between images against factors and codes."""

from collections.abc import Callable

import numpy as np

from disentune.metrics.distances import (
    Params,
    Ties,
    code_distances,
    comparable_codes,
    factor_distances,
    pairs_anywhere,
    pairs_by_factor,
    pearson,
    spearman,
)
from disentune.metrics.lines import Pairs
from disentune.plugin import Metric, Table

BATCH = 1024
"""Pairs of images compared at a time: 100 MB in float64 for 64x64 colour images."""

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def image_distances(distance: Distance, pairs: Pairs) -> np.ndarray:
    """Loss between the images of each pair, (2, g, t); each two members of a group are compared once.

    A loss may be asymmetric, and nonzero between equal images: the first member in its group is the output.
    """
    groups, size = pairs.groups.shape
    shown, target = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    keys = np.ravel_multi_index((np.arange(groups)[:, None], shown, target), (groups, size, size))
    distinct, places = np.unique(keys, return_inverse=True)
    group, shown, target = np.unravel_index(distinct, (groups, size, size))
    values = _in_batches(distance, pairs.groups[group, shown], pairs.groups[group, target])
    return values[places.reshape(keys.shape)]


def _in_batches(distance: Distance, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    starts = range(0, len(first), BATCH)
    values = [distance(first[start : start + BATCH], second[start : start + BATCH]) for start in starts]
    return np.concatenate(values).astype(np.float64)


def agreement(table: Table, codes: np.ndarray, pairs: Pairs, ties: Ties) -> tuple[float, float, float, float]:
    """Spearman and Pearson of images' distances with those of factors, then with L2 of codes."""
    assert table.distance is not None
    images = image_distances(table.distance, pairs)
    truth, latent = factor_distances(table, pairs), code_distances(codes, pairs)
    ranks = spearman(truth, images, ties), spearman(images, latent, ties)
    return ranks[0], pearson(truth, images), ranks[1], pearson(images, latent)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Means over factors with two or more values, 0 if there is none; then the same for pairs of random rows."""
    codes, ties = comparable_codes(table, params.ties), params.ties
    found = [agreement(table, codes, pairs, ties) for pairs in pairs_by_factor(table, rng, params)]
    anywhere = agreement(table, codes, pairs_anywhere(table, rng, params), ties)
    return dict(zip(METRIC.keys, [*np.mean(found or [(0.0,) * 4], axis=0), *anywhere], strict=True))


METRIC = Metric(
    name="perceived_distances",
    params=Params,
    keys=(
        "perceived_distances",
        "perceived_distances_pearson",
        "perceived_distances_latent",
        "perceived_distances_latent_pearson",
        "perceived_distances_global",
        "perceived_distances_global_pearson",
        "perceived_distances_latent_global",
        "perceived_distances_latent_global_pearson",
    ),
    score=score,
    fast={"traversals": 128},
    needs=("factors", "distance"),
    lines=True,
)
