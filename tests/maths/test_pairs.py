"""Pair laws against their exact probabilities; frequencies may stray 4.5 standard deviations."""

from itertools import product
from math import comb, sqrt

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from disentune.maths.pairs import FixedK, Independent, Laplace, Original, Pairs, UniformK

N = 100_000


def partners_of(law, factors, sizes, ordered=None, seed=0):
    factors = np.asarray(factors)
    ordered = np.ones(len(sizes), bool) if ordered is None else np.asarray(ordered)
    return law.draw(factors, sizes, ordered, np.random.default_rng(seed))


def original(factors, sizes, rng):
    return Original().draw(factors, sizes, np.ones(len(sizes), bool), rng)


def changed(sizes, n=N, seed=0, law=None):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return (law or Original()).draw(factors, sizes, np.ones(len(sizes), bool), rng) != factors


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


# ---- uniform_k and fixed_k


def test_uniform_k_moves_one_to_all_but_one_factors_equally_often():
    assert_frequencies(changed([2, 3, 4, 5], law=UniformK()).sum(axis=1), [0, 1 / 3, 1 / 3, 1 / 3, 0])


def test_uniform_k_moves_the_only_factor_that_can():
    assert changed([1, 5, 1], n=2000, law=UniformK()).tolist() == [[False, True, False]] * 2000


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_fixed_k_moves_every_set_of_k_factors_equally_often(k):
    rows = changed([2, 3, 4, 5], law=FixedK(k=k))
    assert (rows.sum(axis=1) == k).all()
    sets, counts = np.unique(rows, axis=0, return_counts=True)
    share = 1 / comb(4, k)
    assert len(sets) == comb(4, k)
    np.testing.assert_allclose(counts / N, share, atol=4.5 * sqrt(share * (1 - share) / N))


@pytest.mark.parametrize("law", [UniformK(), FixedK(k=2)])
def test_factors_of_one_value_are_never_chosen(law):
    """Of five factors three can move: their share is that of three, whatever stands between them."""
    moved = changed([4, 1, 4, 1, 4], law=law)
    assert not moved[:, [1, 3]].any()
    mean = 1.5 if law.name == "uniform_k" else 2
    share = mean / 3
    np.testing.assert_allclose(moved[:, [0, 2, 4]].mean(axis=0), share, atol=4.5 * sqrt(share * (1 - share) / N))


def test_a_moved_factor_takes_each_of_its_other_values_equally_often_whether_ordered_or_not():
    partners = partners_of(FixedK(k=2), [[1, 4]] * N, [3, 7], ordered=[True, False])
    for column, size, own in zip(partners.T, (3, 7), (1, 4), strict=True):
        law = np.where(np.arange(size) == own, 0, 1 / (size - 1))
        assert_frequencies(column, law)


# ---- laplace


def slow_laplace(start, sizes, ordered, rate):
    """The law of one row's partner as {partner: probability}, read off the released code."""
    alone = []
    for value, size, moves in zip(start, sizes, ordered, strict=True):
        density = stats.laplace.pdf(np.arange(size), loc=value, scale=np.log(size) / rate) if moves else None
        alone.append(density / density.sum() if moves else np.eye(size)[value])
    law = {end: np.prod([p[v] for p, v in zip(alone, end, strict=True)]) for end in product(*map(range, sizes))}
    unchanged = law.pop(tuple(start))
    choices = [factor for factor in range(len(sizes)) if ordered[factor]]
    for factor in choices:
        forced = np.where(np.arange(sizes[factor]) == start[factor], 0, alone[factor])
        for value, probability in enumerate(forced / forced.sum()):
            if probability:
                law[(*start[:factor], value, *start[factor + 1 :])] += unchanged * probability / len(choices)
    return law


@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
def test_laplace_partners_follow_the_released_density(rate):
    sizes, ordered, starts = (4, 2, 5), (True, False, True), [(1, 0, 4), (0, 1, 2)]
    partners = partners_of(Laplace(rate=rate), np.tile(starts, (N, 1)), sizes, ordered)
    for row, start in enumerate(starts):
        codes = np.ravel_multi_index(tuple(partners[row::2].T), sizes)
        law = slow_laplace(start, sizes, ordered, rate)
        assert sum(law.values()) == pytest.approx(1)
        assert_frequencies(codes, [law.get(end, 0) for end in product(*map(range, sizes))])


