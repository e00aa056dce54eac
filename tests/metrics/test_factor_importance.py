"""The mean perceived distance of each factor, against a naive loop and the closed form of XYSquares."""

import itertools

import numpy as np
import pytest

from disentune.learn import image_distances
from disentune.metrics import METRICS, scored
from disentune.metrics.factor_importance import Params
from disentune.metrics.table import table_of
from disentune.results.inspection import world_asked
from line_examples import full_grid, random_codes


def values(pixels, factors, **params):
    metric = METRICS["factor_importance"]
    table = table_of(random_codes(factors, 2), factors, images=pixels)
    return scored(metric, table, 0, metric.params(**params)).details["factor_importance_values"]


def test_it_is_the_mean_over_all_pairs_of_every_line():
    grid = full_grid((4, 3, 5))
    pixels = grid @ np.array([[1, 0.2], [0.5, -1], [0, 2]]) + random_codes(grid, 2, seed=5)
    expected = []
    for factor in range(3):
        others = [column for column in range(3) if column != factor]
        distances = [
            ((pixels[a] - pixels[b]) ** 2).mean()
            for a, b in itertools.combinations(range(len(grid)), 2)
            if (grid[a, others] == grid[b, others]).all()
        ]
        expected.append(np.mean(distances))
    np.testing.assert_allclose(values(pixels, grid, traversals=100), expected)


def test_a_factor_of_one_value_has_no_importance():
    grid = np.column_stack([full_grid((4, 3)), np.zeros(12, int)])
    assert values(random_codes(grid, 2), grid)[2] == 0


@pytest.mark.slow
def test_it_ranks_factors_as_inspect_does():
    world = image_distances.opened(
        world_asked("sprites2d", "mse", ["image_size=16", "scales=3", "orientations=4", "positions=5"]).config
    )
    grid = world.grid
    images = world.images(np.arange(len(grid))).flatten(1).numpy()
    found = values(images, grid.factors(np.arange(len(grid))), traversals=10_000)
    seen = image_distances.look(world, None).factors
    expected = [seen[name].agreement.mean_distance for name in grid.names]
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # images are float32 here


def test_fewer_lines_are_faster_and_close():
    assert Params().traversals == 64
    grid = full_grid((4, 3, 5))
    pixels = grid @ np.ones((3, 2))
    np.testing.assert_allclose(values(pixels, grid, traversals=2), values(pixels, grid), rtol=1e-12)
