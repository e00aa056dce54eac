"""Correlations of distances against SciPy, pair by pair."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from disentune.metrics import score
from disentune.metrics.distances import (
    Params,
    along_factor,
    code_distances,
    factor_distances,
    pairs_anywhere,
    pairs_by_factor,
    pearson,
    same_order,
    significant,
    spearman,
)
from disentune.metrics.distances import score as score_of
from disentune.metrics.table import table_of
from line_examples import factors_of_lines, full_grid, random_codes


def by_pairs(table, pairs):
    """Spearman, Pearson and order by L2, and Spearman by L1, with a loop over pairs and SciPy."""
    found = {"truth": [], 1: [], 2: []}
    for end in range(2):
        first, second = (rows[end].ravel() for rows in pairs.rows())
        for a, b in zip(first, second, strict=True):
            found["truth"].append(sum(abs(table.factors[a] - table.factors[b])))
            found[1].append(sum(abs(table.codes[a] - table.codes[b])))
            found[2].append(sum((table.codes[a] - table.codes[b]) ** 2) ** 0.5)
    truth, l1, l2 = found["truth"], found[1], found[2]
    half = len(truth) // 2
    same = [
        (truth[i] < truth[half + i] and l2[i] < l2[half + i])
        or (truth[i] > truth[half + i] and l2[i] > l2[half + i])
        or (truth[i] == truth[half + i] and l2[i] == l2[half + i])
        for i in range(half)
    ]
    return spearmanr(truth, l2)[0], pearsonr(truth, l2)[0], np.mean(same), spearmanr(truth, l1)[0]


def noisy_grid(sizes=(4, 3, 5)):
    grid = full_grid(sizes)
    return table_of(grid @ np.array([[1, 0.4], [0.2, -1], [0.5, 0.5]]) + 0.3 * random_codes(grid, 2), grid)


def test_agreement_along_a_factor_is_that_of_scipy():
    table = noisy_grid()
    for pairs in pairs_by_factor(table, np.random.default_rng(0), Params()):
        found = along_factor(table, table.codes, pairs)
        assert found == pytest.approx(by_pairs(table, pairs), abs=1e-6)  # distances have 16 bits


def test_scores_are_means_over_factors_and_of_random_rows():
    table, params = noisy_grid(), Params(traversals=40, triples=20, group=6)
    found = score_of(table, np.random.default_rng(3), params)
    rng = np.random.default_rng(3)
    lines = [by_pairs(table, pairs) for pairs in pairs_by_factor(table, rng, params)]
    spearman_, pearson_ = by_pairs(table, pairs_anywhere(table, rng, params))[:2]
    assert [*found.values()] == pytest.approx([*np.mean(lines, axis=0), spearman_, pearson_], abs=1e-6)
    assert len({round(value, 3) for value in found.values()}) == 6
    assert tuple(found) == (
        "distances",
        "distances_pearson",
        "distances_same",
        "distances_l1",
        "distances_global",
        "distances_global_pearson",
    )


def test_pairs_are_as_many_as_published():
    grid = full_grid((8, 5, 7))
    table = table_of(grid, grid)
    along = pairs_by_factor(table, np.random.default_rng(0), Params())
    assert [pairs.first.shape for pairs in along] == [(2, 35, 64), (2, 56, 64), (2, 40, 64)]
    anywhere = pairs_anywhere(table, np.random.default_rng(0), Params())
    assert anywhere.groups.shape == (1024, 32)
    assert anywhere.first.shape == (2, 1024, 64)
    assert set(anywhere.groups.ravel()) == set(range(280))


def test_xysquares_coordinates_and_noise_score_as_published():
    factors = factors_of_lines(128)
    exact = score("distances", factors * 1.0, factors, size="fast")
    assert [exact[f"distances{end}"] for end in ("", "_pearson", "_same", "_l1")] == pytest.approx([1] * 4, abs=1e-12)
    noise = score("distances", random_codes(factors), factors, size="fast")["distances"]
    assert noise == pytest.approx(0.329, abs=0.015)  # three sd of 128 lines for each of 6 factors


def test_l1_over_exact_codes_agrees_everywhere():
    table = table_of(full_grid((4, 5, 3)) * 1.0, full_grid((4, 5, 3)))
    pairs = pairs_anywhere(table, np.random.default_rng(0), Params(traversals=30))
    np.testing.assert_array_equal(factor_distances(table, pairs), code_distances(table.codes, pairs, 1))
    assert (factor_distances(table, pairs) >= code_distances(table.codes, pairs)).all()


def test_rounding_breaks_no_ties():
    """0.3 - 0.2 is not 0.2 - 0.1."""
    grid = full_grid((9, 8))
    found = score("distances", grid * 0.1 + 0.7, grid)
    assert [found["distances"], found["distances_same"]] == pytest.approx([1, 1], abs=1e-9)


def by_pairs_in_single_precision(table, pairs):
    """As disent computes them: float32 distances, compared to the last bit by SciPy."""
    first, second = (rows.reshape(2, -1) for rows in pairs.rows())
    truth = np.abs(table.factors[first] - table.factors[second]).sum(axis=-1)
    differences = np.abs(table.codes.astype(np.float32)[first] - table.codes.astype(np.float32)[second])
    l1, l2 = differences.sum(axis=-1), np.sqrt((differences**2).sum(axis=-1))
    assert l2.dtype == np.float32
    same = np.mean(np.sign(truth[0] - truth[1]) == np.sign(l2[0] - l2[1]))
    return [spearmanr(truth.ravel(), l2.ravel())[0], same, spearmanr(truth.ravel(), l1.ravel())[0]]


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_exact_ties_are_those_of_disent(scale):
    """Rounding breaks the ties of exact codes times 0.1, so that they do not score 1; those of whole numbers hold."""
    grid = full_grid((9, 8))
    table, params = table_of(grid * scale + 0.7 * (scale < 1), grid), Params(ties="exact")
    found = score_of(table, np.random.default_rng(3), params)
    lines = pairs_by_factor(table, np.random.default_rng(3), params)
    expected = np.mean([by_pairs_in_single_precision(table, pairs) for pairs in lines], axis=0)
    keys = ("distances", "distances_same", "distances_l1")
    assert [found[key] for key in keys] == pytest.approx(expected, abs=1e-9)
    assert (found["distances"] < 0.995) == (found["distances_same"] < 0.995) == (scale < 1)


def test_significant_bits_are_sixteen():
    values = np.array([0, 1, 1 + 2**-20, 1 + 2**-14, 1e-200, 3e30])
    rounded = significant(values)
    np.testing.assert_allclose(rounded, values, rtol=2**-16)
    assert rounded[1] == rounded[2] != rounded[3]
    assert rounded[0] == 0
    single = 128 / 12_288 * (1 + 1e-7 * np.random.default_rng(0).normal(size=100))
    assert np.ptp(significant(single)) == 0


def test_correlations_with_one_value_are_zero():
    assert pearson(np.ones(5), np.arange(5)) == pearson(np.arange(5), np.full(5, 0.1)) == 0
    assert spearman(np.arange(5), np.zeros(5)) == 0
    assert pearson(np.arange(5), -np.arange(5)) == pytest.approx(-1)
    assert pearson(1e-300 * np.arange(5), 1e300 * np.arange(5)) == pytest.approx(1)


def test_ties_must_tie_in_both():
    near, far = np.array([1, 1, 2, 1, 3]), np.array([2, 1, 1, 1, 4])
    other_near, other_far = np.array([5, 5, 5, 5, 5]), np.array([6, 5, 6, 6, 5])
    assert same_order(np.stack([near, far]), np.stack([other_near, other_far])) == 2 / 5


def test_collapsed_codes_score_zero():
    grid = full_grid((3, 4))
    found = score("distances", np.full((12, 2), 0.1), grid)
    assert {key: value for key, value in found.items() if value} == {"distances_same": found["distances_same"]}
    assert found["distances_same"] < 0.6  # ties of the factor alone


def test_factors_of_one_value_are_left_out():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert score("distances", codes, np.insert(grid, 1, 7, axis=1)) == score("distances", codes, grid)
    assert not any(score("distances", codes, np.zeros((12, 2), int)).values())


def test_a_cycle_is_worse_than_a_line_but_better_than_noise():
    factors = factors_of_lines(64, (16, 4))
    angle = factors[:, 0] * np.pi / 8
    cycle = np.stack([np.cos(angle), np.sin(angle), factors[:, 1]], axis=1)
    line, noise = factors * 1.0, random_codes(factors)
    values = [score("distances", codes, factors, size="fast")["distances"] for codes in (line, cycle, noise)]
    assert values == sorted(values, reverse=True)


def test_tiny_codes_score_as_large_ones():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert score("distances", 1e-300 * codes, grid) == pytest.approx(score("distances", codes, grid), abs=1e-6)
