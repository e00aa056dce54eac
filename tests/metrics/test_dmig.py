"""DMIG against a slow loop, the released code's numbers and representations of known score."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.feature_selection import mutual_info_regression
from sklearn.metrics import mutual_info_score

from disentune.errors import DataError
from disentune.metrics import METRICS, score, scored
from disentune.metrics.dmig import assigned, gaps
from disentune.metrics.table import table_of
from metric_examples import GRID, factors_of, known_codes, noisy


def slow_dmig(codes, factors, bins=20):
    """The definition for codes in the order of the factors; H(a | b) = H(a, b) - H(b)."""
    labels = [np.digitize(code, np.histogram(code, bins)[1][:-1]) for code in codes.T]
    found = []
    for number, factor in enumerate(factors.T):
        information = [mutual_info_score(factor, label) for label in labels]
        second = max((code for code in range(len(labels)) if code != number), key=information.__getitem__)
        left = entropy(np.bincount(factor))
        if second < factors.shape[1]:
            pairs = np.stack([factor, factors[:, second]])
            joint = entropy(np.unique(pairs, axis=1, return_counts=True)[1])
            left = joint - entropy(np.bincount(factors[:, second]))
        found.append((information[number] - information[second]) / left)
    return np.mean(found)


def dependent(rows=2000):
    """Factors of which the second is the first or next to it, and the third independent; and codes of them."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 5, rows)
    factors = np.stack([first, first + rng.integers(0, 2, rows), rng.integers(0, 4, rows)], axis=1)
    return np.column_stack([factors + 0.3 * rng.normal(size=factors.shape), rng.normal(size=rows)]), factors


@pytest.mark.parametrize("assignment", ["order", "matched"])
def test_the_score_is_that_of_the_definition(assignment):
    codes, factors = dependent()
    value = score("dmig", codes, factors, assignment=assignment)["dmig"]
    assert value == pytest.approx(slow_dmig(codes, factors), abs=1e-12)
    assert value > score("mig", codes, factors)["mig"] + 0.05


def test_continuous_attributes_score_as_in_the_released_code():
    """Its estimates are those of nearest neighbours, and its entropy is the information of a factor about itself."""
    noise = np.random.default_rng(0).normal(size=(2000, 5))
    factors = noise[:, :2]
    codes = np.column_stack([factors + 0.1 * noise[:, 2:4], noise[:, 4]])

    def about(columns):
        return np.stack([mutual_info_regression(columns, factor, random_state=42) for factor in factors.T], axis=1)

    shared = about(factors)
    found = gaps(about(codes), np.diag(shared), shared, np.arange(2))
    np.testing.assert_allclose(found, [0.3697, 0.3681], atol=5e-4)  # of the noise that scikit-learn adds
    swapped = gaps(about(codes[:, [1, 0, 2]]), np.diag(shared), shared, np.arange(2))
    assert (swapped < -0.36).all()


def test_independent_factors_score_as_in_mig():
    """On a full grid no factor knows anything of another, so that only the assignment can differ."""
    assert score("dmig", noisy(factors_of()), factors_of())["dmig"] == pytest.approx(
        score("mig", noisy(factors_of()), factors_of())["mig"], abs=1e-9
    )


@pytest.mark.parametrize(("name", "value"), [("exact", 1), ("twice", 0), ("halved", 0.8333), ("turned", 0.3333)])
def test_known_codes_score_as_worked_out(name, value):
    assert score("dmig", known_codes()[name], GRID)["dmig"] == pytest.approx(value, abs=5e-5)


def test_codes_are_matched_to_factors_whatever_their_order():
    codes, factors = dependent()
    order = [2, 3, 0, 1]
    assert score("dmig", codes[:, order], factors)["dmig"] == pytest.approx(score("dmig", codes, factors)["dmig"])
    metric = METRICS["dmig"]
    found = scored(metric, table_of(codes[:, order], factors), 0, metric.params()).details
    assert found["dmig_codes"].tolist() == [2, 3, 0]


def test_the_matching_has_the_largest_sum():
    assert assigned(np.array([[0.9, 0.8], [0.8, 0.1]]), "matched").tolist() == [1, 0]
    assert assigned(np.array([[0.9, 0.8, 0.95]]), "matched").tolist() == [-1, -1, 0]


def test_what_the_runner_up_s_factor_tells_is_not_asked_for():
    """H = log 4 each, of which they share log 2; codes know their factor, and half of it from the other's code."""
    information = np.log([[4, 2], [2, 4]])
    found = gaps(information, np.log([4, 4]), np.log([[4, 2], [2, 4]]), np.arange(2))
    np.testing.assert_allclose(found, [1, 1])


def test_factors_without_a_code_and_factors_that_others_determine_count_as_nothing():
    copied = GRID[:, [0, 0]]
    assert score("dmig", copied, copied) == {"dmig": 0.0}
    assert score("dmig", GRID[:, :1], GRID)["dmig"] == pytest.approx(1 / 3)


def test_order_needs_a_code_for_each_factor():
    with pytest.raises(DataError, match="a code for each of the 3 factors, but there are 2"):
        score("dmig", GRID[:, :2], GRID, assignment="order")


def test_noise_and_constants_know_nothing():
    factors = np.random.default_rng(0).integers(0, 8, size=(10_000, 4))
    noise = np.random.default_rng(1).normal(size=(10_000, 6))
    assert abs(score("dmig", noise, factors)["dmig"]) < 0.005
    assert score("dmig", np.ones((600, 3)), GRID) == {"dmig": 0.0}


def test_factors_with_one_value_are_left_out():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert score("dmig", GRID, constant)["dmig"] == pytest.approx(1)
    assert score("dmig", GRID, constant[:, -1:]) == {"dmig": 0.0}
