"""Downstream task: Locatello et al., ICML 2019, section 5.5: how well, and from how few rows, factors are predicted."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.table import rows_drawn, telling
from disentune.metrics.trees import Trees, prepared
from disentune.plugin import Count, Frozen, Metric, Table

SIZES = (10, 100, 1_000, 10_000)
LEARNERS = ("lr", "gbt")
KEYS = tuple(f"downstream_{learner}_{end}" for learner in LEARNERS for end in (*SIZES, "efficiency"))
FOLDS = 5


class Params(Frozen):
    """Maximum number of rows to fit, rows to test on, strengths of regularisation to try, and the trees (`trees.py`).

    A smaller `train` replaces larger sizes: `downstream_gbt_10000` is then computed from `train` rows.
    """

    train: Count = Field(10_000, ge=2, description="rows to fit on at most")
    test: Count = Field(5_000, ge=1, description="rows to test on")
    strengths: Count = Field(10, ge=1, description="strengths of regularisation to try")
    trees: Trees = Field(
        "exact",
        description="exact: scikit-learn's algorithm, compiled; sklearn: its own; histogram: up to 256 bins per code",
    )


def regressed(train: np.ndarray, test: np.ndarray, labels: np.ndarray, strengths: int) -> np.ndarray:
    """Labels that logistic regression predicts for codes (m, d), fitted on codes (n, d) and labels (n,).

    The strength of regularisation is the best of several by five-fold cross-validation without shuffling. Folds with
    only one value to fit are left out; if all are, the strength is scikit-learn's default. A single value is always
    predicted correctly.
    """
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    if (labels == labels[0]).all():
        return np.full(len(test), labels[0])
    folds = [fold for fold in _folds(len(labels)) if len(np.unique(labels[fold[0]])) > 1]
    chosen = LogisticRegressionCV(Cs=strengths, cv=folds, scoring="accuracy") if folds else LogisticRegression()
    with _quiet():
        found: np.ndarray = chosen.fit(train, labels).predict(test)
        return found


def _folds(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import KFold

    found: Iterator[tuple[np.ndarray, np.ndarray]] = KFold(min(FOLDS, rows)).split(np.zeros(rows))
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings: the published settings do not always converge, and omit parameters whose defaults will change."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lbfgs failed to converge", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The default value for l1_ratios", category=FutureWarning)
        warnings.filterwarnings("ignore", message="The fitted attributes of Logistic", category=FutureWarning)
        yield


def efficiency(accuracies: np.ndarray) -> float:
    """Accuracy with 100 rows relative to that with 10 000, from mean accuracies by size; 0 if nothing is predicted
    correctly."""
    few, many = accuracies[SIZES.index(100)], accuracies[SIZES.index(10_000)]
    return float(few / many) if many > 0 else 0.0


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Rows of a smaller size are also in each larger one; rows to test on are in none of them."""
    drawn = rows_drawn(len(table.codes), params.train + params.test, rng)
    train, test = drawn[: params.train], drawn[params.train :]
    seeds = [int(rng.integers(2**31)) for _ in table.factors.T]
    rows = [min(size, len(train)) for size in SIZES]
    found: dict[str, Any] = {}
    for learner in LEARNERS:
        by_rows = {n: _accuracies(table, train[:n], test, learner, params, seeds) for n in set(rows)}
        found |= _summary(learner, np.stack([by_rows[n] for n in rows]), telling(table.factors))
    return found


def _summary(learner: str, accuracies: np.ndarray, told: np.ndarray) -> dict[str, Any]:
    """Keys and details of a learner, from its accuracies (sizes, k); factors with one value are excluded from means."""
    means = accuracies[:, told].mean(axis=1)
    sized = {f"downstream_{learner}_{size}": mean for size, mean in zip(SIZES, means, strict=True)}
    efficient = {f"downstream_{learner}_efficiency": efficiency(means)}
    return {**sized, **efficient, f"downstream_{learner}_factors": accuracies}


def _accuracies(
    table: Table, train: np.ndarray, test: np.ndarray, learner: str, params: Params, seeds: list[int]
) -> np.ndarray:
    """Share of the test rows that are predicted correctly, for each factor (k,)."""
    fitted, tested = table.codes[train], table.codes[test]
    if learner == "lr":
        told = [regressed(fitted, tested, column[train], params.strengths) for column in table.factors.T]
    else:
        fit = prepared(fitted, tested, params.trees)
        told = [fit(column[train], seed).test for column, seed in zip(table.factors.T, seeds, strict=True)]
    found: np.ndarray = np.mean(np.stack(told, axis=1) == table.factors[test], axis=0)
    return found


METRIC = Metric(
    name="downstream",
    params=Params,
    keys=KEYS,
    score=score,
    details=("downstream_lr_factors", "downstream_gbt_factors"),
    fast={"test": 1_000, "strengths": 3},
    rows=lambda params: params.train + 1,
)
