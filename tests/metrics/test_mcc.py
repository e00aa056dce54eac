"""MCC against SciPy, every matching tried, and representations of known score."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from disentune.maths.randomness import metric_rng
from disentune.metrics import score
from disentune.metrics.mcc import correlations, matched
from disentune.metrics.table import rows_drawn
from metric_examples import factors_of, noisy

COEFFICIENT = {"spearman": spearmanr, "pearson": pearsonr}


def slow_mcc(codes, factors, correlation):
    """As many codes as factors: the best of all matchings."""
    strength = [[abs(COEFFICIENT[correlation](code, factor).statistic) for factor in factors.T] for code in codes.T]
    return max(np.mean([strength[i][j] for j, i in enumerate(order)]) for order in permutations(range(codes.shape[1])))


@pytest.mark.parametrize("correlation", ["spearman", "pearson"])
def test_the_score_is_that_of_the_best_matching(correlation):
    factors = factors_of()
    codes = np.exp(noisy(factors)[:, [2, 0, 1]] * [1, -1, 0.5])
    value = score("mcc", codes, factors, correlation=correlation)["mcc"]
    assert value == pytest.approx(slow_mcc(codes, factors, correlation), abs=1e-12)
    assert 0.3 < value < 0.99


def test_ranks_are_the_default():
    factors = factors_of()
    codes = np.exp(3.0 * factors)
    assert score("mcc", codes, factors)["mcc"] == pytest.approx(1)
    assert score("mcc", codes, factors, correlation="pearson")["mcc"] < 0.95


def test_correlations_are_those_of_numpy():
    factors = factors_of() * 1.0
    codes = noisy(factors)[:, :2]
    np.testing.assert_allclose(correlations(codes, factors), np.corrcoef(codes.T, factors.T)[:2, 2:], atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scale_does_not_matter_and_constants_correlate_zero(scale):
    codes = np.array([[0.0, 0.1], [1.0, 0.1], [3.0, 0.1]])
    np.testing.assert_allclose(correlations(scale * codes, codes[:, :1]), [[1], [0]], atol=1e-12)
    np.testing.assert_allclose(correlations(codes, np.full((3, 1), 0.7)), 0, atol=0)


def test_the_matching_has_the_largest_sum_not_the_largest_first():
    strength = np.array([[0.9, 0.8], [0.8, 0.1]])
    assert matched(strength, 2) == pytest.approx(0.8)


def test_columns_of_noise_are_matched_but_not_counted():
    strength = np.array([[0.9, 0.0, 0.8], [0.5, 0.1, 0.0], [0.2, 0.3, 0.1]])
    assert matched(strength, 2) == pytest.approx((0.5 + 0.3) / 2)


def test_factors_that_no_code_is_left_for_count_zero():
    factors = factors_of()
    assert score("mcc", factors[:, :1] * 1.0, factors)["mcc"] == pytest.approx(1 / 3)
    assert matched(np.array([[0.2, 0.9, 0.1]]), 3) == pytest.approx(0.3)


def test_codes_beyond_the_factors_are_matched_with_noise():
    """Codes that are the factor and its half-noisy copy; noise correlates with neither, so the exact one is matched."""
    factors = factors_of(8)[:, :1]
    copy = factors + np.random.default_rng(0).normal(size=factors.shape)
    assert score("mcc", np.hstack([copy, factors]), factors)["mcc"] == pytest.approx(1)


def test_there_is_a_column_of_noise_for_each_code_beyond_the_factors():
    rng, factors = metric_rng(0, "mcc"), factors_of(1)[:6, :2]
    codes = np.random.default_rng(0).normal(size=(6, 4))
    rows = rows_drawn(6, 10_000, rng)
    columns = np.hstack([factors[rows], rng.standard_normal((6, 2))])
    strength = np.abs(spearmanr(codes[rows], columns).statistic[:4, 4:])
    best = max(permutations(range(4)), key=lambda order: sum(strength[order, range(4)]))
    assert score("mcc", codes, factors)["mcc"] == pytest.approx(strength[best[:2], range(2)].mean())


def test_noise_can_take_a_code_from_its_factor():
    """Few rows: noise then correlates by chance, and the largest sum may be its. The padding is as published."""
    codes = np.random.default_rng(0).normal(size=(6, 5))
    factors = np.arange(6)[:, None] % 3
    alone = max(abs(spearmanr(code, factors[:, 0]).statistic) for code in codes.T)
    values = [score("mcc", codes, factors, seed)["mcc"] for seed in range(20)]
    assert max(values) == pytest.approx(alone)
    assert min(values) < alone - 0.01


def test_a_factor_of_one_value_is_left_out():
    factors = factors_of()
    constant = np.column_stack([factors, np.full(len(factors), 3)])
    assert score("mcc", noisy(factors), constant) == score("mcc", noisy(factors), factors)
    assert score("mcc", noisy(factors), constant[:, -1:]) == {"mcc": 0.0}


def test_exact_factors_score_one_zeros_nothing_and_noise_little():
    factors = np.random.default_rng(0).integers(0, 8, size=(10_000, 6))
    assert score("mcc", factors * 1.0, factors)["mcc"] == pytest.approx(1)
    assert score("mcc", np.zeros((10_000, 6)), factors)["mcc"] == 0
    noise = np.random.default_rng(1).normal(size=(10_000, 9))
    assert score("mcc", noise, factors)["mcc"] == pytest.approx(0.016, abs=0.012)  # a correlation deviates by .01


def test_samples_are_drawn_without_repetition():
    factors = factors_of()
    codes = noisy(factors)
    assert score("mcc", codes, factors, 0, samples=100) != score("mcc", codes, factors, 1, samples=100)
    assert score("mcc", codes, factors, 0) == pytest.approx(score("mcc", codes, factors, 1), abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(4)), st.tuples(*[st.sampled_from([-1, 1])] * 4), st.sampled_from(["spearman", "pearson"]))
def test_order_and_sign_of_codes_change_nothing(order, signs, correlation):
    factors = factors_of(2)
    codes = np.column_stack([noisy(factors), noisy(factors) @ [1, -1, 2]])
    expected = score("mcc", codes, factors, correlation=correlation)
    found = score("mcc", (codes * signs)[:, order], factors, correlation=correlation)
    assert found == pytest.approx(expected, abs=1e-12)


def test_values_far_apart_are_not_taken_for_neighbours():
    values = np.array([0, 1, 2, 100])[np.random.default_rng(0).integers(0, 4, size=(500, 2))]
    assert score("mcc", values * 1.0, values, correlation="pearson")["mcc"] == pytest.approx(1)
    assert score("sap", values * 1.0, values, continuous=True)["sap"] > 0.9
