"""IRS against a loop over values and representations of known score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.errors import DataError
from disentune.metrics import score, scores
from disentune.metrics.irs import deviation
from disentune.metrics.table import table_of
from metric_examples import factors_of, noisy


def slow_irs(codes, factors, quantile, labels_of=lambda factor: factor):
    """Code by code, factor by factor, value by value."""
    matrix, reaches = [], []
    for code in codes.T:
        reach = max(abs(code - code.mean()))
        row = []
        for factor in factors.T:
            labels = labels_of(factor)
            at = [abs(code[labels == value] - code[labels == value].mean()) for value in set(labels.tolist())]
            row.append(1 - np.mean([np.percentile(one, 100 * quantile) for one in at]) / reach)
        matrix.append(row)
        reaches.append(reach)
    return np.array(matrix), np.average(np.max(matrix, axis=1), weights=reaches)


def in_bins(bins):
    """As disentanglement_lib puts every factor into bins."""
    return lambda factor: np.digitize(factor, np.histogram(factor, bins)[1][:-1])


@pytest.mark.parametrize("quantile", [0.99, 1.0, 0.5])
def test_the_score_is_that_of_the_definition(quantile):
    factors = factors_of()
    codes = np.column_stack([noisy(factors), 5 * noisy(factors) @ [1, 2, -1]])
    found = scores("irs", table_of(codes, factors), 0, "full", {"quantile": quantile})
    matrix, value = slow_irs(codes, factors, quantile)
    np.testing.assert_allclose(found.details["irs_matrix"], matrix, atol=1e-12)
    assert found.numbers["irs"] == pytest.approx(value, abs=1e-12)
    assert found.details["irs_parents"].tolist() == matrix.argmax(axis=1).tolist()
    assert 0.2 < value < 0.9


def many_values():
    return np.random.default_rng(0).integers(0, [40, 5], size=(2000, 2))


def test_each_value_is_a_label_of_its_own_unless_a_factor_is_declared_to_be_ordered():
    """The quantile is .99 and bins are 20 by default."""
    factors = many_values()
    codes = noisy(factors)
    labels, published = slow_irs(codes, factors, 0.99)[1], slow_irs(codes, factors, 0.99, in_bins(20))[1]
    assert score("irs", codes, factors)["irs"] == pytest.approx(labels, abs=1e-12)
    assert score("irs", codes, factors, ordered=[0])["irs"] == pytest.approx(published, abs=1e-12)
    assert score("irs", codes, factors, ordered=[0, 1])["irs"] == pytest.approx(published, abs=1e-12)
    assert labels - published > 0.01


@pytest.mark.parametrize("bins", [2, 7])
def test_ordered_factors_have_as_many_bins_as_asked_for(bins):
    factors = many_values()
    codes = noisy(factors)
    expected = slow_irs(codes, factors, 0.99, in_bins(bins))[1]
    assert score("irs", codes, factors, ordered=[0, 1], bins=bins)["irs"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("column", [2, -1])
def test_an_ordered_factor_that_the_table_does_not_have_is_refused(column):
    factors = many_values()
    with pytest.raises(DataError, match=rf"irs: ordered: factor {column} does not exist; .* factors 0 to 1"):
        score("irs", noisy(factors), factors, ordered=[column])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_renaming_the_labels_changes_nothing(seed):
    """Distinct labels in any order and at any distance."""
    factors, rng = many_values(), np.random.default_rng(seed)
    renamed = np.stack([rng.choice(10**6, size=40, replace=False)[column] for column in factors.T], axis=1)
    found, expected = (scores("irs", table_of(noisy(factors), table), 0, "fast", {}) for table in (renamed, factors))
    assert found.numbers == pytest.approx(expected.numbers, abs=1e-12)
    np.testing.assert_allclose(found.details["irs_matrix"], expected.details["irs_matrix"], atol=1e-12)


def test_a_value_that_one_row_alone_has_tells_nothing():
    """A single row does not deviate from its own mean, so noise would seem to be robust."""
    factors, codes = factors_of(), noisy(factors_of())
    rare = np.column_stack([factors, np.arange(len(factors))])
    found = scores("irs", table_of(codes, rare), 0, "fast", {})
    assert found.numbers == score("irs", codes, factors, size="fast")
    assert found.details["irs_matrix"][:, 3].tolist() == [0, 0, 0]
    assert deviation(np.array([[0.0], [2.0], [9.0]]), np.array([4, 4, 7]), 1.0).tolist() == [1]


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
