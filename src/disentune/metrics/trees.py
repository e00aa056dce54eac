"""Gradient boosted trees that predict a factor from codes, like scikit-learn's `GradientBoostingClassifier` by default.

There are three engines. `exact` is scikit-learn's algorithm, compiled, with columns that are sorted once for all
factors. A seed gives the same trees as `sklearn`, unless a column has equal values, whose order decides between equal
splits by rounding errors; then trees differ like those of two seeds. `histogram` splits between at most 256 bins per
column, which is exact if a column has at most that many values, more than 1e-7 apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

Trees = Literal["exact", "sklearn", "histogram"]

ROUNDS = 100
BINS = 256
NEARLY_EQUAL = np.float32(1e-7)
"""Neighbours that are no further apart than this in single precision are not split."""


@dataclass(frozen=True)
class Fitted:
    """The result of the trees for one factor."""

    importance: np.ndarray
    """(d,): shares of the variance reduction by splits on each code; sums to 1, or all 0 if nothing was split."""
    train: np.ndarray
    """(n,) labels predicted for the training rows."""
    test: np.ndarray
    """(m,) labels predicted for the test rows."""


Fit = Callable[[np.ndarray, int], Fitted]
"""(labels (n,) of the rows to fit, seed) -> the result of the trees."""


def prepared(train: np.ndarray, test: np.ndarray, trees: Trees = "exact") -> Fit:
    """A function that fits a factor on codes (n, d) and tests on codes (m, d); work shared by all factors is done once.

    A factor with one value in the training rows has no important code, and that value is predicted.
    """
    train, test = train.astype(np.float32), test.astype(np.float32)
    several = {"exact": _exact, "sklearn": _sklearn, "histogram": _histogram}[trees](train, test)

    def fit(labels: np.ndarray, seed: int) -> Fitted:
        if (labels == labels[0]).all():
            return Fitted(np.zeros(train.shape[1]), labels.copy(), np.full(len(test), labels[0]))
        return several(labels, seed)

    return fit


def _sklearn(train: np.ndarray, test: np.ndarray) -> Fit:
    from sklearn.ensemble import GradientBoostingClassifier

    def fit(labels: np.ndarray, seed: int) -> Fitted:
        trees = GradientBoostingClassifier(random_state=seed).fit(train, labels)
        return Fitted(_shares(trees.feature_importances_), trees.predict(train), trees.predict(test))

    return fit


def _exact(train: np.ndarray, test: np.ndarray) -> Fit:
    """Columns with few values lose nothing by binning, which adds rows of equal value together, as scikit-learn
    does."""
    if all(_few(code) for code in train.T):
        return _histogram(train, test)
    order = np.argsort(train, axis=0, kind="stable").T
    return _boosting(train, test, order, *(np.zeros((0, 0), kind) for kind in (np.uint8, np.float32, np.float32)))


def _histogram(train: np.ndarray, test: np.ndarray) -> Fit:
    return _boosting(train, test, np.arange(len(train))[None], *binned(train))


def _few(code: np.ndarray) -> bool:
    """Whether a column's values repeat (twice on average), fit into the bins, and none of them are nearly equal."""
    values = np.unique(code)
    return len(values) <= min(BINS, len(code) // 2) and bool((values[1:] > values[:-1] + NEARLY_EQUAL).all())


def _boosting(
    train: np.ndarray, test: np.ndarray, order: np.ndarray, bins: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Fit:
    from disentune.metrics import boosting  # numba takes a second to load, and few runs need it

    lists = np.zeros((boosting.DEPTH, *order.shape), np.uint32)
    lists[0] = order
    inverse = 1 / np.maximum(np.arange(len(train) + 1), 1)
    columns = boosting.Columns(np.ascontiguousarray(train.T), lists, bins, low, high, inverse)

    def fit(labels: np.ndarray, seed: int) -> Fitted:
        values, codes = np.unique(labels, return_inverse=True)
        first = _first_scores(np.bincount(codes) / len(codes))
        seeds = _seeds(seed, (ROUNDS, len(first)))
        importance, *raw = boosting.boosted(columns, test, codes, first, seeds)
        return Fitted(_shares(importance), *(values[_choice(scores)] for scores in raw))

    return fit


def _first_scores(shares: np.ndarray) -> np.ndarray:
    """Initial scores, the logs of the class shares (classes,); for two classes, only the log odds of the second."""
    found: np.ndarray = (
        scipy.special.logit(shares[1:]) if len(shares) == 2 else np.log(shares / scipy.stats.gmean(shares))
    )
    return found


def _seeds(seed: int, shape: tuple[int, int]) -> np.ndarray:
    """Seeds of the trees of each round, as drawn by scikit-learn."""
    return np.random.RandomState(seed).randint(0, 2**31 - 1, size=shape)


def _shares(importance: np.ndarray) -> np.ndarray:
    """Removes the rounding errors, of either sign, that useless splits leave."""
    importance = np.maximum(importance, 0)
    return importance / importance.sum() if importance.any() else importance


def _choice(scores: np.ndarray) -> np.ndarray:
    """The class of each row, from scores (trees, n) of a round's trees; for two classes only the second has a tree."""
    found: np.ndarray = (scores[0] >= 0).astype(np.int64) if len(scores) == 1 else scores.argmax(axis=0)
    return found


# ---- bins


def binned(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bin of each code (d, n), and the smallest and largest value of each bin (d, BINS), from codes (n, d) float32."""
    places = np.empty(codes.shape[::-1], np.uint8)
    low, high = np.zeros((2, codes.shape[1], BINS), np.float32)
    for column, code in enumerate(codes.T):
        order = np.argsort(code, kind="stable")
        ranked, cuts = code[order], _cuts(code[order])
        places[column, order] = np.searchsorted(cuts, np.arange(len(code)), side="left")
        low[column, : len(cuts) + 1] = ranked[np.append(0, cuts + 1)]
        high[column, : len(cuts) + 1] = ranked[np.append(cuts, len(code) - 1)]
    return places, low, high


def _cuts(ranked: np.ndarray) -> np.ndarray:
    """Positions in a sorted column after which a bin ends: all changes of value, if these are few.

    Otherwise the widest gap in each of several windows with equal numbers of rows, so that no bin straddles the gap
    between two clusters, as edges at plain quantiles would, which spoils a near-perfect code.
    """
    apart = ranked[1:] > ranked[:-1] + NEARLY_EQUAL
    if apart.sum() < BINS:
        return np.flatnonzero(apart)
    gaps = np.where(apart, np.diff(ranked.astype(np.float64)), 0)
    windows = np.array_split(np.arange(len(gaps)), BINS - 1)
    widest = np.array([window[gaps[window].argmax()] for window in windows])
    found: np.ndarray = widest[apart[widest]]
    return found
