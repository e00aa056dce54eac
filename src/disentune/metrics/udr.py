"""UDR, unsupervised disentanglement ranking: Duan et al., ICLR 2020: how well models agree, latent by latent.

Good models find the same latents up to order and sign, so a model that agrees with the others is likely to be good, and
no factors are needed. It compares trained models, so it is not a metric of one table: `disentune score RUN` computes
it.

The Lasso penalty shrinks a perfect match from 1 to 1 - alpha, so equal models score 0.9, not 1. Only ranks are
meaningful; the paper finds that about five models per setting are enough.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from disentune.errors import DataError
from disentune.metrics.table import table_of

Method = Literal["lasso", "spearman"]
ALPHA = 0.1
"""Penalty of the Lasso, as published."""
SWEEPS, TOLERANCE = 10_000, 1e-8
"""Iterations and tolerance of coordinate descent, finer than scikit-learn's defaults."""


@dataclass(frozen=True)
class Udr:
    scores: np.ndarray
    """(models,): the median over the other models of `pairs` with this one as the target."""
    pairs: np.ndarray
    """(models, models): how well the row's model predicts the column's; 0 on the diagonal, which is not used."""


def udr(
    codes: Sequence[np.ndarray], kls: Sequence[np.ndarray], method: Method = "lasso", threshold: float = 0.01
) -> Udr:
    """Scores of models by their codes (n, d_i) of the same n images and the mean KL to the prior of each latent (d_i,).

    Latents with a KL of at most `threshold` are uninformative and left out; a model with no others scores 0. A
    remaining latent that is constant agrees with no other.
    """
    if len(codes) < 2:
        raise DataError(f"UDR compares models, so there must be at least 2, but there is {len(codes)}")
    live = _live(codes, kls, threshold)
    units = [standardised(scipy.stats.rankdata(one, axis=0) if method == "spearman" else one) for one in live]
    relations = _relations(units, method)
    pairs = np.array([[agreement(relation) for relation in row] for row in relations])
    np.fill_diagonal(pairs, 0)
    others = ~np.eye(len(pairs), dtype=bool)
    return Udr(np.median(pairs.T[others].reshape(len(pairs), -1), axis=1), pairs)


def agreement(relation: np.ndarray) -> float:
    """How close a matrix (d_i, d_j) of strengths >= 0 is to one partner per latent (Eq. 3), from 0 to its maximum.

    max^2 / sum is averaged over columns and over rows; a latent without a partner counts as 0.
    """
    return (_concentration(relation) + _concentration(relation.T)) / 2


def _concentration(relation: np.ndarray) -> float:
    if relation.size == 0:
        return 0.0
    largest, total = relation.max(axis=0), relation.sum(axis=0)
    return float(np.mean(largest**2 / np.where(total > 0, total, 1)))


# ---- latents


def _live(codes: Sequence[np.ndarray], kls: Sequence[np.ndarray], threshold: float) -> list[np.ndarray]:
    """The codes of informative latents, as float64."""
    if len(codes) != len(kls):
        raise DataError(f"every model must have codes and KLs, but there are {len(codes)} and {len(kls)}")
    tables = [table_of(one).codes for one in codes]
    for number, (table, kl) in enumerate(zip(tables, kls, strict=True)):
        if len(table) != len(tables[0]):
            raise DataError(f"models must see the same images, but 0 has {len(tables[0])} and {number} {len(table)}")
        if np.shape(kl) != table.shape[1:] or not np.isfinite(kl).all():
            text = f"model {number} must have a finite KL for each of its {table.shape[1]} latents, but has {kl}"
            raise DataError(text)
    return [table[:, np.asarray(kl) > threshold] for table, kl in zip(tables, kls, strict=True)]


def standardised(codes: np.ndarray) -> np.ndarray:
    """Columns (n, d) with mean 0 and variance 1; constant columns become 0."""
    low, spread = codes.min(axis=0), np.ptp(codes, axis=0)
    unit = (codes - low) / np.where(spread > 0, spread, 1)  # squares of tiny or huge codes stay numbers
    centred = unit - unit.mean(axis=0)
    return np.where(spread > 0, centred / np.where(spread > 0, unit.std(axis=0), 1), 0)


# ---- relations of latents


def _relations(units: Sequence[np.ndarray], method: Method) -> list[list[np.ndarray]]:
    """For each model, the strengths (d_i, d_j) with which its latents predict those of every model."""
    every, ends = np.hstack(units), np.cumsum([unit.shape[1] for unit in units])[:-1]
    rows = []
    for unit in units:
        weights = lasso(unit, every) if method == "lasso" and unit.size else unit.T @ every / len(unit)
        rows.append(np.split(np.abs(weights), ends, axis=1))
    return rows


def lasso(inputs: np.ndarray, targets: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """Weights (d, m) of the Lasso of m standardised targets (n, m) by inputs (n, d): one fit for all targets."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    fitted = Lasso(alpha, fit_intercept=False, precompute=inputs.T @ inputs, tol=TOLERANCE, max_iter=SWEEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # inputs that are almost equal
        found: np.ndarray = fitted.fit(inputs, targets).coef_.reshape(targets.shape[1], -1).T
        return found
