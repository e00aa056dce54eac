"""IRS against a loop over values and representations of known score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.metrics import score, scores
from disentune.metrics.irs import deviation
from disentune.metrics.table import table_of
from metric_examples import factors_of, noisy


def slow_irs(codes, factors, quantile, bins):
    """Code by code, factor by factor, value by value."""
    matrix, reaches = [], []
    for code in codes.T:
        reach = max(abs(code - code.mean()))
        row = []
        for factor in factors.T:
            labels = np.digitize(factor, np.histogram(factor, bins)[1][:-1])
            at = [abs(code[labels == value] - code[labels == value].mean()) for value in set(labels)]
            row.append(1 - np.mean([np.percentile(one, 100 * quantile) for one in at]) / reach)
        matrix.append(row)
        reaches.append(reach)
    return np.array(matrix), np.average(np.max(matrix, axis=1), weights=reaches)


@pytest.mark.parametrize(("quantile", "bins"), [(0.99, 20), (1.0, 20), (0.5, 3)])
def test_the_score_is_that_of_the_definition(quantile, bins):
    factors = factors_of()
    codes = np.column_stack([noisy(factors), 5 * noisy(factors) @ [1, 2, -1]])
    found = scores("irs", table_of(codes, factors), 0, "full", {"quantile": quantile, "bins": bins})
    matrix, value = slow_irs(codes, factors, quantile, bins)
    np.testing.assert_allclose(found.details["irs_matrix"], matrix, atol=1e-12)
    assert found.numbers["irs"] == pytest.approx(value, abs=1e-12)
    assert found.details["irs_parents"].tolist() == matrix.argmax(axis=1).tolist()
    assert 0.2 < value < 0.9


def test_the_quantile_is_99_and_factors_have_20_bins_by_default():
    factors = np.random.default_rng(0).integers(0, [40, 5], size=(2000, 2))
    codes = noisy(factors)
    assert score("irs", codes, factors)["irs"] == pytest.approx(slow_irs(codes, factors, 0.99, 20)[1], abs=1e-12)


def test_deviations_are_from_the_mean_at_each_value():
    codes = np.array([[0.0], [10.0], [2.0], [10.0], [4.0], [40.0]])
    labels = np.array([5, 7, 5, 7, 5, 7])
    assert deviation(codes, labels, 1.0).tolist() == [(2 + 20) / 2]
    assert deviation(codes, labels, 0.5).tolist() == [(2 + 10) / 2]


def test_codes_weigh_by_their_reach():
    """An exact code that reaches 3 times as far as one of two signs that no factor moves: 3 of 4."""
    factors = np.array([[0], [0], [1], [1]])
    codes = np.array([[0.0, 1.0], [0.0, -1.0], [6.0, 1.0], [6.0, -1.0]])
    found = scores("irs", table_of(codes, factors), 0, "full", {"quantile": 1.0})
    assert found.details["irs_matrix"].tolist() == [[1.0], [0.0]]
    assert found.numbers == {"irs": 0.75}


def test_constant_codes_have_no_weight_and_no_parent():
    factors = factors_of()
    codes = np.column_stack([np.full(len(factors), 0.1), noisy(factors)])
    found = scores("irs", table_of(codes, factors), 0, "fast", {})
    assert found.numbers == pytest.approx(score("irs", noisy(factors), factors, size="fast"))
    assert found.details["irs_matrix"][0].tolist() == [0, 0, 0]
    assert found.details["irs_parents"].tolist() == [-1, 0, 1, 2]


def test_zeros_score_nothing():
    found = scores("irs", table_of(np.zeros((480, 2)), factors_of()), 0, "fast", {})
    assert found.numbers == {"irs": 0.0}
    assert found.details["irs_parents"].tolist() == [-1, -1]


def test_a_factor_of_one_value_is_left_out():
    factors = factors_of()
    codes, constant = noisy(factors), np.column_stack([np.full(len(factors), 3), factors])
    found = scores("irs", table_of(codes, constant), 0, "fast", {})
    assert found.numbers == score("irs", codes, factors, size="fast")
    assert found.details["irs_parents"].tolist() == [1, 2, 3]
    assert found.details["irs_matrix"][:, 0].tolist() == [0, 0, 0]
    assert score("irs", codes, constant[:, :1], size="fast") == {"irs": 0.0}


def test_a_factor_of_one_value_is_no_parent_even_where_it_would_seem_more_robust():
    """Both values of the other have a row that lies 8 from their mean, but all rows lie 5 from the mean of all."""
    factors = np.column_stack([np.zeros(10, int), np.arange(10) // 5])
    codes = np.array([0.0, 0, 0, 0, 10, 10, 10, 10, 10, 0])[:, None]
    found = scores("irs", table_of(codes, factors), 0, "full", {"quantile": 1.0})
    assert found.numbers["irs"] == pytest.approx(1 - 8 / 5)
    assert found.details["irs_parents"].tolist() == [1]


def test_ten_exact_factors_score_one():
    factors = np.random.default_rng(0).integers(0, 10, size=(3000, 10))
    assert score("irs", factors * 1.0, factors, samples=3000)["irs"] == pytest.approx(1, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*[st.sampled_from([-1, 1])] * 3),
    st.tuples(*[st.permutations(range(size)) for size in (4, 3, 5)]),
)
def test_order_and_sign_of_codes_and_names_of_few_values_change_nothing(order, signs, names):
    factors = factors_of(2)
    renamed = np.stack([np.array(name)[column] for name, column in zip(names, factors.T, strict=True)], axis=1)
    codes = noisy(factors)
    found = score("irs", (codes * signs)[:, order], renamed)
    assert found == pytest.approx(score("irs", codes, factors), abs=1e-12)
