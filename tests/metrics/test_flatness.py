"""Flatness against loops over points and against curves of known length."""

import numpy as np
import pytest

from disentune.metrics import score
from disentune.metrics.flatness import flatness, lengths, widths
from line_examples import factors_of_lines, full_grid, random_codes


def by_loops(codes):
    """Mean width and mean length of lines, for each norm."""
    found = {}
    for order in (1, 2):
        width, length = [], []
        for line in codes:
            size = len(line)
            width.append(max(np.linalg.norm(a - b, order) for a in line for b in line))
            steps = sorted(np.linalg.norm(line[i] - line[(i + 1) % size], order) for i in range(size))
            length.append((size - 1) * np.mean(steps[:-1]))
        found[order] = np.mean(width), np.mean(length)
    (width1, length1), (width2, length2) = found[1], found[2]
    return [width2 / length1, width1 / length1, width2 / length2]


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_flatness_is_that_of_loops(size):
    codes = np.random.default_rng(0).normal(size=(9, size, 4))
    np.testing.assert_allclose(flatness(codes), by_loops(codes), atol=1e-12)


def test_scores_are_means_over_factors():
    grid = full_grid((2, 3, 4))
    codes = random_codes(grid, 3)
    cube = codes.reshape(2, 3, 4, 3)
    lines = [np.moveaxis(cube, axis, 2).reshape(-1, cube.shape[axis], 3) for axis in range(3)]
    expected = np.mean([by_loops(codes) for codes in lines], axis=0)
    found = score("flatness", codes, grid)
    assert tuple(found) == ("flatness", "flatness_l1", "flatness_l2")
    np.testing.assert_allclose([*found.values()], expected, atol=1e-12)


def test_xysquares_coordinates_and_noise_score_as_published():
    factors = factors_of_lines(128)
    assert score("flatness", factors * 1.0, factors, size="fast") == dict.fromkeys(
        ("flatness", "flatness_l1", "flatness_l2"), 1.0
    )
    noise = score("flatness", random_codes(factors), factors, size="fast")["flatness"]
    assert noise == pytest.approx(0.089, abs=0.001)  # 128 lines are accurate to 0.0005


def test_a_diagonal_has_its_width_in_l2_and_its_length_in_l1():
    line = np.arange(5.0)[None, :, None] * np.ones(4)
    np.testing.assert_allclose(flatness(line), [1 / 2, 1, 1])


@pytest.mark.parametrize("size", [5, 6])
def test_a_half_circle_is_as_long_as_its_chords(size):
    """The size - 1 chords of the arc are 2 sin(pi / 2 (size - 1)) each; the closing one, the diameter, is dropped."""
    angle = np.linspace(0, np.pi, size)
    arc = np.stack([np.cos(angle), np.sin(angle)], axis=1)[None]
    chord = 2 * np.sin(np.pi / 2 / (size - 1))
    np.testing.assert_allclose(lengths(arc)[1], (size - 1) * chord)
    np.testing.assert_allclose(widths(arc)[1], 2)
    assert flatness(arc)[2] == pytest.approx(2 / ((size - 1) * chord))


def test_a_cycle_drops_one_of_its_equal_steps():
    angle = np.arange(8) * np.pi / 4
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)[None]
    assert flatness(circle)[2] == pytest.approx(2 / (7 * 2 * np.sin(np.pi / 8)))


def test_widths_and_lengths_are_averaged_before_they_are_divided():
    still_and_moving = np.stack([np.zeros((3, 1)), np.array([[0.0], [2.0], [1.0]])])
    np.testing.assert_allclose(flatness(still_and_moving), 2 / 2)
    short_and_long = np.stack([np.array([[0.0], [2.0], [1.0]]), np.array([[0.0], [10.0], [20.0]])])
    np.testing.assert_allclose(flatness(short_and_long), 22 / 22)
    bent = np.stack([np.array([[0.0, 0], [1, 0], [1, 1]]), np.array([[0.0, 0], [10, 0], [20, 0]])])
    np.testing.assert_allclose(flatness(bent)[2], (np.sqrt(2) + 20) / 22)


def test_a_collapsed_factor_scores_zero():
    grid = full_grid((3, 4))
    assert score("flatness", np.full((12, 2), 0.1), grid) == {"flatness": 0, "flatness_l1": 0, "flatness_l2": 0}
    assert score("flatness", grid[:, :1] * 1.0, grid)["flatness"] == pytest.approx(0.5)


def test_factors_of_one_value_are_left_out():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert score("flatness", codes, np.insert(grid, 1, 7, axis=1)) == score("flatness", codes, grid)
    assert score("flatness", codes, np.zeros((12, 2), int))["flatness"] == 0


def test_traversals_are_drawn_by_seed():
    grid = full_grid((6, 7, 5))
    codes = random_codes(grid)
    few = [score("flatness", codes, grid, seed=seed, traversals=3)["flatness"] for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]
    assert score("flatness", codes, grid, seed=0) == pytest.approx(score("flatness", codes, grid, seed=1), abs=1e-12)


def test_tiny_codes_score_as_large_ones():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert score("flatness", 1e-300 * codes, grid) == pytest.approx(score("flatness", codes, grid), abs=1e-9)