def test_a_factor_of_two_values_moves_with_the_chance_of_one_step():
    """Scale log 2: the other value has weight exp(-1 / log 2), so it is taken with chance w / (1 + w); then forced."""
    weight = np.exp(-1 / np.log(2))
    move = weight / (1 + weight)
    partners = partners_of(Laplace(), np.zeros((N, 2), int), [2, 2])
    assert_frequencies(partners.sum(axis=1), [0, 2 * move * (1 - move) + (1 - move) ** 2, move**2])


def test_a_large_rate_forces_one_ordered_factor_to_a_neighbour():
    partners = partners_of(Laplace(rate=1e6), [[0, 1, 3]] * N, [5, 5, 5], ordered=[True, False, True])
    ends, counts = np.unique(partners, axis=0, return_counts=True)
    assert ends.tolist() == [[0, 1, 2], [0, 1, 4], [1, 1, 3]]
    np.testing.assert_allclose(counts / N, [0.25, 0.25, 0.5], atol=4.5 * sqrt(0.25 / N))


def test_laplace_leaves_factors_of_one_value_and_always_moves_another():
    moved = changed([1, 6, 1, 6], n=2000, law=Laplace())
    assert not moved[:, [0, 2]].any()
    assert moved.any(axis=1).all()


def test_laplace_says_when_no_ordered_factor_can_move():
    with pytest.raises(ValueError, match="ordered"):
        partners_of(Laplace(), [[0, 0]], [1, 5], ordered=[True, False])


# ---- every law

LAWS = [Original(), UniformK(), FixedK(k=3), Laplace(), Independent()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_equal_generators_give_equal_partners_inside_the_grid_and_nothing_else_moves(law):
    sizes = (8, 1, 3, 5, 2, 40)
    factors = np.random.default_rng(1).integers(0, sizes, size=(500, 6))
    before, state = factors.copy(), np.random.get_state()[1].copy()  # noqa: NPY002 (the point of the test)
    first, second = (partners_of(law, factors, sizes, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(factors, before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert first.dtype == factors.dtype
    assert ((first >= 0) & (first < sizes)).all()
    assert (partners_of(law, factors, sizes, seed=4) != first).any()


@pytest.mark.parametrize("law", LAWS[1:4], ids=lambda law: law.name)
def test_the_laws_of_slow_vae_give_no_pair_of_equal_images(law):
    assert changed([3, 4, 5, 6], n=20_000, law=law).any(axis=1).all()


@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.name)
def test_every_law_is_refused_when_no_factor_can_move(law):
    law.check((2, 3, 1, 4))
    with pytest.raises(ValueError, match=r"two (or more values|values or more)"):
        law.check((1, 1))


def test_fixed_k_is_refused_when_fewer_factors_can_move():
    FixedK(k=2).check((3, 1, 2))
    for refused in (FixedK(k=3).check, lambda sizes: partners_of(FixedK(k=3), [[0, 0, 0]], sizes)):
        with pytest.raises(ValueError, match=r"k must be <= 2.*got 3"):
            refused((3, 1, 2))


def test_a_law_is_spelled_by_its_name_or_as_a_mapping():
    read = TypeAdapter(Pairs).validate_python
    assert [read(name) for name in ("original", "uniform_k", "laplace")] == [Original(), UniformK(), Laplace()]
    assert read({"name": "laplace", "rate": 2}) == Laplace(rate=2.0)
    assert read({"name": "fixed_k", "k": 2}) == FixedK(k=2)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("fixed_k", "k\n  Field required"),
        ({"name": "fixed_k", "k": 0}, "greater than or equal to 1"),
        ({"name": "laplace", "rate": 0}, "greater than 0"),
        ("other", "'original', 'uniform_k', 'fixed_k', 'laplace'"),
    ],
)
def test_a_law_without_what_it_needs_is_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        TypeAdapter(Pairs).validate_python(wrong)
