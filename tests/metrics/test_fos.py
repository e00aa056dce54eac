"""FoS against SciPy, a slow loop and sets of points of known distance."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.spatial.distance import directed_hausdorff

from disentune.metrics import score
from disentune.metrics.fos import distances

DIAGONAL = np.array([[0, 0], [1, 1], [2, 2]])
SQUARE = np.array(list(product(range(3), repeat=2)))
TRIANGLE = np.array([[0, 0], [1, 0], [0, 1]])
ROOT = np.sqrt(0.5)
KNOWN = {
    "diagonal": (DIAGONAL, 2),
    "grid": (SQUARE, 0),
    "triangle": (TRIANGLE, 1),
    "grid turned by 45 degrees": (SQUARE @ np.array([[ROOT, -ROOT], [ROOT, ROOT]]), 1),
    "twice as long": (2 * DIAGONAL, 8),
    "three equal codes": (np.repeat(np.arange(3)[:, None], 3, axis=1), 6),
    "a single code": (np.arange(3)[:, None], 0),
    "constant codes": (np.ones((9, 2)), 0),
    "a constant beside a code": (np.column_stack([np.arange(5), np.ones(5)]), 0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_points_of_known_distance(name):
    codes, expected = KNOWN[name]
    assert score("fos", codes)["fos"] == pytest.approx(expected, abs=1e-12)


def slow_fos(codes):
    """The definition: every product of two values, every point."""
    total = 0.0
    for one, other in combinations(codes.T, 2):
        points = list(zip(one, other, strict=True))
        total += max(min((a - x) ** 2 + (b - y) ** 2 for x, y in points) for a, b in product(one, other))
    return total


def test_a_batch_has_the_distance_of_the_definition_and_of_scipy():
    codes = np.random.default_rng(0).normal(size=(24, 4))
    assert score("fos", codes)["fos"] == pytest.approx(slow_fos(codes))
    found = distances(codes[None])[0]
    for value, (one, other) in zip(found, combinations(codes.T, 2), strict=True):
        grid = np.array(list(product(one, other)))
        assert value == pytest.approx(directed_hausdorff(grid, np.stack([one, other], axis=1))[0] ** 2)


def test_batches_are_averaged_and_rows_that_fill_none_are_left_out():
    codes = np.random.default_rng(0).normal(size=(25, 2))
    found = score("fos", codes, batch=24)["fos"]
    assert any(found == pytest.approx(slow_fos(np.delete(codes, left, axis=0))) for left in range(25))
    tiled = np.tile(DIAGONAL, (40, 1))
    assert score("fos", tiled, batch=60)["fos"] == pytest.approx(2)  # any 60 of 120 rows have all three points


def test_the_normalised_score_depends_on_neither_scale_nor_number_of_codes():
    codes = np.random.default_rng(0).normal(size=(640, 2))
    codes[:, 1] += codes[:, 0]
    more = np.hstack([codes, codes])
    expected = score("fos", codes / codes.std(axis=0))["fos"]
    assert score("fos", codes * [1, 100])["fos_normalised"] == pytest.approx(expected)
    pairs = [score("fos", more[:, list(pair)])["fos_normalised"] for pair in combinations(range(4), 2)]
    assert score("fos", more)["fos_normalised"] == pytest.approx(np.mean(pairs))


def test_codes_that_depend_on_each_other_are_farther_from_their_product():
    noise = np.random.default_rng(0).normal(size=(6400, 2))
    dependent = np.column_stack([noise[:, 0], 0.9 * noise[:, 0] + np.sqrt(1 - 0.81) * noise[:, 1]])
    assert score("fos", dependent)["fos_normalised"] > 1.5 * score("fos", noise)["fos_normalised"]


def test_no_factors_are_needed():
    assert score("fos", TRIANGLE) == score("fos", TRIANGLE, np.zeros((3, 1), int))
