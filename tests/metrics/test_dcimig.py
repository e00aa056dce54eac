"""DCIMIG against a slow loop and representations of known score."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from disentune.metrics import score
from disentune.metrics.dcimig import gaps
from metric_examples import GRID, factors_of, known_codes, noisy

PUBLISHED = {
    "exact": 1.0, "twice": 1.0, "merged": 0.4634, "merged and constant": 0.4634, "halved": 0.8307, "turned": 0.4634
}  # fmt: skip


def slow_dcimig(codes, factors, bins=20):
    """As Carbonneau's code: every code keeps its lead at its best factor."""
    labels = [np.digitize(code, np.histogram(code, bins)[1][:-1]) for code in codes.T]
    leads = np.zeros((len(labels), factors.shape[1]))
    for row, label in enumerate(labels):
        information = [mutual_info_score(factor, label) for factor in factors.T]
        best, second = sorted(information)[-1], sorted(information)[-2]
        leads[row, information.index(best)] = best - second
    return leads.max(axis=0).sum() / sum(entropy(np.bincount(factor)) for factor in factors.T)


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_codes_score_as_worked_out(name):
    assert score("dcimig", known_codes()[name], GRID)["dcimig"] == pytest.approx(PUBLISHED[name], abs=5e-5)


@pytest.mark.parametrize("bins", [5, 20])
def test_the_score_is_that_of_the_definition(bins):
    factors = factors_of()
    value = score("dcimig", noisy(factors), factors, bins=bins)["dcimig"]
    assert value == pytest.approx(slow_dcimig(noisy(factors), factors, bins), abs=1e-12)
    assert 0.05 < value < 0.95


def test_a_code_counts_for_one_factor_only_and_the_best_code_of_a_factor_counts():
    information = np.array([[0.9, 0.5], [0.8, 0.1], [0.3, 0.4]])
    np.testing.assert_allclose(gaps(information), [0.7, 0.1])


def test_noise_and_constants_know_nothing():
    factors = np.random.default_rng(0).integers(0, 8, size=(10_000, 4))
    noise = np.random.default_rng(1).normal(size=(10_000, 6))
    assert score("dcimig", noise, factors)["dcimig"] < 0.005
    assert score("dcimig", np.ones((600, 3)), GRID) == {"dcimig": 0.0}


def test_factors_with_one_value_add_nothing():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert score("dcimig", GRID, constant) == score("dcimig", GRID, GRID)
    assert score("dcimig", GRID, constant[:, -1:]) == {"dcimig": 0.0}
