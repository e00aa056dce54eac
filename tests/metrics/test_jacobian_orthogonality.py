"""The distance of a decoder's local axes from its latents, on Jacobians whose axes are known."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import ortho_group

from disentune.errors import DataError
from disentune.metrics import scores
from disentune.metrics.jacobian_orthogonality import distance_to_signed_permutation
from disentune.metrics.table import table_of

SINGULAR_VALUES = np.array([5.0, 3.0, 2.0, 0.7])


def scored(jacobians, variances=None, size="full", **params):
    """Of Jacobians (n, p, d) that are given row by row."""
    rows, _, latents = jacobians.shape
    logvars = np.tile(np.log(np.full(latents, 0.1) if variances is None else variances), (rows, 1))
    table = table_of(np.zeros((rows, latents)), logvars=logvars)
    table = replace(table, gram=lambda chosen: jacobians[chosen].transpose(0, 2, 1) @ jacobians[chosen])
    return scores("jacobian_orthogonality", table, 0, size, params).numbers["jacobian_orthogonality"]


def jacobians(rotations, pixels=9):
    """U S V^T with random orthonormal U."""
    rng = np.random.default_rng(0)
    left = np.stack([np.linalg.qr(rng.normal(size=(pixels, len(SINGULAR_VALUES))))[0] for _ in rotations])
    return (left * SINGULAR_VALUES) @ np.swapaxes(rotations, 1, 2)


def nearest_by_trying_all(rotation):
    """Every signed permutation matrix of this size."""
    latents = len(rotation)
    return min(
        np.linalg.norm(rotation - np.eye(latents)[list(order)] * np.array(signs)[:, None])
        for order in permutations(range(latents))
        for signs in product([-1, 1], repeat=latents)
    )


def test_the_nearest_signed_permutation_is_that_of_a_search_over_all():
    for rotation in ortho_group.rvs(3, size=20, random_state=0):
        assert distance_to_signed_permutation(rotation) == pytest.approx(nearest_by_trying_all(rotation))


def test_orthogonal_columns_score_zero_in_any_order():
    order = np.eye(4)[[2, 0, 3, 1]]
    assert scored(jacobians(np.stack([np.eye(4), order, -order]))) == pytest.approx(0, abs=1e-6)


def test_rotated_axes_score_their_distance():
    """Two latents turned by an angle t: V differs from the identity by 2 sqrt(1 - cos t)."""
    t = 0.4
    turned = np.eye(4)
    turned[:2, :2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    assert scored(jacobians(turned[None])) == pytest.approx(2 * np.sqrt(1 - np.cos(t)))


def test_the_score_is_the_mean_over_rows():
    rotations = ortho_group.rvs(4, size=6, random_state=1)
    expected = np.mean([nearest_by_trying_all(rotation) for rotation in rotations])
    assert scored(jacobians(rotations)) == pytest.approx(expected)


def test_inactive_latents_do_not_count():
    """The first two columns are orthogonal; the third, which is inactive, is not orthogonal to them."""
    jacobian = np.array([[[3.0, 0, 1], [0, 1.0, 1], [0, 0, 1]]])
    assert scored(jacobian, variances=[0.1, 0.1, 0.9]) == pytest.approx(0, abs=1e-7)
    assert scored(jacobian, variances=[0.1, 0.1, 0.7]) > 0.3
    assert scored(jacobian, variances=[0.1, 0.1, 0.7], threshold=0.5) == pytest.approx(0, abs=1e-7)


def test_a_model_without_active_latents_has_no_score():
    with pytest.raises(DataError, match="no latent is active"):
        scored(np.ones((2, 3, 2)), variances=[0.9, 1.0])


def test_a_jacobian_that_is_not_finite_is_an_error():
    with pytest.raises(DataError, match="Jacobian is not finite"):
        scored(np.full((1, 3, 2), np.nan))


def test_the_fast_size_uses_fewer_rows():
    """64 of 300 rows cannot have the mean of all."""
    rotations = ortho_group.rvs(4, size=300, random_state=2)
    assert scored(jacobians(rotations), size="fast") != scored(jacobians(rotations), samples=300)
