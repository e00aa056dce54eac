"""Hoyer sparsity against the definition, row by row."""

import numpy as np
import pytest

from disentune.metrics import score


def value(codes):
    return score("hoyer", codes)["hoyer"]


def by_rows(codes):
    z = codes / codes.std(axis=0)
    root = np.sqrt(z.shape[1])
    return np.mean([(root - sum(abs(row)) / sum(row**2) ** 0.5) / (root - 1) for row in z])


def noisy(n=200, d=5):
    return np.random.default_rng(0).normal(size=(n, d)) * np.arange(1, d + 1) + 0.3


def test_the_score_is_that_of_the_definition():
    assert value(noisy()) == pytest.approx(by_rows(noisy()), abs=1e-12)
    assert 0.1 < value(noisy()) < 0.5


def test_one_live_code_for_each_image_scores_one():
    assert value(np.tile(np.diag([1.0, 5.0, 0.2, 3.0]), (10, 1))) == pytest.approx(1, abs=1e-12)


def test_codes_all_as_large_as_their_std_score_zero():
    signs = np.random.default_rng(0).permutation(np.tile(np.indices((2, 2, 2)).reshape(3, -1).T, (4, 1))) * 2 - 1
    assert value(signs * np.array([1, 10, 0.1])) == pytest.approx(0, abs=1e-12)


def test_a_scale_of_a_code_does_not_matter_but_a_shift_does():
    assert value(noisy() * np.array([1e-300, 1, -1, 1e30, 8])) == pytest.approx(value(noisy()), abs=1e-9)
    assert abs(value(noisy() + 5) - value(noisy())) > 0.03


def test_codes_of_one_value_count_for_nothing():
    assert value(np.insert(noisy(), 2, 0.1, axis=1)) == value(noisy())


def test_rows_of_zeros_are_left_out():
    rows = np.array([[1.0, 0, 2], [3, 1, 0], [0, 2, 2], [0, 0, 0]])
    z = rows / rows.std(axis=0)
    ratios = np.abs(z[:3]).sum(axis=1) / np.sqrt((z[:3] ** 2).sum(axis=1))
    assert value(rows) == pytest.approx((np.sqrt(3) - ratios.mean()) / (np.sqrt(3) - 1), abs=1e-12)


def test_one_code_or_none_scores_zero():
    assert value(noisy(d=1)) == 0
    assert value(np.column_stack([noisy(d=1), np.ones(200)])) == 0
    assert value(np.ones((4, 3))) == 0


def test_two_codes_have_a_score():
    assert value(noisy(d=2)) == pytest.approx(by_rows(noisy(d=2)), abs=1e-12)


def test_a_table_whose_score_is_known_by_hand():
    """Rows (1, 1), (1, -1), (2, 0), (0, 2) and their negatives: both codes have the std sqrt(3 / 2); |z|_1 / |z|_2 is
    sqrt 2 in half of the rows and 1 in the others, so the score is 1/2."""
    half = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 0.0], [0.0, 2.0]])
    assert value(np.concatenate([half, -half])) == pytest.approx(0.5, abs=1e-12)
