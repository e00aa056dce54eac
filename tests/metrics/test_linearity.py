"""Linearity against principal components and lines of known shape."""

import numpy as np
import pytest
from scipy.stats import gmean
from sklearn.decomposition import PCA

from disentune.metrics import score
from disentune.metrics.linearity import ratios
from line_examples import factors_of_lines, full_grid, random_codes


def by_components(line):
    """Axis and linear ratio of one line (size, d), with scikit-learn's explained variance."""
    d = line.shape[1]
    shares = np.var(line, axis=0, ddof=1).max() / np.var(line, axis=0, ddof=1).sum(), PCA().fit(line)
    return tuple((share - 1 / d) / (1 - 1 / d) for share in (shares[0], shares[1].explained_variance_ratio_[0]))


def value(codes, factors, **params):
    return score("linearity", codes, factors, **params)["linearity"]


@pytest.mark.parametrize(("size", "latents"), [(8, 3), (3, 8), (4, 4), (2, 5), (9, 2)])
def test_ratios_are_those_of_principal_components(size, latents):
    codes = np.random.default_rng(0).normal(size=(6, size, latents)) * np.arange(1, latents + 1) + 5
    np.testing.assert_allclose(np.transpose(ratios(codes)), [by_components(line) for line in codes], atol=1e-12)


@pytest.mark.parametrize(("mean", "over_factors"), [("arithmetic", np.mean), ("geometric", gmean)])
def test_the_score_is_the_mean_over_factors_of_the_mean_over_lines(mean, over_factors):
    grid = full_grid((2, 3, 4))
    codes = random_codes(grid, 3)
    cube = codes.reshape(2, 3, 4, 3)
    lines = [np.moveaxis(cube, axis, 2).reshape(-1, cube.shape[axis], 3) for axis in range(3)]
    expected = over_factors([np.mean([by_components(line)[1] for line in factor]) for factor in lines])
    assert value(codes, grid, mean=mean) == pytest.approx(expected, abs=1e-12)


def test_xysquares_coordinates_and_noise_score_as_published():
    factors = factors_of_lines(128)
    assert value(factors * 1.0, factors, size="fast") == pytest.approx(1, abs=1e-12)
    noise = value(random_codes(factors), factors, size="fast")
    assert noise == pytest.approx(0.312, abs=0.008)  # three sd of 128 lines for each of 6 factors


def test_straight_lines_in_any_direction_score_one():
    grid = full_grid((4, 5))
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0][:2]
    assert value(grid @ rotation + 2, grid) == pytest.approx(1, abs=1e-12)


def test_a_diagonal_line_has_the_shares_of_its_axes():
    """Direction (2, 1, 0): variances 4 : 1 : 0, so the axis ratio is (4/5 - 1/3) / (2/3)."""
    axis, linear = ratios(np.arange(6.0)[None, :, None] * np.array([2, 1, 0]))
    assert axis[0] == pytest.approx(0.7)
    assert linear[0] == pytest.approx(1)


def test_a_cycle_scores_what_a_plane_does():
    """A circle among d latents has two equal eigenvalues: (1/2 - 1/d) / (1 - 1/d)."""
    angle = np.arange(8) * np.pi / 4
    circle = np.stack([np.cos(angle), np.sin(angle), 0 * angle, 0 * angle], axis=1)[None]
    np.testing.assert_allclose(ratios(circle), 1 / 3, atol=1e-12)
    np.testing.assert_allclose(ratios(circle[..., :2]), 0, atol=1e-12)


def test_a_line_that_does_not_move_scores_zero():
    axis, linear = ratios(np.stack([np.full((3, 2), 0.1), np.arange(6.0).reshape(3, 2)]))
    assert axis[0] == linear[0] == 0
    assert linear[1] == pytest.approx(1)
    grid = full_grid((3, 4))
    assert value(grid[:, :1] * 1.0, grid) == 0.5
    assert value(np.zeros((12, 2)), grid) == 0


def test_a_single_latent_that_moves_is_straight():
    np.testing.assert_allclose(ratios(np.array([[[0.0], [3.0], [1.0]]])), 1)


def test_factors_of_one_value_are_left_out():
    grid = full_grid((3, 4))
    codes = random_codes(grid)
    assert value(codes, np.insert(grid, 1, 7, axis=1)) == value(codes, grid)
    assert value(codes, np.zeros((12, 2), int)) == 0


def test_traversals_are_drawn_by_seed():
    grid = full_grid((6, 7, 5))
    codes = random_codes(grid)
    few = [value(codes, grid, seed=seed, traversals=3) for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]


def test_tiny_codes_score_as_large_ones():
    grid = full_grid((3, 4))
    assert value(1e-300 * random_codes(grid), grid) == pytest.approx(value(random_codes(grid), grid), abs=1e-9)
