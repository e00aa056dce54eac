"""JEMMIG against a slow loop and representations of known score."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from disentune.metrics import METRICS, score, scored
from disentune.metrics.information import entropies, mutual_information
from disentune.metrics.jemmig import costs, joint_entropies, normalised
from disentune.metrics.table import table_of
from metric_examples import GRID, factors_of, known_codes, noisy

NATS = {"exact": 0.0, "twice": 1.3648, "merged and constant": 0.8283, "halved": 0.2310, "turned": 1.6566}
IN_TEN_BINS = {"exact": 1.0, "twice": 0.6299, "merged and constant": 0.7649, "halved": 0.9374, "turned": 0.5319}


def slow_jemmig(codes, factors, bins):
    """The definition, factor by factor."""
    labels = [np.digitize(code, np.histogram(code, bins)[1][:-1]) for code in codes.T]
    scores = []
    for factor in factors.T:
        information = [mutual_info_score(factor, label) for label in labels]
        best, second = sorted(information)[-1], sorted(information)[-2]
        pairs = np.stack([factor, labels[information.index(best)]])
        joint = entropy(np.unique(pairs, axis=1, return_counts=True)[1])
        scores.append(1 - (joint - best + second) / (entropy(np.bincount(factor)) + np.log(bins)))
    return np.mean(scores)


def values_of(codes):
    return np.stack([np.unique(code, return_inverse=True)[1] for code in codes.T], axis=1)


@pytest.mark.parametrize("name", NATS)
def test_known_codes_cost_as_worked_out(name):
    values = values_of(known_codes()[name])
    found = costs(mutual_information(values, GRID), joint_entropies(values, GRID))
    assert found.mean() == pytest.approx(NATS[name], abs=5e-5)
    assert normalised(found, entropies(GRID), 10).mean() == pytest.approx(IN_TEN_BINS[name], abs=5e-5)


@pytest.mark.parametrize("name", sorted(set(IN_TEN_BINS) - {"merged and constant"}))
def test_known_codes_score_as_in_the_published_ten_bins(name):
    assert score("jemmig", known_codes()[name], GRID, bins=10)["jemmig"] == pytest.approx(IN_TEN_BINS[name], abs=5e-5)


def test_twelve_values_in_ten_bins_lose_a_little():
    """As computed with Carbonneau's code, which is NaN where there is a constant code."""
    assert score("jemmig", known_codes()["merged"], GRID, bins=10)["jemmig"] == pytest.approx(0.7631, abs=5e-5)


@pytest.mark.parametrize("bins", [5, 20])
def test_the_score_is_that_of_the_definition(bins):
    factors = factors_of()
    value = score("jemmig", noisy(factors), factors, bins=bins)["jemmig"]
    assert value == pytest.approx(slow_jemmig(noisy(factors), factors, bins), abs=1e-12)
    assert 0.05 < value < 0.95


def test_the_costs_are_kept_in_nats():
    metric = METRICS["jemmig"]
    details = scored(metric, table_of(known_codes()["twice"], GRID), 0, metric.params()).details
    np.testing.assert_allclose(details["jemmig_nats"], np.log([4, 3, 5]), atol=1e-12)


def test_superfluous_detail_of_a_code_costs_although_its_gap_is_the_same():
    detailed = GRID + 0.2 * np.random.default_rng(0).random(GRID.shape)
    assert score("mig", detailed, GRID)["mig"] == pytest.approx(score("mig", GRID, GRID)["mig"], abs=0.1)
    assert score("jemmig", detailed, GRID)["jemmig"] < score("jemmig", GRID, GRID)["jemmig"] - 0.1


def test_noise_scores_little_and_constants_nothing():
    """The published form gives constants log(bins) / (entropy + log(bins)), here about .7."""
    factors = np.random.default_rng(0).integers(0, 8, size=(10_000, 4))
    uniform = np.random.default_rng(1).random(size=(10_000, 6))
    assert score("jemmig", uniform, factors)["jemmig"] < 0.01
    assert score("jemmig", np.ones((600, 3)), GRID) == {"jemmig": 0.0}


def test_factors_with_one_value_are_left_out():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert score("jemmig", GRID, constant) == score("jemmig", GRID, GRID)
    assert score("jemmig", GRID, constant[:, -1:]) == {"jemmig": 0.0}
