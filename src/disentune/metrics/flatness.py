"""Flatness: Michlo et al., disent, 2021: width over length of the path of the codes along a factor."""

import numpy as np
from pydantic import Field

from disentune.metrics.lines import lines_drawn, unit_range
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Lines of the factor grid to use per factor."""

    traversals: Count = Field(1024, ge=1, description="lines of the factor grid per factor")


def norms(differences: np.ndarray) -> np.ndarray:
    """L1 and L2 over the last axis, stacked in front."""
    return np.stack([np.abs(differences).sum(axis=-1), np.linalg.norm(differences, axis=-1)])


def to_next(codes: np.ndarray, shift: int) -> np.ndarray:
    """L1 and L2 distances (2, lines, size) from each point to the one `shift` places further on the cycle."""
    return norms(np.roll(codes, -shift, axis=1) - codes)


def widths(codes: np.ndarray) -> np.ndarray:
    """Largest distance between two points of each line (lines, size, d), (2, lines)."""
    shifts = range(1, codes.shape[1] // 2 + 1)  # half a cycle meets every pair
    found: np.ndarray = np.max([to_next(codes, shift).max(axis=-1) for shift in shifts], axis=0)
    return found


def lengths(codes: np.ndarray) -> np.ndarray:
    """Sum of the steps of each line without the largest, (2, lines): a factor may be a cycle or not."""
    found: np.ndarray = np.sort(to_next(codes, 1), axis=-1)[..., :-1].sum(axis=-1)
    return found


def flatness(codes: np.ndarray) -> np.ndarray:
    """Mean width over mean length of lines (lines, size, d): [L2 over L1, L1, L2].

    None exceeds 1, because the steps without the largest still connect all points. 0 if no line moves.
    """
    width, length = widths(codes).mean(axis=1), lengths(codes).mean(axis=1)
    ratios = width[[1, 0, 1]] / np.where(length > 0, length, 1)[[0, 0, 1]]
    found: np.ndarray = np.minimum(ratios, 1.0)  # rounding can exceed 1
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Means over factors with two or more values; 0 if there is none."""
    codes = unit_range(table.codes)
    found = [flatness(codes[rows]) for rows in lines_drawn(table.factors, params.traversals, rng)]
    return dict(zip(METRIC.keys, np.mean(found or [np.zeros(3)], axis=0), strict=True))


METRIC = Metric(
    name="flatness",
    params=Params,
    keys=("flatness", "flatness_l1", "flatness_l2"),
    score=score,
    fast={"traversals": 128},
    lines=True,
)
