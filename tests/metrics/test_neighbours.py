"""Information from nearest neighbours against scikit-learn."""

import numpy as np
import pytest
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif

from disentune.metrics.neighbours import nearest_information
from disentune.metrics.udr import standardised
from metric_examples import factors_of, noisy


def of_scikit_learn(codes, labels, neighbours):
    unit = standardised(codes)
    return np.stack(
        [mutual_info_classif(unit, factor, n_neighbors=neighbours, random_state=0) for factor in labels.T], axis=1
    )


@pytest.mark.parametrize("neighbours", [1, 3, 10])
def test_continuous_codes_have_the_information_that_scikit_learn_finds(neighbours):
    factors = factors_of()
    codes = np.column_stack([noisy(factors), np.random.default_rng(5).standard_cauchy(len(factors))])
    found = nearest_information(codes, factors, neighbours, np.random.default_rng(0))
    np.testing.assert_allclose(found, of_scikit_learn(codes, factors, neighbours), atol=1e-12)
    assert found.max() > 0.5


def slow_information(code, labels, neighbours):
    """Ross 2014, Eq. 1, row by row: psi(N) + psi(k) - psi(N_x) - psi(m), as means."""
    counts = np.bincount(labels)
    rows = np.flatnonzero(counts[labels] > 1)
    total = 0.0
    for row in rows:
        known = min(neighbours, counts[labels[row]] - 1)
        own = np.sort(np.abs(code - code[row])[labels == labels[row]])
        closer = (np.abs(code[rows] - code[row]) < own[known]).sum()
        total += digamma(known) - digamma(counts[labels[row]]) - digamma(closer)
    return max(0.0, digamma(len(rows)) + total / len(rows))


def test_values_with_fewer_rows_than_neighbours_use_those_they_have():
    """scikit-learn's distances of few rows are rounded, so that it counts some neighbours more."""
    labels = np.repeat(np.arange(60), np.arange(60) % 7 + 1)
    code = labels / 9 + np.random.default_rng(0).normal(size=labels.shape)
    found = nearest_information(code[:, None], labels[:, None], 10, np.random.default_rng(0))
    assert found.item() == pytest.approx(slow_information(code, labels, 10), abs=1e-12)
    assert found.item() == pytest.approx(of_scikit_learn(code[:, None], labels[:, None], 10).item(), abs=0.01)


def test_shift_and_scale_do_not_matter():
    factors = factors_of()
    codes = noisy(factors)
    expected = nearest_information(codes, factors, 10, np.random.default_rng(0))
    for moved in (1e-200 * codes, 1e200 * codes, codes + 1e4):
        found = nearest_information(moved, factors, 10, np.random.default_rng(0))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_constants_and_values_that_occur_once_have_none():
    rng = np.random.default_rng(0)
    assert nearest_information(np.ones((30, 1)), np.arange(30)[:, None] % 3, 10, rng).tolist() == [[0]]
    assert nearest_information(rng.normal(size=(30, 1)), np.arange(30)[:, None], 10, rng).tolist() == [[0]]


def test_equal_values_are_told_apart_by_noise_as_in_scikit_learn():
    factors = factors_of(40)
    found = nearest_information(factors * 1.0, factors, 3, np.random.default_rng(0))
    np.testing.assert_allclose(found, of_scikit_learn(factors * 1.0, factors, 3), atol=0.02)  # of the noise
    np.testing.assert_allclose(np.diag(found), np.log([4, 3, 5]), atol=0.02)
