"""Explicitness: Ridgeway & Mozer, NeurIPS 2018: how well every value can be predicted linearly from all codes."""

import warnings

import numpy as np
import scipy
from pydantic import Field

from disentune.errors import DataError
from disentune.metrics.table import split
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Rows to fit and to test on; a table with fewer than both is split 2 : 1."""

    train: Count = Field(10_000, ge=2, description="rows to fit on; a smaller table is split 2 : 1")
    test: Count = Field(5_000, ge=1, description="rows to test on")


def standardised(codes: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Codes (n, d) standardised with the rows to fit on; codes that are constant there, up to rounding, become 0."""
    mean, std = codes[train].mean(axis=0), codes[train].std(axis=0)
    varied = std > 1e-12 * np.abs(codes[train]).max(axis=0)
    return np.where(varied, codes - mean, 0) / np.where(varied, std, 1)


def areas(probabilities: np.ndarray, labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Area under the ROC curve of each class against the rest, from scores (m, c), by ranks (Mann & Whitney, 1947).

    Classes that no row or every row has are left out.
    """
    ranks = scipy.stats.rankdata(probabilities, axis=0)
    member = labels[:, None] == classes
    inside, outside = member.sum(axis=0), (~member).sum(axis=0)
    above = (ranks * member).sum(axis=0) - inside * (inside + 1) / 2
    ranked = (inside > 0) & (outside > 0)
    found: np.ndarray = above[ranked] / (inside * outside)[ranked]
    return found


def fit(codes: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int) -> list[np.ndarray]:
    """Areas on the rows to fit and to test on, for predicting labels (n,) from standardised codes (n, d).

    A factor with one value in the rows to fit has none.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(labels[train])
    if len(classes) == 1:
        return [np.zeros(0), np.zeros(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(random_state=seed).fit(codes[train], labels[train])
    return [areas(fitted.predict_proba(codes[rows]), labels[rows], classes) for rows in (train, test)]


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    """Mean over factors of the mean over values; factors without a value to rank in the test rows are left out."""
    train, test = split(len(table.codes), params.train, params.test, rng)
    codes, seed = standardised(table.codes, train), int(rng.integers(2**31))
    fits = [fit(codes, labels, train, test, seed) for labels in table.factors.T]
    ranked = [[learned.mean(), told.mean()] for learned, told in fits if len(told)]
    if not ranked:
        raise DataError(
            "no factor has two values in the rows to fit on, and one of these and another in the rows to test on "
            f"(factors: {len(fits)}, rows to fit on: {len(train)}, to test on: {len(test)})"
        )
    learned, told = np.mean(ranked, axis=0)
    return {"explicitness": told, "explicitness_train": learned}


METRIC = Metric(
    name="explicitness",
    params=Params,
    keys=("explicitness", "explicitness_train"),
    score=score,
    fast={"train": 1_000, "test": 500},
)
