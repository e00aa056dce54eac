"""DCI: exact importance matrices, and trees on small tables."""

import numpy as np
import pytest

from disentune.maths.randomness import metric_rng
from disentune.metrics import METRICS, score, scores
from disentune.metrics.dci import KEYS, completeness, disentanglement
from disentune.metrics.table import table_of
from disentune.metrics.trees import prepared

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


ENGINES = ("exact", "sklearn", "histogram")


@pytest.mark.slow
@pytest.mark.parametrize("trees", ENGINES)
def test_scores_are_those_of_the_trees_of_each_factor(trees):
    """With as many rows as asked for, the rows to fit and to test are the first of one random order."""
    rng = np.random.default_rng(0)
    codes, factors = table(150)
    codes = codes @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=codes.shape)
    found = scores("dci", table_of(codes, factors), 0, "full", {"train": 100, "test": 40, "trees": trees})
    draws = metric_rng(0, "dci")
    order = draws.permutation(150)[:140]
    told = prepared(codes[order[:100]], codes[order[100:]], trees)
    fits = [told(factors[order[:100], k], int(draws.integers(2**31))) for k in range(3)]
    importance = np.array([one.importance for one in fits]).T
    np.testing.assert_array_equal(found.details["dci_importance"], importance)
    assert found.numbers == {
        KEYS[0]: disentanglement(importance),
        KEYS[1]: completeness(importance),
        KEYS[2]: pytest.approx(np.mean([one.train == factors[order[:100], k] for k, one in enumerate(fits)])),
        KEYS[3]: pytest.approx(np.mean([one.test == factors[order[100:], k] for k, one in enumerate(fits)])),
    }
    assert found.numbers[KEYS[3]] < found.numbers[KEYS[2]] <= 1


def test_exact_trees_are_the_default():
    assert METRICS["dci"].params().trees == "exact"


def ten_factors(n=2000):
    """Published representations of ten factors on 1..10, half to fit and half to test."""
    return np.random.default_rng(0).integers(1, 11, size=(n, 10))


def published(codes, factors):
    values = score("dci", codes, factors, train=1000, test=1000)
    return values[KEYS[0]], values[KEYS[1]], values[KEYS[3]]


@pytest.mark.slow
def test_ten_exact_factors_score_as_published():
    factors = ten_factors()
    assert published(factors * 1.0, factors) == pytest.approx((1, 1, 1), abs=1e-6)


@pytest.mark.slow
def test_ten_duplicated_factors_score_as_published():
    """Trees that always took the first of two equal codes would be complete."""
    factors = ten_factors()
    assert published(np.hstack([factors, factors]) * 1.0, factors) == pytest.approx((1, 0.770, 1), abs=5e-3)  # ties


@pytest.mark.slow
def test_ten_factors_shuffled_within_rows_score_as_published():
    factors = ten_factors()
    d, c, informativeness = published(np.random.default_rng(1).permuted(factors * 1.0, axis=1), factors)
    assert (d, c) == pytest.approx((0.0022, 0.0024), abs=2e-3)  # sampling error of what would be 0
    assert informativeness == pytest.approx(0.202, abs=0.012)  # 10 000 labels


def test_coordinates_of_squares_score_as_published():
    factors = np.random.default_rng(0).integers(0, 8, size=(1500, 6))
    values = score("dci", 8.0 * factors, factors, size="fast")
    assert [values[key] for key in KEYS] == pytest.approx([1, 1, 1, 1], abs=1e-6)


@pytest.mark.slow
def test_noise_scores_as_published():
    factors = np.random.default_rng(0).integers(0, 8, size=(1500, 6))
    values = score("dci", np.random.default_rng(1).normal(size=(1500, 9)), factors, size="fast")
    assert (values[KEYS[0]], values[KEYS[1]]) == pytest.approx((0.002, 0.002), abs=1e-3)  # of one draw
    assert values[KEYS[3]] == pytest.approx(1 / 8, abs=0.025)  # 3000 labels


def test_a_constant_code_changes_only_the_largest_possible_entropy():
    codes, factors = table()
    values = score("dci", np.column_stack([codes, np.ones(450)]), factors)
    assert values == pytest.approx(dict.fromkeys(KEYS, 1.0), abs=5e-3)


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


def test_a_factor_of_one_value_changes_nothing_beside_others():
    codes, factors = table(300, (4, 3))
    codes = codes @ np.array([[1.0, 0.6], [-0.6, 1.0]])
    constant = np.column_stack([factors, np.full(300, 7)])
    plain, beside = (score("dci", codes, labels, train=200, test=100) for labels in (factors, constant))
    assert beside == plain
