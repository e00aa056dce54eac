"""DCI: Eastwood & Williams, ICLR 2018, section 2, with boosted trees as in Locatello et al., ICML 2019."""

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy.special import xlogy
from sklearn.ensemble import GradientBoostingClassifier

from disentune.errors import DataError
from disentune.metrics.table import checked, rows_drawn
from disentune.plugin import Count, Frozen, Metric

KEYS = ("dci_disentanglement", "dci_completeness", "dci_informativeness_train", "dci_informativeness_test")


class Params(Frozen):
    """Rows to fit and to test on; a table with fewer than both is split 2 : 1."""

    train: Count = Field(10_000, ge=2)
    test: Count = Field(5_000, ge=1)
    trees: Literal["sklearn"] = "sklearn"


class Fit(NamedTuple):
    """What the trees of one factor say: importance of each code (d,), and accuracies."""

    importance: np.ndarray
    train: float
    test: float


def _concentration(weights: np.ndarray) -> np.ndarray:
    """1 - entropy of each row in units of its largest possible value: 1 when one entry has all, 0 when all are equal.

    A row of one entry is concentrated; a row of zeros counts as even.
    """
    total = weights.sum(axis=1, keepdims=True)
    width = weights.shape[1]
    if width == 1:
        return (total[:, 0] > 0).astype(float)
    shares = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / width)
    return 1 + xlogy(shares, shares).sum(axis=1) / np.log(width)


def _weighted(concentration: np.ndarray, weights: np.ndarray) -> float:
    return float(concentration @ weights / weights.sum()) if weights.sum() > 0 else 0.0


def disentanglement(importance: np.ndarray) -> float:
    """Of an importance matrix (d, k): does each code serve one factor? Codes weigh by their importance."""
    return _weighted(_concentration(importance), importance.sum(axis=1))


def completeness(importance: np.ndarray) -> float:
    """Of an importance matrix (d, k): is each factor served by one code? No importance at all gives 0."""
    return _weighted(_concentration(importance.T), importance.sum(axis=0))


def split(rows: int, params: Params, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows to fit and to test on."""
    if rows < 3:
        raise DataError(f"dci must have a table of at least 3 rows, but it has {rows}")
    enough = rows >= params.train + params.test
    train = params.train if enough else 2 * rows // 3
    drawn = rows_drawn(rows, train + params.test, rng)
    return drawn[:train], drawn[train:]


def fit(codes: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int) -> Fit:
    """Trees that tell one factor's labels (n,) from all codes.

    A factor with one value to fit has no important code, and its prediction is that value.
    """
    seen = labels[train]
    if (seen == seen[0]).all():
        return Fit(np.zeros(codes.shape[1]), 1.0, float(np.mean(labels[test] == seen[0])))
    trees = GradientBoostingClassifier(random_state=seed).fit(codes[train], seen)
    accuracies = [trees.score(codes[rows], labels[rows]) for rows in (train, test)]
    return Fit(np.abs(trees.feature_importances_), *accuracies)


def score(codes: np.ndarray, factors: np.ndarray, rng: np.random.Generator, params: Params) -> dict[str, float]:
    codes, labels = checked(codes, factors)
    train, test = split(len(codes), params, rng)
    fits = [fit(codes, column, train, test, int(rng.integers(2**31))) for column in labels.T]
    importance = np.stack([one.importance for one in fits], axis=1)
    accuracies = [float(np.mean([one.train for one in fits])), float(np.mean([one.test for one in fits]))]
    return dict(zip(KEYS, [disentanglement(importance), completeness(importance), *accuracies], strict=True))


METRIC = Metric(name="dci", params=Params, keys=KEYS, score=score)
