"""SAP, separated attribute predictability: Kumar et al., ICLR 2018, section 3: gap of a factor's two best codes."""

import warnings
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.mcc import correlations
from disentune.metrics.table import rows_drawn, split
from disentune.plugin import Count, Frozen, Metric, Table

LEAST_VARIANCE = 1e-12
"""A code that varies no more than this is ignored for continuous factors, as in Locatello et al., ICML 2019."""


class Params(Frozen):
    """Rows to fit and to test on; a table with fewer than both is split 2 : 1. Continuous factors need no test."""

    train: Count = Field(10_000, ge=2, description="rows to fit on; a smaller table is split 2 : 1")
    test: Count = Field(5_000, ge=1, description="rows to test on")
    continuous: bool = Field(False, description="treat factors as continuous, which needs no rows to test on")


def gap(predictability: np.ndarray, varied: np.ndarray) -> float:
    """Mean over the varied factors (k,) of best - second best code, of (d, k).

    A single code is compared with 0. Factors with one value are left out; 0 if there are no others.
    """
    ranked = np.sort(np.vstack([np.zeros_like(predictability[:1]), predictability]), axis=0)
    return float(np.mean((ranked[-1] - ranked[-2])[varied])) if varied.any() else 0.0


def squared_correlations(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Squared correlation of each code with each factor, (d, k)."""
    found: np.ndarray = correlations(codes, factors) ** 2 * (codes.var(axis=0, ddof=1) > LEAST_VARIANCE)[:, None]
    return found


def accuracy(code: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int) -> float:
    """Accuracy of a linear support vector machine that predicts labels (n,) from one code (n, 1). If the training data
    has only one label, that label is predicted."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    seen = labels[train]
    if (seen == seen[0]).all():
        return float(np.mean(labels[test] == seen[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LinearSVC(C=0.01, class_weight="balanced", random_state=seed).fit(code[train], seen)
    found: float = fitted.score(code[test], labels[test])
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    codes, factors = table.codes, table.factors
    if params.continuous:
        train = rows_drawn(len(codes), params.train, rng)
        matrix = squared_correlations(codes[train], table.values[train])
    else:
        train, test = split(len(codes), params.train, params.test, rng)
        seed = int(rng.integers(2**31))
        columns = [[accuracy(code[:, None], labels, train, test, seed) for code in codes.T] for labels in factors.T]
        matrix = np.array(columns).T
    return {"sap": gap(matrix, np.ptp(factors[train], axis=0) > 0), "sap_matrix": matrix}


METRIC = Metric(
    name="sap",
    params=Params,
    keys=("sap",),
    score=score,
    details=("sap_matrix",),
    fast={"train": 2_000, "test": 1_000},
)
