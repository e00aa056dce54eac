"""DCI: exact importance matrices, and trees on small tables."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from disentune.errors import DataError
from disentune.metrics import score
from disentune.metrics.dci import KEYS, Params, completeness, disentanglement, fit, split

EYE = np.eye(5)
HALVED = 1 - np.log(2) / np.log(10)
MATRICES = {
    "diagonal": (EYE, 1, 1),
    "two codes a factor": (np.vstack([EYE, EYE]), 1, HALVED),
    "two factors a code": (np.hstack([EYE, EYE]), HALVED, 1),
    "zeros": (np.zeros((4, 3)), 0, 0),
    "a dead code": (np.array([[1.0, 0], [0, 1], [0, 0]]), 1, 1),
    "missing codes": (EYE[:2], 1, 1),
    "even": (np.full((4, 3), 0.25), 0, 0),
    "one factor": (np.array([[0.5], [0.5]]), 1, 0),
    "one code": (np.array([[0.5, 0.5]]), 0, 1),
    "one dead code": (np.zeros((1, 2)), 0, 0),
}


def table(n=450, sizes=(4, 3, 5), seed=0):
    factors = np.random.default_rng(seed).integers(0, sizes, size=(n, len(sizes)))
    return factors * 1.0, factors


@pytest.mark.parametrize("name", MATRICES)
def test_known_matrices_have_their_exact_scores(name):
    importance, d, c = MATRICES[name]
    assert disentanglement(importance) == pytest.approx(d, abs=1e-12)
    assert completeness(importance) == pytest.approx(c, abs=1e-12)


def test_rows_and_columns_weigh_by_their_importance():
    """Code 0 is pure and has weight 3, code 1 is even and has weight 1; both columns sum to 2 or more."""
    importance = np.array([[3.0, 0.0], [0.5, 0.5]])
    assert disentanglement(importance) == pytest.approx(3 / 4)
    shares = np.array([3, 0.5]) / 3.5
    first = 1 + (shares * np.log2(shares)).sum()
    assert completeness(importance) == pytest.approx((3.5 * first + 0.5 * 1) / 4)


def test_published_smoothing_changes_nothing_that_is_printed():
    importance = np.random.default_rng(0).random((6, 4)) ** 4
    shares = importance + 1e-11
    shares /= shares.sum(axis=1, keepdims=True)
    rows = 1 + (shares * np.log(shares)).sum(axis=1) / np.log(4)
    assert disentanglement(importance) == pytest.approx(rows @ importance.sum(axis=1) / importance.sum(), abs=1e-8)


def test_importances_and_accuracies_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes, factors = table(300)
    codes = codes @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=codes.shape)
    train, test = np.arange(200), np.arange(200, 300)
    ours = fit(codes, factors[:, 0], train, test, seed=5)
    trees = GradientBoostingClassifier(random_state=5).fit(codes[:200], factors[:200, 0])
    np.testing.assert_array_equal(ours.importance, trees.feature_importances_)
    assert ours.test == np.mean(trees.predict(codes[200:]) == factors[200:, 0])
    assert ours.train > ours.test


def test_exact_codes_score_one():
    codes, factors = table()
    assert score("dci", codes, factors) == pytest.approx(dict.fromkeys(KEYS, 1.0), abs=5e-3)


def test_duplicated_codes_stay_disentangled_and_lose_completeness():
    codes, factors = table()
    values = score("dci", np.hstack([codes, codes]), factors)
    assert values["dci_disentanglement"] == pytest.approx(1, abs=5e-3)
    assert 1 - np.log(2) / np.log(6) - 0.01 < values["dci_completeness"] < 0.95


def test_codes_shuffled_within_rows_score_near_zero():
    codes, factors = table(900, (4, 4, 4))
    values = score("dci", np.random.default_rng(0).permuted(codes, axis=1), factors)
    assert values["dci_disentanglement"] < 0.2
    assert values["dci_completeness"] < 0.2
    assert values["dci_informativeness_test"] < 0.8


def test_a_rotation_lowers_disentanglement_and_keeps_information():
    codes, factors = table(900, (4, 4))
    rotated = codes @ (np.array([[1, -1], [1, 1]]) / np.sqrt(2))
    values = score("dci", rotated, factors)
    assert values["dci_disentanglement"] < 0.5
    assert values["dci_informativeness_test"] > 0.95


def test_constant_codes_inform_by_chance():
    _, factors = table()
    values = score("dci", np.zeros((450, 2)), factors)
    assert values["dci_disentanglement"] == values["dci_completeness"] == 0
    assert values["dci_informativeness_test"] < 0.5


def test_a_factor_of_one_value_is_always_guessed_and_needs_no_code():
    codes, _ = table(300)
    values = score("dci", codes[:, :1], np.full((300, 1), 7))
    assert values == {KEYS[0]: 0.0, KEYS[1]: 0.0, KEYS[2]: 1.0, KEYS[3]: 1.0}


@pytest.mark.parametrize(("rows", "train", "test"), [(15, 10, 5), (100, 10, 5), (14, 9, 5), (12, 8, 4), (3, 2, 1)])
def test_rows_to_fit_and_to_test_are_disjoint_and_as_many_as_asked(rows, train, test):
    parts = split(rows, Params(train=10, test=5), np.random.default_rng(0))
    assert [len(part) for part in parts] == [train, test]
    drawn = np.concatenate(parts)
    assert len(set(drawn)) == len(drawn)
    assert drawn.max() < rows


def test_rows_are_drawn_at_random():
    train, _ = split(1000, Params(train=10, test=5), np.random.default_rng(0))
    assert train.max() > 100


def test_a_table_too_small_to_split_is_refused():
    with pytest.raises(DataError, match="at least 3 rows, but it has 2"):
        score("dci", np.zeros((2, 1)), np.zeros((2, 1), int))
