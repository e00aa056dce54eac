"""Linearity: Michlo et al., disent, 2022: how much of a factor's variance lies on one straight line of codes."""

import numpy as np
from pydantic import Field

from disentune.metrics.lines import Mean, lines_drawn, over_factors, unit_range
from disentune.plugin import Count, Frozen, Metric, Table, added


class Params(Frozen):
    """Lines of the factor grid to use for each factor, and the mean over factors (disent's is geometric)."""

    traversals: Count = Field(1024, ge=1, description="lines of the factor grid per factor")
    mean: Mean = added("arithmetic", description="mean over the factors; disent uses the geometric mean")


def deviations(codes: np.ndarray) -> np.ndarray:
    """Centred lines (lines, size, d); exactly 0 for a line that does not move."""
    moved = codes - codes[:, :1]
    found: np.ndarray = moved - moved.mean(axis=1, keepdims=True)
    return found


def largest_moments(centred: np.ndarray) -> np.ndarray:
    """Largest eigenvalue of each line's covariance times its size, (lines,), from the smaller Gram matrix."""
    size, latents = centred.shape[1:]
    flipped = np.swapaxes(centred, 1, 2)
    return np.linalg.eigvalsh(flipped @ centred if latents <= size else centred @ flipped)[:, -1]


def dominance(largest: np.ndarray, total: np.ndarray, latents: int) -> np.ndarray:
    """Share of the largest in the total, rescaled from 0 if all `latents` are equal to 1 if one has everything.

    0 for a line that does not move; 1 for a single latent that moves.
    """
    share = largest / np.where(total > 0, total, 1)
    if latents > 1:
        share = (share - 1 / latents) / (1 - 1 / latents)
    return np.clip(share, 0, 1)


def ratios(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dominance of the best axis and of the best direction in each line (lines, size, d), both (lines,)."""
    centred = deviations(codes)
    moments = (centred**2).sum(axis=1)
    total, latents = moments.sum(axis=1), codes.shape[2]
    axis = dominance(moments.max(axis=1), total, latents)
    return axis, dominance(largest_moments(centred), total, latents)


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Mean over factors with two or more values of the mean over lines; 0 if there is none."""
    codes = unit_range(table.codes)
    linear = [(ratios(codes[rows])[1].mean(),) for rows in lines_drawn(table.factors, params.traversals, rng)]
    return {"linearity": float(over_factors(linear or [(0.0,)], params.mean)[0])}


METRIC = Metric(name="linearity", params=Params, keys=("linearity",), score=score, fast={"traversals": 128}, lines=True)
