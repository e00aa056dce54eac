"""DCI: Eastwood & Williams, ICLR 2018, section 2: disentanglement, completeness and informativeness.

With boosted trees as in Locatello et al., ICML 2019.
"""

from typing import Any

import numpy as np
import scipy
from pydantic import Field

from disentune.metrics.table import split, telling
from disentune.metrics.trees import Trees, prepared
from disentune.plugin import Count, Frozen, Metric, Table

KEYS = ("dci_disentanglement", "dci_completeness", "dci_informativeness_train", "dci_informativeness_test")


class Params(Frozen):
    """Rows to fit and to test on, and the trees (`trees.py`); a table with fewer than both is split 2 : 1."""

    train: Count = Field(10_000, ge=2, description="rows to fit on; a smaller table is split 2 : 1")
    test: Count = Field(5_000, ge=1, description="rows to test on")
    trees: Trees = Field(
        "exact",
        description="exact: scikit-learn's algorithm, compiled; sklearn: its own; histogram: up to 256 bins per code",
    )


def _concentration(weights: np.ndarray) -> np.ndarray:
    """1 - entropy of each row relative to its maximum: 1 if one entry has everything, 0 if all are equal.

    A row with one entry gives 1; a row of zeros counts as uniform.
    """
    total = weights.sum(axis=1, keepdims=True)
    width = weights.shape[1]
    if width == 1:
        whole: np.ndarray = (total[:, 0] > 0).astype(float)
        return whole
    shares = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / width)
    certainty: np.ndarray = 1 + scipy.special.xlogy(shares, shares).sum(axis=1) / np.log(width)
    return certainty


def _weighted(concentration: np.ndarray, weights: np.ndarray) -> float:
    return float(concentration @ weights / weights.sum()) if weights.sum() > 0 else 0.0


def disentanglement(importance: np.ndarray) -> float:
    """For an importance matrix (d, k): does each code serve one factor? Codes are weighted by importance."""
    return _weighted(_concentration(importance), importance.sum(axis=1))


def completeness(importance: np.ndarray) -> float:
    """For an importance matrix (d, k): is each factor served by one code? 0 if there is no importance at all."""
    return _weighted(_concentration(importance.T), importance.sum(axis=0))


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """A factor with one value is left out. A factor with a single value in the rows to fit has no important code."""
    train, test = split(len(table.codes), params.train, params.test, rng)
    fit = prepared(table.codes[train], table.codes[test], params.trees)
    fits = [fit(column[train], int(rng.integers(2**31))) for column in table.factors.T]
    importance = np.stack([one.importance for one in fits], axis=1)
    told = telling(table.factors)
    numbers = (
        disentanglement(importance[:, told]),
        completeness(importance[:, told]),
        _accuracy([one.train for one in fits], table.factors[train], told),
        _accuracy([one.test for one in fits], table.factors[test], told),
    )
    return {**dict(zip(KEYS, numbers, strict=True)), "dci_importance": importance}


def _accuracy(predictions: list[np.ndarray], factors: np.ndarray, told: np.ndarray) -> float:
    """Share of correctly predicted labels (n, k) of some factors (k,), from one prediction (n,) per factor."""
    return float(np.mean((np.stack(predictions, axis=1) == factors)[:, told]))


METRIC = Metric(
    name="dci",
    params=Params,
    keys=KEYS,
    score=score,
    details=("dci_importance",),
    fast={"train": 1_000, "test": 500},
)
