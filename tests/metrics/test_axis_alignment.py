"""Axis alignment against ratios line by line and lines of known direction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gmean

from disentune.metrics import score
from disentune.metrics.axis_alignment import alignment, along_factor
from line_examples import factors_of_lines, full_grid, random_codes


def by_covariance(line):
    """Axis and linear ratio of one line (size, d)."""
    covariance, d = np.cov(line, rowvar=False), line.shape[1]
    largest = np.array([np.diag(covariance).max(), np.linalg.eigvalsh(covariance)[-1]])
    return (largest / np.trace(covariance) - 1 / d) / (1 - 1 / d)


def values(codes, factors, **params):
    found = score("axis_alignment", codes, factors, **params)
    return found["axis_alignment"], found["axis_alignment_ratio"]


@pytest.mark.parametrize(("mean", "over_factors"), [("arithmetic", np.mean), ("geometric", gmean)])
def test_scores_are_means_over_lines_of_each_line_s_own_quotient(mean, over_factors):
    grid = full_grid((2, 3, 4))
    codes = random_codes(grid, 3)
    cube = codes.reshape(2, 3, 4, 3)
    factors = []
    for axis in range(3):
        lines = np.moveaxis(cube, axis, 2).reshape(-1, cube.shape[axis], 3)
        found = np.array([by_covariance(line) for line in lines])
        factors.append(((found[:, 0] / found[:, 1]).mean(), found[:, 0].mean()))
    assert values(codes, grid, mean=mean) == pytest.approx(over_factors(factors, axis=0), abs=1e-12)


def test_the_mean_is_arithmetic_unless_disent_s_geometric_one_is_asked_for():
    """One factor lies on an axis, the other is turned by 40 degrees, so their alignments are 1 and cos(80)."""
    grid, turn = full_grid((4, 4)), np.radians(40)
    codes = np.stack([grid[:, 0], 0 * grid[:, 0]], axis=1) + np.outer(grid[:, 1], [np.sin(turn), np.cos(turn)])
    by_factor = [1, np.cos(2 * turn)]
    assert values(codes, grid)[0] == pytest.approx(np.mean(by_factor))
    assert values(codes, grid, mean="geometric")[0] == pytest.approx(np.sqrt(np.prod(by_factor)))


def test_xysquares_coordinates_and_noise_score_as_published():
    factors = factors_of_lines(128)
    assert values(factors * 1.0, factors, size="fast") == pytest.approx((1, 1), abs=1e-12)
    aligned, ratio = values(random_codes(factors), factors, size="fast")
    assert aligned == pytest.approx(0.375, abs=0.015)  # three sd of 128 lines for each of 6 factors
    assert ratio == pytest.approx(0.116, abs=0.006)


@settings(max_examples=20, deadline=None)
@given(degrees=st.floats(0, 45))
def test_a_rotation_by_less_than_half_a_right_angle_has_a_known_ratio(degrees):
    """Variances cos^2 and sin^2 on two axes: (cos^2 - 1/2) / (1/2) = cos(2 angle); the line stays straight."""
    angle, grid = np.radians(degrees), full_grid((4, 5))
    rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    assert values(grid @ rotation, grid) == pytest.approx((np.cos(2 * angle),) * 2, abs=1e-9)


def test_alignment_is_at_least_the_axis_ratio():
    """For it is divided by the linear ratio, which is at most 1."""
    aligned, ratio = along_factor(np.random.default_rng(0).normal(size=(50, 6, 3)))
    assert ratio < aligned < 1


def test_quotients_have_a_value_when_nothing_stands_out():
    found = alignment(np.array([0.2, 0.0, 1e-17, 0.5]), np.array([0.4, 0.0, 1e-17, 0.4999999]))
    assert found.tolist() == [0.5, 0, 0, 1]


def test_a_line_that_does_not_move_scores_zero_and_a_single_latent_that_does_scores_one():
    grid = full_grid((3, 4))
    assert values(np.full((12, 2), 0.1), grid) == (0, 0)
    assert values(grid[:, :1] * 1.0, grid) == (0.5, 0.5)
    assert values(grid[:, :1] * 1.0, grid, mean="geometric") == (0, 0)


def test_factors_of_one_value_are_left_out():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert values(codes, np.insert(grid, 1, 7, axis=1)) == values(codes, grid)
    for mean in ("arithmetic", "geometric"):
        assert values(codes, np.zeros((12, 2), int), mean=mean) == (0, 0)


def test_traversals_are_drawn_by_seed():
    grid = full_grid((6, 7, 5))
    codes = random_codes(grid)
    few = [values(codes, grid, seed=seed, traversals=3) for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]


def test_tiny_codes_score_as_large_ones():
    grid = full_grid((3, 4))
    assert values(1e-300 * random_codes(grid), grid) == pytest.approx(values(random_codes(grid), grid), abs=1e-9)
