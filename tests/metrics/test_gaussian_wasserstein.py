"""Gaussian Wasserstein correlation against matrix roots and closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from disentune.metrics import score


def values(codes, **params):
    found = score("gaussian_wasserstein", codes, **params)
    return found["gaussian_wasserstein"], found["gaussian_wasserstein_normalised"]


def by_roots(codes):
    """The published form: rows of the covariance times its diagonal, which is not symmetric."""
    covariance = np.cov(codes, rowvar=False)
    root = sqrtm(np.diag(covariance)[:, None] * covariance)
    cost = 2 * np.trace(covariance) - 2 * np.trace(np.real(root))
    return cost, cost / np.trace(covariance)


def with_covariance(covariance, n=400, seed=0):
    """Codes whose sample covariance is exactly this one."""
    white = np.random.default_rng(seed).normal(size=(n, len(covariance)))
    white = np.linalg.qr(white - white.mean(axis=0))[0] * np.sqrt(n - 1)
    return white @ np.linalg.cholesky(covariance).T + 3


def mixed(n=500, d=5):
    rng = np.random.default_rng(2)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


@pytest.mark.parametrize("n", [6, 500])
def test_the_score_is_that_of_matrix_roots(n):
    assert values(mixed(n)) == pytest.approx(by_roots(mixed(n)), abs=1e-9)
    assert min(values(mixed(n))) > 0.1


def test_a_correlation_of_point_nine_scores_as_published():
    cost, share = values(with_covariance(np.array([[1, 0.9], [0.9, 1]])))
    assert cost == pytest.approx(4 - 2 * (np.sqrt(1.9) + np.sqrt(0.1)), abs=1e-12)
    assert cost == pytest.approx(0.610735, abs=1e-6)
    assert share == pytest.approx(cost / 2, abs=1e-12)


def test_uncorrelated_codes_score_zero():
    assert values(with_covariance(np.diag([1.0, 4.0, 9.0]))) == pytest.approx((0, 0), abs=1e-12)


def test_ten_exact_factors_of_ten_values_score_as_published():
    codes = np.random.RandomState(0).randint(1, 11, size=(3000, 10))
    cost, share = values(codes)
    assert cost == pytest.approx(0.0573, abs=5e-5)
    assert share == pytest.approx(0.00070, abs=5e-6)


def test_equal_codes_cost_what_a_root_of_rank_one_leaves():
    """Four of variance 1: the trace is 4, and D^1/2 C D^1/2 = ones(4, 4) has the one eigenvalue 4."""
    code = np.random.default_rng(0).normal(size=300)
    code = (code - code.mean()) / code.std(ddof=1)
    cost, share = values(np.repeat(code[:, None], 4, axis=1))
    assert cost == pytest.approx(8 - 2 * np.sqrt(4), abs=1e-12)
    assert share == pytest.approx(cost / 4, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-150, 1e30), shift=st.floats(-1, 1), seed=st.integers(0, 99))
def test_a_common_scale_squares_the_cost_and_leaves_its_share(scale, shift, seed):
    codes, rng = mixed(60, 3), np.random.default_rng(seed)
    cost, share = by_roots(codes)
    moved = values((codes + shift)[:, rng.permutation(3)] * -scale)
    assert moved == pytest.approx((cost * scale**2, share), rel=1e-8)  # the oracle's roots


def test_tiny_codes_keep_their_share():
    """Their squares are 0 in float64."""
    assert values(1e-300 * mixed())[1] == pytest.approx(by_roots(mixed())[1], abs=1e-9)


def test_codes_of_one_value_cost_nothing():
    assert values(np.full((7, 3), 0.1)) == (0, 0)  # 0.1 has a rounded mean
    assert values(np.ones((1, 2))) == (0, 0)
    extended = np.insert(mixed(), 1, 5, axis=1)
    assert values(extended) == pytest.approx(values(mixed()), abs=1e-9)


def test_samples_are_drawn_by_seed():
    codes = mixed()
    assert abs(values(codes, samples=100, seed=1)[0] - values(codes, samples=100, seed=2)[0]) > 1e-3
    assert values(codes, seed=1) == pytest.approx(values(codes, seed=2), abs=1e-9)
    larger = np.random.default_rng(0).normal(size=(2500, 2))
    assert (
        abs(values(larger, size="fast", seed=1)[0] - values(larger, size="fast", seed=2)[0]) > 1e-8
    )  # beyond rounding
