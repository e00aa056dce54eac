"""SNC against every matching tried and representations of known score."""

from itertools import permutations

import numpy as np
import pytest

from disentune.metrics import METRICS, score, scored
from disentune.metrics.information import equal_counts
from disentune.metrics.snc import matched
from disentune.metrics.table import table_of
from metric_examples import GRID, factors_of, known_codes, noisy


def accuracies(codes, factors=GRID):
    metric = METRICS["snc"]
    return scored(metric, table_of(codes, factors), 0, metric.params()).details["snc_factors"]


def slow_accuracy(code, factor):
    """The best of all ways to give bins of equal counts the names of values."""
    values = len(np.unique(factor))
    edges = [np.sort(code)[number * len(code) // values] for number in range(1, values)]
    bins = [sum(edge <= one for edge in edges) for one in code]
    names = np.array(list(permutations(range(values))))
    return (names[:, bins] == factor).mean(axis=1).max()


def test_exact_codes_are_right_and_turned_ones_half_right():
    np.testing.assert_allclose(accuracies(known_codes()["exact"]), 1)
    np.testing.assert_allclose(accuracies(known_codes()["turned"]), [0.5, 0.5, 1])


def test_a_factor_left_without_its_code_has_chance():
    """`merged` says both of two factors, but is matched to one; the other gets numbers without meaning."""
    codes = np.column_stack([known_codes()["merged"], np.random.default_rng(7).random(len(GRID))])
    np.testing.assert_allclose(accuracies(codes), [1, 0.3833, 1], atol=5e-5)
    np.testing.assert_allclose(accuracies(codes[:, :2]), [1, 0, 1])


def test_noise_has_chance_and_what_the_matching_adds():
    noise = np.random.default_rng(0).normal(size=GRID.shape)
    np.testing.assert_allclose(accuracies(noise), [0.29, 0.357, 0.238], atol=5e-4)
    assert score("snc", noise, GRID)["snc"] == pytest.approx(np.mean([0.29, 0.3567, 0.2383]), abs=5e-5)


def test_constant_codes_have_chance():
    np.testing.assert_allclose(accuracies(np.ones(GRID.shape)), [1 / 4, 1 / 3, 1 / 5])


def test_the_accuracy_is_that_of_the_best_names_for_bins():
    factors = factors_of()
    codes = noisy(factors)
    expected = [slow_accuracy(code, factor) for code, factor in zip(codes.T, factors.T, strict=True)]
    np.testing.assert_allclose(accuracies(codes, factors), expected)
    assert min(expected) < 0.9


def test_the_order_of_values_does_not_matter():
    renamed = np.array([2, 0, 3, 1])[GRID[:, 0]]
    np.testing.assert_allclose(accuracies(np.column_stack([renamed, GRID[:, 1:]])), 1)


def test_bins_hold_equal_counts_and_never_part_equal_values():
    assert equal_counts(np.array([5.0, 1, 4, 2, 3, 0]), 3).tolist() == [2, 0, 2, 1, 1, 0]
    assert equal_counts(np.array([1.0, 1, 1, 1, 2, 3]), 3).tolist() == [1, 1, 1, 1, 2, 2]
    assert equal_counts(np.array([1.0, 1, 2, 2, 2, 3]), 3).tolist() == [0, 0, 1, 1, 1, 2]
    assert len(set(equal_counts(np.ones(4), 2))) == 1


def test_exact_codes_are_right_in_a_sample_whose_values_are_not_equally_frequent():
    """The released code cuts before the value that has the wanted row, which joins neighbours: about .8."""
    factors = np.random.default_rng(0).integers(0, [8, 3, 5], size=(1000, 3))
    assert score("snc", factors, factors) == {"snc": 1.0}


def test_the_matching_of_bins_has_the_largest_sum():
    assert matched(np.array([[9, 8], [8, 1]])) == pytest.approx(16 / 26)


def test_factors_with_one_value_are_left_out():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert score("snc", GRID, constant)["snc"] == pytest.approx(1)
    assert score("snc", GRID, constant[:, -1:]) == {"snc": 0.0}
