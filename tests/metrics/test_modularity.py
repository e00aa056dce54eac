"""Modularity against scikit-learn and representations of known score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from disentune.metrics import score
from disentune.metrics.modularity import modularity
from metric_examples import factors_of, noisy


def drawn(sizes, n, seed=0):
    return np.random.default_rng(seed).integers(0, sizes, size=(n, len(sizes)))


def slow_modularity(codes, factors, bins):
    """The definition: distance from a template that has the largest information alone."""
    values = []
    for code in codes.T:
        label = np.digitize(code, np.histogram(code, bins)[1][:-1])
        information = [mutual_info_score(factor, label) for factor in factors.T]
        largest = max(information)
        template = [m if m == largest else 0 for m in information]
        distance = sum((m - t) ** 2 for m, t in zip(information, template, strict=True))
        values.append(1 - distance / (largest**2 * (len(information) - 1)))
    return sum(values) / len(values)


@pytest.mark.parametrize("bins", [20, 7])
def test_the_score_is_that_of_the_definition(bins):
    factors = factors_of()
    codes = np.column_stack([noisy(factors), noisy(factors) @ [1, 2, -1]])
    value = score("modularity", codes, factors, bins=bins)["modularity"]
    assert value == pytest.approx(slow_modularity(codes, factors, bins), abs=1e-12)
    assert 0.3 < value < 0.98


@pytest.mark.parametrize(
    ("information", "expected"),
    [
        (np.array([[1, 0], [0, 1], [0, 0]]), 2 / 3),
        (np.repeat(np.eye(5), 2, axis=1), 8 / 9),  # one code for two factors
        (np.zeros((4, 3)), 0),
        (np.repeat(np.eye(5), 2, axis=0), 1),  # each code twice
        (np.array([[2.0, 1.0, 0.0]]), 1 - 1 / (4 * 2)),
        (np.array([[0.3], [0.0]]), 0.5),  # a single factor: what tells of it tells of nothing else
        (np.array([[1e-17, 1e-16], [0.0, 1.0]]), 0.5),  # rounding is no information
    ],
)
def test_known_matrices(information, expected):
    assert modularity(information) == pytest.approx(expected)


def test_a_single_factor_makes_every_code_modular():
    factors = factors_of()
    assert score("modularity", noisy(factors), factors[:, :1]) == {"modularity": 1.0}


def test_a_factor_of_one_value_is_left_out():
    factors = factors_of()
    constant = np.column_stack([factors, np.full(len(factors), 3)])
    assert score("modularity", noisy(factors), constant) == score("modularity", noisy(factors), factors)
    assert score("modularity", noisy(factors), constant[:, -1:]) == {"modularity": 0.0}


def test_zeros_score_nothing():
    assert score("modularity", np.zeros((480, 4)), factors_of()) == {"modularity": 0.0}


# ---- known values


def test_ten_exact_factors_score_as_published_once_or_twice():
    factors = drawn([10] * 10, 3000)
    for codes in (factors, np.hstack([factors, factors])):
        assert score("modularity", codes * 1.0, factors)["modularity"] == pytest.approx(0.99996, abs=2e-5)  # of a draw


def test_codes_permuted_in_each_row_score_as_published():
    factors = drawn([10] * 10, 20_000)
    codes = np.random.default_rng(1).permuted(factors * 1.0, axis=1)
    value = score("modularity", codes, factors, samples=20_000)["modularity"]
    assert value == pytest.approx(0.1735, abs=0.01)  # deviation of a draw .002


def test_samples_are_drawn_without_repetition():
    factors = factors_of()
    codes = noisy(factors)
    few = [score("modularity", codes, factors, seed=seed, samples=200)["modularity"] for seed in (0, 1)]
    assert few[0] != few[1]
    assert score("modularity", codes, factors, seed=1) == pytest.approx(score("modularity", codes, factors), abs=1e-12)


# ---- invariances


@settings(max_examples=15, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*[st.sampled_from([-1, 1])] * 3),
    st.tuples(*[st.permutations(range(size)) for size in (4, 3, 5)]),
)
def test_order_and_sign_of_codes_and_names_of_values_change_nothing(order, signs, names):
    factors = factors_of(2)
    renamed = np.stack([np.array(name)[column] for name, column in zip(names, factors.T, strict=True)], axis=1)
    codes = noisy(factors)
    expected = score("modularity", codes, factors)
    assert score("modularity", (codes * signs)[:, order], renamed) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 3), st.floats(-5, 5))
def test_a_constant_code_lowers_the_score_to_its_share(place, value):
    factors = factors_of(2)
    codes = noisy(factors)
    lowered = score("modularity", np.insert(codes, place, value, axis=1), factors)["modularity"]
    assert lowered == pytest.approx(score("modularity", codes, factors)["modularity"] * 3 / 4)
