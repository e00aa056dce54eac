"""MIG against scikit-learn and representations of known score."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from disentune.metrics import score
from disentune.metrics.information import binned, entropies, mutual_information
from disentune.metrics.mig import gap
from metric_examples import GRID, known_codes


def factors_of(sizes, n, seed=0):
    return np.random.default_rng(seed).integers(0, sizes, size=(n, len(sizes)))


def slow_mig(codes, factors, bins=20):
    """The definition, with scikit-learn's mutual information and NumPy's histogram."""
    gaps = []
    for factor in factors.T:
        labels = [np.digitize(code, np.histogram(code, bins)[1][:-1]) for code in codes.T]
        information = sorted(mutual_info_score(factor, label) for label in labels)
        gaps.append((information[-1] - information[-2]) / entropy(np.bincount(factor)))
    return np.mean(gaps)


def mixed(n=2000):
    """Codes that are partly right: a rotation of two factors, one clean, one noise."""
    factors, rng = factors_of([4, 6, 5], n), np.random.default_rng(1)
    x, y, z = factors.T + 0.1 * rng.normal(size=(3, n))
    return np.stack([x + y, x - 0.3 * y, z, rng.normal(size=n)], axis=1), factors


def test_the_score_is_that_of_the_definition():
    codes, factors = mixed()
    value = score("mig", codes, factors)["mig"]
    assert value == pytest.approx(slow_mig(codes, factors), abs=1e-12)
    assert 0.1 < value < 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [("exact", 1), ("twice", 0), ("merged and constant", 1), ("halved", 0.8333), ("turned", 0.3333)],
)
def test_known_codes_score_as_worked_out(name, value):
    assert score("mig", known_codes()[name], GRID)["mig"] == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("bins", [2, 7])
def test_bins_can_be_chosen(bins):
    codes, factors = mixed()
    assert score("mig", codes, factors, bins=bins)["mig"] == pytest.approx(slow_mig(codes, factors, bins), abs=1e-12)


def test_mutual_information_agrees_with_scikit_learn():
    codes, factors = mixed(500)
    labels = binned(codes, 5)
    expected = [[mutual_info_score(label, factor) for factor in factors.T] for label in labels.T]
    np.testing.assert_allclose(mutual_information(labels, factors), expected, atol=1e-14)


def test_tiny_tables_have_the_information_counted_by_hand():
    labels = np.array([[1, 2], [2, 2], [1, 1], [2, 1]])
    information = mutual_information(labels, labels - 1)
    np.testing.assert_allclose(information, np.log(2) * np.eye(2), atol=1e-15)


def test_bins_have_equal_widths_and_the_last_holds_the_maximum():
    assert binned(np.arange(1, 7)[:, None] / 10, 3).T.tolist() == [[0, 0, 1, 1, 2, 2]]
    assert binned(np.array([[0.0], [0.3], [100.0]]), 20).T.tolist() == [[0, 0, 19]]
    assert binned(np.arange(5.0)[:, None], 4).T.tolist() == [[0, 1, 2, 3, 3]]  # an edge belongs to the bin above
    assert len(set(binned(np.full((3, 1), 5.0), 20).ravel())) == 1


def test_entropy_is_in_nats():
    np.testing.assert_allclose(entropies(np.array([[0, 0], [0, 0], [1, 0], [1, 0], [2, 0], [2, 0]])), [np.log(3), 0])


def test_gap_is_between_the_two_best_codes_of_each_factor():
    information = np.array([[0.9, 0.1], [0.5, 0.2], [0.0, 0.8]])
    assert gap(information, np.array([1.0, 2.0])) == pytest.approx((0.4 / 1 + 0.6 / 2) / 2)


def test_a_single_code_is_compared_with_nothing():
    factors = factors_of([4], 1000)
    assert score("mig", factors * 1.0, factors)["mig"] == pytest.approx(1)


def test_a_factor_of_one_value_is_left_out():
    codes, factors = mixed()
    constant = np.column_stack([factors, np.full(len(factors), 3)])
    assert score("mig", codes, constant) == score("mig", codes, factors)
    assert score("mig", codes, constant[:, -1:]) == {"mig": 0.0}


def test_six_exact_factors_of_eight_values_score_as_published():
    factors = factors_of([8] * 6, 10_000)
    assert score("mig", factors * 1.0, factors)["mig"] == pytest.approx(0.9986, abs=5e-4)  # sampling error


def test_ten_exact_factors_of_ten_values_score_as_published():
    factors = factors_of([10] * 10, 3000)
    assert score("mig", factors * 1.0, factors)["mig"] == pytest.approx(0.99216, abs=1.5e-3)  # sampling error


def test_exact_dsprites_factors_do_not_reach_one_in_twenty_bins():
    factors = factors_of([3, 6, 40, 32, 32], 10_000)
    assert score("mig", factors * 1.0, factors)["mig"] == pytest.approx(0.896, abs=5e-3)  # sampling error


@pytest.mark.parametrize(("n", "floor"), [(10_000, 0.0002), (2000, 0.0012)])
def test_noise_scores_the_published_floor(n, floor):
    codes = np.random.default_rng(1).normal(size=(n, 9))
    assert score("mig", codes, factors_of([8] * 6, n))["mig"] == pytest.approx(floor, rel=0.6)  # of one draw


def test_samples_larger_than_the_table_use_all_of_it():
    codes, factors = mixed()
    assert score("mig", codes, factors, seed=1) == pytest.approx(score("mig", codes, factors, seed=2), abs=1e-12)


def test_fewer_samples_than_rows_depend_on_the_seed():
    codes, factors = mixed()
    values = {score("mig", codes, factors, seed=seed, samples=500)["mig"] for seed in (0, 0, 1)}
    assert len(values) == 2


def test_a_constant_code_moves_no_edge_of_another():
    """NumPy rounds edges of several columns at once by what the others are."""
    codes = factors_of([21, 21, 21], 4000) * 0.3
    constant = np.zeros((4000, 1))
    assert (binned(np.hstack([codes, constant]), 20)[:, :3] == binned(codes, 20)).all()
    labels = [np.digitize(code, np.histogram(code, 20)[1][:-1]) - 1 for code in codes.T]
    assert (binned(codes, 20) == np.stack(labels, axis=1)).all()
