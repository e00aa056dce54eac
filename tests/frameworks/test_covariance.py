"""Covariances against numpy and against the exact moments of a mixture."""

import numpy as np
import pytest
import torch

from disentune.frameworks.covariance import covariance_of_codes, covariance_of_means, diagonal, off_diagonal
from disentune.plugin import Posterior


@pytest.fixture
def q():
    return Posterior(*torch.from_numpy(np.random.default_rng(0).normal(size=(2, 7, 4)) + 1))


@pytest.mark.parametrize(
    ("matrix", "off", "on"),
    [(torch.ones(10, 10), 90, 0), (torch.zeros(10, 10), 0, 10), (torch.eye(10), 0, 0), (2 * torch.eye(10), 0, 10)],
    ids=["ones", "zeros", "identity", "twice the identity"],
)
def test_known_matrices_have_known_penalties(matrix, off, on):
    """disentanglement_lib's own test has the sums 90, 10, 0 and 10."""
    assert (off_diagonal(matrix), diagonal(matrix)) == (off, on)


def test_a_perfect_diagonal_hides_nothing_off_it():
    matrix = torch.tensor([[3.0, 0.5], [-2.0, 0.0]])
    assert off_diagonal(matrix) == 0.25 + 4
    assert diagonal(matrix) == 4 + 1


def test_the_covariance_of_means_divides_by_the_batch(q):
    torch.testing.assert_close(covariance_of_means(q), torch.from_numpy(np.cov(q.mean.T.numpy(), bias=True)))


def test_the_covariance_of_codes_is_that_of_the_mixture(q):
    """E[z z'] - E[z] E[z]', one posterior and one pair of latents at a time."""
    n, d = q.mean.shape
    expected = torch.zeros(d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            second = sum(q.mean[b, i] * q.mean[b, j] + (i == j) * q.logvar[b, i].exp() for b in range(n)) / n
            expected[i, j] = second - q.mean[:, i].mean() * q.mean[:, j].mean()
    torch.testing.assert_close(covariance_of_codes(q), expected)
