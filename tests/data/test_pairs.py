"""The pair law against its exact probabilities."""

from math import comb, sqrt

import numpy as np
import pytest

from disentune.data.pairs import PAIR_LAWS, original

N = 100_000


def changed(sizes, n=N, seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return original(factors, sizes, rng) != factors


def assert_frequencies(counts, probabilities):
    for value, probability in enumerate(probabilities):
        frequency, deviation = np.mean(counts == value), sqrt(probability * (1 - probability) / N)
        assert abs(frequency - probability) <= 4.5 * deviation, (value, frequency, probability)


def test_how_many_factors_are_drawn_again():
    """With huge factors a redrawn one nearly always differs: 1 with chance 1/2 + 1/(2 * 5), 2 to 5 with 1/10."""
    assert_frequencies(changed([10**9] * 6).sum(axis=1), [0, 0.6, 0.1, 0.1, 0.1, 0.1, 0])


def test_how_many_factors_of_xysquares_really_differ():
    """A redrawn factor keeps its value with chance 1/8, so given j redrawn the number that differ is binomial."""
    drawn = {1: 0.6, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1}
    law = [sum(p * comb(k, j) * (7 / 8) ** j * (1 / 8) ** (k - j) for k, p in drawn.items()) for j in range(7)]
    assert law[:2] == pytest.approx([0.077, 0.553], abs=2e-3)  # measured on the original code
    assert sum(j * p for j, p in enumerate(law)) == pytest.approx(1.75)
    assert_frequencies(changed([8] * 6).sum(axis=1), law)


def test_every_factor_changes_equally_often():
    shares = changed([10**9] * 6).mean(axis=0)
    np.testing.assert_allclose(shares, 2 / 6, atol=4.5 * sqrt(2 / 9 / N))


def test_sets_of_two_are_all_equally_likely():
    rows = changed([10**9] * 4, n=60_000)
    pairs = rows[rows.sum(axis=1) == 2]
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(counts) == 6
    np.testing.assert_allclose(counts / len(pairs), 1 / 6, atol=4.5 * sqrt(5 / 36 / len(pairs)))


def test_redrawn_values_are_uniform_over_each_factors_own_size():
    rng = np.random.default_rng(0)
    partners = original(np.zeros((N, 2), int), [3, 7], rng)
    for column, size in zip(partners.T, (3, 7), strict=True):
        counts = np.bincount(column, minlength=size)
        assert len(counts) == size
        np.testing.assert_allclose(counts[1:] / N, 0.5 / size, atol=4.5 * sqrt(0.5 / size / N))


@pytest.mark.parametrize("factors", [1, 2])
def test_with_one_or_two_factors_exactly_one_is_redrawn(factors):
    assert (changed([10**9] * factors, n=2000).sum(axis=1) == 1).all()


def test_equal_generators_give_equal_partners_and_the_input_stays():
    factors = np.arange(60).reshape(10, 6) % 8
    before = factors.copy()
    first, second = (PAIR_LAWS["original"](factors, (8,) * 6, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(factors, before)
