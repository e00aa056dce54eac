"""Mutual information between codes against scikit-learn."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from disentune.errors import DataError
from disentune.metrics import score


def value(codes, **params):
    return score("mutual_information", codes, **params)["mutual_information"]


def by_pairs(codes, bins=20):
    """The definition, with scikit-learn's mutual information and NumPy's histogram."""
    labels = [np.digitize(code, np.histogram(code, bins)[1][:-1]) for code in codes.T]
    return np.mean([mutual_info_score(one, other) for one, other in combinations(labels, 2)])


def mixed(n=800, d=4):
    rng = np.random.default_rng(2)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d))


@pytest.mark.parametrize("bins", [2, 7, 20])
def test_the_score_is_the_mean_over_pairs_of_codes(bins):
    assert value(mixed(), bins=bins) == pytest.approx(by_pairs(mixed(), bins), abs=1e-12)


def test_twenty_bins_are_the_published_ones():
    assert value(mixed()) == value(mixed(), bins=20) > 0.1


def test_ten_exact_factors_of_ten_values_score_as_published():
    codes = np.random.RandomState(0).randint(1, 11, size=(3000, 10))
    assert value(codes) == pytest.approx(0.0145, abs=5e-5)


def test_equal_codes_share_their_entropy():
    code = np.repeat(np.arange(4.0), 25)
    assert value(np.stack([code, -code, 2 * code], axis=1)) == pytest.approx(np.log(4), abs=1e-12)


def test_every_combination_once_shares_nothing():
    grid = np.indices((4, 3, 5)).reshape(3, -1).T
    assert value(grid) == pytest.approx(0, abs=1e-12)


def test_a_single_code_shares_nothing():
    assert value(mixed()[:, :1]) == 0


def test_a_code_of_one_value_shares_nothing():
    codes = mixed()[:, :2]
    assert value(np.column_stack([codes, np.ones(len(codes))])) == pytest.approx(value(codes) / 3, abs=1e-12)


def test_samples_are_drawn_by_seed():
    assert value(mixed(), samples=100, seed=1) != value(mixed(), samples=100, seed=2)
    assert value(mixed(), seed=1) == pytest.approx(value(mixed(), seed=2), abs=1e-12)
    assert value(mixed(2500), size="fast", seed=1) != value(mixed(2500), size="fast", seed=2)


def test_bins_that_make_more_counts_than_memory_holds_are_refused():
    with pytest.raises(DataError, match=r"make 300,000,000 counts, and at most 100,000,000 fit; choose fewer bins"):
        value(mixed(), bins=10_000)
