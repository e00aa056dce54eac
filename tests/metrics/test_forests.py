"""Forests cut at a depth against scikit-learn's own."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from disentune.metrics.forests import grown, importance, predictions

RNG = np.random.default_rng(0)
CODES, OTHERS = RNG.normal(size=(300, 3)), RNG.normal(size=(200, 3))
LABELS = (2 * CODES[:, 0] + CODES[:, 1] > 0).astype(int) + (CODES[:, 2] > 1)
NUMBERS = CODES[:, 0] + CODES[:, 1] ** 2
KINDS = {"labels": (False, LABELS, RandomForestClassifier), "numbers": (True, NUMBERS, RandomForestRegressor)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_forest_is_scikit_learn_s(kind):
    ordered, targets, forest = KINDS[kind]
    ours = grown(CODES, targets, 6, 8, ordered, seed=3)
    theirs = forest(n_estimators=8, max_depth=6, random_state=3).fit(CODES.astype(np.float32), targets)
    (told,) = predictions(ours, OTHERS, [6])
    np.testing.assert_allclose(told, theirs.predict(OTHERS.astype(np.float32)))
    np.testing.assert_allclose(importance(ours, 6), theirs.feature_importances_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [1, 2, 5, 9, 30])
def test_a_forest_cut_at_a_depth_is_one_that_may_grow_no_deeper(kind, depth):
    """With a single code there is nothing to draw for a split, so the two can be compared number by number."""
    ordered, targets, forest = KINDS[kind]
    deep = grown(CODES[:, :1], targets, 30, 8, ordered, seed=1)
    shallow = forest(n_estimators=8, max_depth=depth, random_state=1).fit(CODES[:, :1].astype(np.float32), targets)
    told = predictions(deep, OTHERS[:, :1], [1, 2, 5, 9, 30])[[1, 2, 5, 9, 30].index(depth)]
    np.testing.assert_allclose(told, shallow.predict(OTHERS[:, :1].astype(np.float32)))
    assert importance(deep, depth).tolist() == [1]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_importance_at_a_depth_is_that_of_the_splits_above(kind, depth):
    """All codes are compared for each split, and near the root no two splits are equally good."""
    _, targets, forest = KINDS[kind]
    settings = {"n_estimators": 8, "max_features": None, "random_state": 0}
    deep, shallow = (forest(max_depth=limit, **settings).fit(CODES.astype(np.float32), targets) for limit in (9, depth))
    np.testing.assert_allclose(importance(deep, depth), shallow.feature_importances_)
    (told,) = predictions(deep, OTHERS, [depth])
    np.testing.assert_allclose(told, shallow.predict(OTHERS.astype(np.float32)))


def test_nothing_is_important_without_a_split():
    assert importance(grown(np.ones((9, 2)), np.arange(9) % 3, 4, 3, False, 0), 4).tolist() == [0, 0]
    assert importance(grown(CODES[:9], np.zeros(9, int), 4, 3, False, 0), 4).tolist() == [0, 0, 0]
