"""MIG-sup against scikit-learn and representations of known score."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from disentune.metrics import score
from disentune.metrics.mig_sup import gap
from metric_examples import GRID, factors_of, known_codes, noisy

PUBLISHED = {
    "exact": 1.0, "twice": 1.0, "merged": 0.5, "merged and constant": 0.3333, "halved": 0.8333, "turned": 0.4316
}  # fmt: skip
"""Of the equation; Carbonneau's code divides by the entropy of the code, and gives 1 for the halved codes."""


def slow_mig_sup(codes, factors, bins=20):
    """The definition, code by code."""
    gaps = []
    for code in codes.T:
        label = np.digitize(code, np.histogram(code, bins)[1][:-1])
        shares = sorted(mutual_info_score(factor, label) / entropy(np.bincount(factor)) for factor in factors.T)
        gaps.append(shares[-1] - shares[-2])
    return np.mean(gaps)


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_codes_score_as_worked_out(name):
    assert score("mig_sup", known_codes()[name], GRID)["mig_sup"] == pytest.approx(PUBLISHED[name], abs=5e-5)


@pytest.mark.parametrize("bins", [5, 20])
def test_the_score_is_that_of_the_definition(bins):
    factors = factors_of()
    value = score("mig_sup", noisy(factors), factors, bins=bins)["mig_sup"]
    assert value == pytest.approx(slow_mig_sup(noisy(factors), factors, bins), abs=1e-12)
    assert 0.05 < value < 0.95


def test_the_gap_of_a_code_that_knows_half_of_a_factor_of_four_values():
    """Half of log 4 about the first factor, all of log 2 about the second: shares 1/2 and 1."""
    information = np.array([[np.log(2), np.log(2)]])
    assert gap(information, np.log([4, 2])) == pytest.approx(0.5)


def test_noise_and_constants_know_nothing():
    factors = np.random.default_rng(0).integers(0, 8, size=(10_000, 4))
    noise = np.random.default_rng(1).normal(size=(10_000, 6))
    assert score("mig_sup", noise, factors)["mig_sup"] < 0.005
    assert score("mig_sup", np.ones((600, 3)), GRID) == {"mig_sup": 0.0}


def test_factors_with_one_value_are_left_out_and_a_single_factor_is_compared_with_nothing():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert score("mig_sup", GRID, constant) == score("mig_sup", GRID, GRID)
    assert score("mig_sup", GRID, constant[:, -1:]) == {"mig_sup": 0.0}
    assert score("mig_sup", GRID[:, :1], GRID[:, :1])["mig_sup"] == pytest.approx(1)
