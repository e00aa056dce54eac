"""Perceived distances against SciPy, and XYSquares against the published correlations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from disentune.data import DATASETS
from disentune.metrics import score, scores
from disentune.metrics.distances import Params, pairs_anywhere, pairs_by_factor
from disentune.metrics.lines import triples
from disentune.metrics.perceived_distances import BATCH, _in_batches, image_distances
from disentune.metrics.perceived_distances import score as score_of
from disentune.metrics.table import table_of
from line_examples import factors_of_lines, full_grid, random_codes


def by_pairs(table, pixels, pairs):
    """Spearman and Pearson of images with factors, then with codes, with SciPy."""
    first, second = (rows.ravel() for rows in pairs.rows())
    truth = np.abs(table.factors[first] - table.factors[second]).sum(axis=1)
    images = ((pixels[first] - pixels[second]) ** 2).mean(axis=1)
    latent = np.sqrt(((table.codes[first] - table.codes[second]) ** 2).sum(axis=1))
    return [
        correlation(*sides)[0] for sides in ((truth, images), (images, latent)) for correlation in (spearmanr, pearsonr)
    ]


def test_scores_are_those_of_scipy():
    grid = full_grid((4, 3, 5))
    pixels = grid @ np.array([[1, 0.2], [0.5, -1], [0, 2]]) + random_codes(grid, 2, seed=5)
    table = table_of(random_codes(grid, 3) + grid, grid, images=pixels)
    params = Params(traversals=40, triples=20, group=6)
    found = score_of(table, np.random.default_rng(3), params)
    rng = np.random.default_rng(3)
    lines = [by_pairs(table, pixels, pairs) for pairs in pairs_by_factor(table, rng, params)]
    anywhere = by_pairs(table, pixels, pairs_anywhere(table, rng, params))
    names = ("", "_pearson", "_latent", "_latent_pearson")
    names += ("_global", "_global_pearson", "_latent_global", "_latent_global_pearson")
    assert tuple(found) == tuple(f"perceived_distances{name}" for name in names)
    assert [*found.values()] == pytest.approx([*np.mean(lines, axis=0), *anywhere], abs=1e-6)  # 16 bits


def test_exact_ties_are_those_of_disent():
    """Images' distances that differ in the last bit of single precision are not equal."""
    grid = full_grid((9, 8))
    pixels = (grid * 0.1 + 0.7).astype(np.float32)
    table = replace(
        table_of(grid * 1.0, grid), distance=lambda first, second: ((pixels[first] - pixels[second]) ** 2).mean(axis=1)
    )
    params = Params(ties="exact")
    found = score_of(table, np.random.default_rng(3), params)["perceived_distances"]
    values = []
    for pairs in pairs_by_factor(table, np.random.default_rng(3), params):
        first, second = (rows.ravel() for rows in pairs.rows())
        images = table.distance(first, second)
        values.append(spearmanr(np.abs(grid[first] - grid[second]).sum(axis=1), images)[0])
    assert found == pytest.approx(np.mean(values), abs=1e-9)
    assert found < 0.999
    rounded = score_of(table, np.random.default_rng(3), Params())["perceived_distances"]
    assert rounded == pytest.approx(1, abs=1e-9)


def test_each_two_of_a_group_are_compared_once_and_in_few_batches():
    calls = []

    def distance(first, second):
        calls.append(np.stack([first, second], axis=1))
        return np.abs(first - second).astype(np.float32)

    groups = np.random.default_rng(0).permutation(800).reshape(100, 8)
    pairs = triples(groups, 200, np.random.default_rng(0))
    found = image_distances(distance, pairs)
    np.testing.assert_array_equal(found, np.abs(np.subtract(*pairs.rows())))
    compared = np.concatenate(calls)
    assert len(compared) == len({frozenset(pair) for pair in compared.tolist()}) <= 100 * 36
    assert len(compared) > 100 * 35
    assert [len(call) for call in calls[:-1]] == [BATCH] * 3


def test_a_loss_need_not_be_symmetric_nor_zero_between_equals():
    """The member that stands first in its group is shown, the other is the target."""
    pairs = triples(np.array([[5, 3, 9]]), 50, np.random.default_rng(0))
    found = image_distances(lambda shown, target: 10.0 * shown + target, pairs)
    places = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    np.testing.assert_array_equal(found, 10 * pairs.groups[0][places[0]] + pairs.groups[0][places[1]])


def squares_table(spacing, lines=256):
    """XYSquares with exact coordinates as codes; its distance is the mean squared difference in [0, 1]."""
    params = DATASETS["xysquares"].params(spacing=spacing, grid_size=8)
    data = DATASETS["xysquares"].open(params)
    factors = factors_of_lines(lines)
    indices = np.ravel_multi_index(tuple(factors.T), data.factor_sizes)

    def distance(first, second):
        differ = data.images(indices[first]) != data.images(indices[second])
        return differ.mean(axis=(1, 2, 3), dtype=np.float64)

    return replace(table_of(factors * 1.0, factors), distance=distance)


PUBLISHED = {1: (1.0, 1.0, 0.98, 0.97), 4: (0.75, 0.85, 0.67, 0.58), 8: (0.5229, 0.5806, 0.5550, 0.3646)}
"""Pearson and Spearman along x_R, then of random images, by spacing."""


@pytest.mark.parametrize("spacing", PUBLISHED)
def test_xysquares_correlations_are_as_published(spacing):
    found = scores("perceived_distances", squares_table(spacing), 0, "full", {"traversals": 64}).numbers
    keys = ("_pearson", "", "_global_pearson", "_global")
    values = [found[f"perceived_distances{key}"] for key in keys]
    assert values == pytest.approx(PUBLISHED[spacing], abs=0.02)  # of 64 lines a factor, 64 groups


def test_spacing_eight_perceives_only_whether_images_are_equal():
    """All other distances along a factor tie, so codes agree with images as factors do."""
    found = scores("perceived_distances", squares_table(8), 0, "full", {"traversals": 16}).numbers
    assert found["perceived_distances_latent"] == pytest.approx(found["perceived_distances"], abs=1e-9)
    assert found["perceived_distances_latent_pearson"] == pytest.approx(found["perceived_distances_pearson"], abs=1e-9)


def test_codes_that_are_images_agree_with_them():
    grid = full_grid((3, 4))
    codes = random_codes(grid, 1)
    found = score("perceived_distances", codes, grid, images=codes)
    assert found["perceived_distances_latent"] == pytest.approx(1, abs=1e-4)  # squares keep order but for 16 bits


def test_equal_images_score_zero():
    grid = full_grid((3, 4))
    assert not any(score("perceived_distances", grid * 1.0, grid, images=np.ones((12, 5))).values())


def test_factors_of_one_value_score_zero():
    grid = full_grid((3, 4))
    found = score("perceived_distances", random_codes(grid), np.zeros((12, 2), int), images=random_codes(grid))
    assert {key for key, value in found.items() if value} == {
        "perceived_distances_latent_global",
        "perceived_distances_latent_global_pearson",
    }


def test_batches_leave_no_pair_out():
    rows = np.arange(BATCH + 1)
    assert (_in_batches(lambda first, second: first + second, rows, rows) == 2 * rows).all()
