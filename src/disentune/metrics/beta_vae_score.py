"""BetaVAE score: Higgins et al., ICLR 2017, section 3: how well codes show which factor was held fixed.

With logistic regression as in Locatello et al., ICML 2019.
"""

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.groups import DEVIATIONS, EXCESS, caution, drawable, halves, pairs
from disentune.plugin import Count, Frozen, Metric, Table

SPREAD = 0.4
"""The score of noise varies between tables by this / factors * sqrt(members / pairs to test on), as measured.

With this many distinct pairs of a factor, the mean distance has an error of deviation / sqrt(pairs), and a point, the
mean of `members` draws, one of deviation / sqrt(members); their ratio decides how well a factor can be guessed.
"""


class Params(Frozen):
    """Points to fit and to test on, and pairs of rows that are averaged into a point."""

    train: Count = Field(10_000, ge=1, description="points to fit on")
    test: Count = Field(5_000, ge=1, description="points to test on")
    members: Count = Field(64, ge=1, description="pairs of rows that are averaged into one point")


def points(
    encoded: Callable[[np.ndarray], np.ndarray], drawn: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """For each group, the mean distance of its pairs in each code, (m, d), and the factor that they share, (m,)."""
    found = [(np.abs(encoded(rows) - encoded(partners)).mean(axis=1), factor) for factor, rows, partners in drawn]
    distances, factors = zip(*found, strict=True)
    return np.concatenate(distances), np.concatenate(factors)


def accuracies(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[float, float]:
    """Accuracies, in training and test, of predicting the shared factor from the distances. If the training data has
    only one factor, that factor is predicted."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if (train[1] == train[1][0]).all():
        return 1.0, float(np.mean(test[1] == train[1][0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(random_state=seed).fit(*train)
    return fitted.score(*train), fitted.score(*test)


def rows_needed(values: int, factors: int, members: int) -> int:
    """Rows that a table needs so that noise scores no more than chance, for a factor with `values` values.

    The m rows to test on, half of all, have m (m / values - 1) / 2 pairs that share a value.
    """
    pairs = members * (DEVIATIONS * SPREAD / (EXCESS * factors)) ** 2
    return math.ceil(values + math.sqrt(values * (values + 8 * pairs))) if factors > 1 else 0


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """A value that only one row has forms no pair and is not drawn. A single factor is always predicted correctly."""
    told = drawable(table.factors)
    values = int(table.factors[:, told].max()) + 1
    note = caution(table.factors, rows_needed(values, len(told), params.members))
    train, test = (
        points(lambda rows: table.encoded(rows, rng), pairs(half, count, params.members, rng))
        for half, count in zip(halves(table.factors, told, rng), (params.train, params.test), strict=True)
    )
    learned, right = accuracies(train, test, int(rng.integers(2**31)))
    return {"beta_vae_score": right, "beta_vae_score_train": learned, "caution": note}


METRIC = Metric(
    name="beta_vae_score",
    params=Params,
    keys=("beta_vae_score", "beta_vae_score_train"),
    score=score,
    fast={"train": 700, "test": 350},
)
