"""Explicitness against scikit-learn and representations of known score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from disentune.errors import DataError
from disentune.maths.randomness import metric_rng
from disentune.metrics import score
from disentune.metrics.explicitness import areas, fit, standardised
from disentune.metrics.table import split
from metric_examples import factors_of, noisy


def drawn(sizes, n, seed=0):
    return np.random.default_rng(seed).integers(0, sizes, size=(n, len(sizes)))


def blurred(factors):
    return noisy(factors) + np.random.default_rng(2).normal(size=factors.shape)


def one_hot(labels, classes):
    return np.array([[label == value for value in range(classes)] for label in labels])


def test_the_score_is_that_of_scikit_learn():
    factors = factors_of()
    codes = 1 + 3 * blurred(factors)
    train, test = split(len(codes), 300, 150, metric_rng(4, "explicitness"))
    scaler = StandardScaler().fit(codes[train])
    expected = []
    for labels in factors.T:
        model = LogisticRegression().fit(scaler.transform(codes[train]), labels[train])
        for rows in (test, train):
            guess = model.predict_proba(scaler.transform(codes[rows]))
            expected.append(roc_auc_score(one_hot(labels[rows], labels.max() + 1), guess, average="macro"))
    values = score("explicitness", codes, factors, 4, train=300, test=150)
    assert values["explicitness"] == pytest.approx(np.mean(expected[::2]), abs=1e-6)
    assert values["explicitness_train"] == pytest.approx(np.mean(expected[1::2]), abs=1e-6)
    assert 0.6 < values["explicitness"] < 0.98


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_areas_are_those_of_scikit_learn_ties_included(seed, decimals):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1, 2], rng.integers(0, 3, size=20)])
    guesses = rng.random((23, 3)).round(decimals)
    expected = roc_auc_score(one_hot(labels, 3), guesses, average=None)
    np.testing.assert_allclose(areas(guesses, labels, np.arange(3)), expected, atol=1e-12)


def test_classes_that_no_row_has_or_all_have_are_left_out():
    guesses = np.array([[0.1, 0.5, 0.4], [0.7, 0.2, 0.1], [0.3, 0.6, 0.1]])
    assert areas(guesses, np.array([2, 0, 2]), np.arange(3)).tolist() == [1.0, 0.75]
    assert areas(guesses, np.array([1, 1, 1]), np.arange(3)).tolist() == []


def test_values_not_seen_in_training_are_only_the_rest():
    labels = np.array([0, 1, 0, 1, 0, 1, 2])
    codes = np.array([0.0, 1.0, 0.1, 0.9, 0.0, 1.0, 5.0])[:, None]
    learned, told = fit(codes, labels, np.arange(4), np.array([4, 5, 6]), 0)
    assert learned.tolist() == [1.0, 1.0]
    assert told.tolist() == [1.0, 0.5]  # class 1 lies below the stranger


def test_codes_are_standardised_by_the_training_rows_and_constants_are_zero():
    codes = np.array([[0.0, 0.1, 7.0], [2.0, 0.1, 7.0], [6.0, 0.1, 9.0]])
    found = standardised(codes, np.array([0, 1]))
    assert found.tolist() == [[-1, 0, 0], [1, 0, 0], [5, 0, 0]]


def test_constant_codes_change_nothing():
    factors = factors_of()
    codes = blurred(factors)
    wider = np.column_stack([codes, np.full(len(codes), 0.1)])
    expected = score("explicitness", codes, factors, size="fast")
    assert score("explicitness", wider, factors, size="fast") == pytest.approx(expected, abs=1e-4)  # end of the fit


def test_zeros_score_one_half():
    assert set(score("explicitness", np.zeros((480, 3)), factors_of(), size="fast").values()) == {0.5}


def test_a_factor_without_two_values_is_left_out():
    factors = factors_of()
    codes, constant = blurred(factors), np.column_stack([factors, np.full(len(factors), 3)])
    expected = score("explicitness", codes, factors, size="fast")
    assert score("explicitness", codes, constant, size="fast") == expected
    with pytest.raises(
        DataError,
        match=r"explicitness: no factor has two values .* \(factors: 1, rows to fit on: 320, to test on: 160\)",
    ):
        score("explicitness", codes, constant[:, -1:], size="fast")


def test_values_that_come_once_cannot_be_ranked():
    with pytest.raises(DataError, match="explicitness: no factor has two values"):
        score("explicitness", np.random.default_rng(0).normal(size=(30, 2)), np.arange(30)[:, None])


# ---- known values


@pytest.mark.slow
def test_ten_exact_factors_score_as_published_once_or_twice():
    factors = drawn([10] * 10, 6000)
    sizes = {"train": 3000, "test": 3000}
    value = score("explicitness", factors * 1.0, factors, **sizes)["explicitness"]
    assert value == pytest.approx(0.9999, abs=1.5e-4)  # deviation of a draw 4e-5
    twice = score("explicitness", np.hstack([factors, factors]) * 1.0, factors, **sizes)["explicitness"]
    assert twice == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_codes_permuted_in_each_row_score_as_published():
    factors = drawn([10] * 10, 23_000)
    codes = np.random.default_rng(1).permuted(factors * 1.0, axis=1)
    value = score("explicitness", codes, factors, train=20_000, test=3000)["explicitness"]
    assert value == pytest.approx(0.585, abs=0.01)  # deviation of a draw .003


def test_a_rotation_keeps_what_can_be_told():
    factors = factors_of()
    codes = blurred(factors)
    turned = codes @ [[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]]
    expected = score("explicitness", codes, factors, size="fast")
    assert score("explicitness", turned, factors, size="fast") == pytest.approx(expected, abs=0.005)  # the penalty


# ---- invariances


@settings(max_examples=8, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*[st.sampled_from([-1, 1])] * 3),
    st.tuples(*[st.permutations(range(size)) for size in (4, 3, 5)]),
)
def test_order_and_sign_of_codes_and_names_of_values_change_nothing(order, signs, names):
    factors = factors_of(4)
    renamed = np.stack([np.array(name)[column] for name, column in zip(names, factors.T, strict=True)], axis=1)
    codes = blurred(factors)
    expected = score("explicitness", codes, factors)
    found = score("explicitness", (codes * signs)[:, order], renamed)
    assert found == pytest.approx(expected, abs=2e-3)  # the fit stops at a tolerance
