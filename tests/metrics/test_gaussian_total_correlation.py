"""Gaussian total correlation against the covariance's determinant and closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.errors import DataError
from disentune.metrics import score
from disentune.metrics.gaussian_total_correlation import centred, total_correlation


def value(codes, **params):
    return score("gaussian_total_correlation", codes, **params)["gaussian_total_correlation"]


def by_determinant(codes):
    covariance = np.cov(codes, rowvar=False)
    return 0.5 * (np.log(np.diag(covariance)).sum() - np.linalg.slogdet(covariance)[1])


def with_covariance(covariance, n=400, seed=0):
    """Codes whose sample covariance is exactly this one."""
    white = np.random.default_rng(seed).normal(size=(n, len(covariance)))
    white = np.linalg.qr(white - white.mean(axis=0))[0] * np.sqrt(n - 1)
    return white @ np.linalg.cholesky(covariance).T + 3


def mixed(n=500, d=5):
    rng = np.random.default_rng(2)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def test_the_score_is_that_of_the_determinant():
    codes = mixed()
    assert value(codes) == pytest.approx(by_determinant(codes), abs=1e-9)
    assert value(codes) > 0.5


def test_a_correlation_of_point_nine_scores_as_published():
    found = value(with_covariance(np.array([[1, 0.9], [0.9, 1]])))
    assert found == pytest.approx(-0.5 * np.log(0.19), abs=1e-12)
    assert found == pytest.approx(0.830366, abs=1e-6)


def test_uncorrelated_codes_score_zero():
    assert value(with_covariance(np.diag([1.0, 4.0, 9.0]))) == pytest.approx(0, abs=1e-12)


def test_ten_exact_factors_of_ten_values_score_as_published():
    codes = np.random.RandomState(0).randint(1, 11, size=(3000, 10))
    assert value(codes) == pytest.approx(0.0070, abs=5e-5)


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-200, 1e30), shift=st.floats(-100, 100), seed=st.integers(0, 99))
def test_scale_and_order_of_codes_do_not_matter(scale, shift, seed):
    codes, rng = mixed(60, 3), np.random.default_rng(seed)
    scales = np.array([scale, 1, -2]) if scale < 1e-2 else np.array([scale, 1, 3])
    moved = codes * scales + np.array([0, shift, shift])
    assert value(moved[:, rng.permutation(3)]) == pytest.approx(by_determinant(codes), rel=1e-9)


def test_nearly_collinear_codes_keep_their_digits():
    rng = np.random.default_rng(0)
    a, b = np.linalg.qr(centred(rng.normal(size=(200, 2))))[0].T
    tilt = 1e-9  # a covariance would need 36 digits for the determinant
    assert total_correlation(np.stack([a, a + tilt * b], axis=1)) == pytest.approx(-np.log(tilt), abs=1e-6)


def test_codes_of_one_value_are_left_out():
    codes = mixed()
    constant = np.insert(codes, 2, 0.1, axis=1)  # 0.1 has a rounded mean
    assert value(constant) == pytest.approx(value(codes), abs=1e-12)
    assert value(np.full((7, 3), 0.1)) == 0
    assert value(np.column_stack([codes[:, 0], np.ones(len(codes))])) == 0


def test_collinear_codes_are_named():
    codes = mixed()
    codes[:, 3] = codes[:, 0] - 2 * codes[:, 4] + 1
    with pytest.raises(DataError, match="columns 0, 3, 4 are"):
        value(codes)
    with pytest.raises(DataError, match="columns 1, 3 are"):
        value(np.column_stack([np.zeros(500), codes[:, 1], codes[:, 2], codes[:, 1]]))


def test_there_must_be_more_rows_than_codes():
    assert value(mixed(6)) == pytest.approx(by_determinant(mixed(6)), rel=1e-9)
    with pytest.raises(DataError, match="more rows than the 5 codes that vary, but has 5"):
        value(mixed(5))


def test_samples_are_drawn_by_seed():
    codes = mixed()
    assert abs(value(codes, samples=100, seed=1) - value(codes, samples=100, seed=2)) > 1e-3
    assert value(codes, seed=1) == pytest.approx(value(codes, seed=2), abs=1e-12)
    larger = np.random.default_rng(0).normal(size=(2500, 2))
    assert abs(value(larger, size="fast", seed=1) - value(larger, size="fast", seed=2)) > 1e-8  # beyond rounding
