"""Divergences of the aggregate posterior against double loops and known values, in float64."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.frameworks.divergences import inclusive_kl, mmd_imq
from disentune.frameworks.priors import Isotropic
from disentune.maths.gaussian import sample
from disentune.plugin import Posterior


def codes(n, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def slow_inclusive_kl(points, log_prior, q):
    total = 0.0
    for z, log_p in zip(points, log_prior, strict=True):
        densities = [
            Normal(mean, torch.exp(logvar / 2)).log_prob(z).sum().exp().item()
            for mean, logvar in zip(q.mean, q.logvar, strict=True)
        ]
        total += log_p.item() - math.log(sum(densities) / len(densities))
    return total / len(points)


def slow_mmd(x, y):
    """facts/methods_and_peers.md 1.4, term by term."""
    n, total = len(x), 0.0
    for s in (0.1, 0.2, 0.5, 1, 2, 5):
        for d in range(x.shape[1]):
            k = lambda u, v, c=2 * s, d=d: c / (c + (u[d] - v[d]) ** 2)  # noqa: E731
            pairs = [(i, j) for i in range(n) for j in range(n)]
            within = sum(k(x[i], x[j]) + k(y[i], y[j]) for i, j in pairs if i != j)
            total += within / (n * (n - 1)) - 2 * sum(k(x[i], y[j]) for i, j in pairs) / n**2
    return total


@pytest.mark.parametrize("points", [5, 8])
def test_inclusive_kl_is_the_mean_over_points_of_the_logarithm_of_a_mean_over_posteriors(points):
    z, q = codes(points, 3), Posterior(codes(5, 3, 1), codes(5, 3, 2))
    log_prior = codes(points, 1, 4)[:, 0]
    assert inclusive_kl(z, log_prior, q).item() == pytest.approx(slow_inclusive_kl(z, log_prior, q))


@pytest.mark.parametrize("d", [1, 3])
def test_mmd_is_the_sum_over_scales_and_latents(d):
    x, y = codes(6, d), 2 * codes(6, d, 1) + 0.5
    assert mmd_imq(x, y).item() == pytest.approx(slow_mmd(x.numpy(), y.numpy()))


def test_mmd_of_a_sample_of_two_with_itself_by_hand():
    """Codes 0 and 1: within 2 k, across (2 + 2 k) / 2, so k - 1 at each scale s, where k = 2 s / (2 s + 1)."""
    two = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    expected = -sum(1 / (2 * s + 1) for s in (0.1, 0.2, 0.5, 1, 2, 5))
    assert mmd_imq(two, two).item() == pytest.approx(expected, abs=1e-12)


def test_posteriors_that_equal_the_prior_are_at_no_inclusive_kl_from_it():
    z, prior = codes(50, 4), Isotropic(scale=2)
    q = Posterior(torch.zeros(7, 4, dtype=torch.float64), torch.full((7, 4), math.log(2), dtype=torch.float64))
    assert inclusive_kl(z, prior.log_density(z), q).item() == pytest.approx(0, abs=1e-12)


@torch.no_grad()
def test_the_inclusive_kl_to_one_posterior_has_the_closed_form_as_its_mean():
    draws, prior = 200_000, Isotropic()
    z = prior.sample(torch.zeros(draws, 2, dtype=torch.float64), np.random.default_rng(0))
    mean, deviation = torch.tensor([[0.5, -0.2]]).double(), torch.tensor([[0.8, 1.5]]).double()
    each = prior.log_density(z) - Normal(mean, deviation).log_prob(z).sum(dim=1)
    expected = kl_divergence(Normal(torch.zeros_like(mean), 1.0), Normal(mean, deviation)).sum().item()
    ours = inclusive_kl(z, prior.log_density(z), Posterior(mean, 2 * deviation.log())).item()
    assert ours == pytest.approx(expected, abs=4 * each.std().item() / math.sqrt(draws))


def test_the_inclusive_kl_is_finite_far_from_every_posterior():
    z, q = torch.full((2, 3), 500.0), Posterior(torch.zeros(4, 3), torch.full((4, 3), -6.0))
    assert inclusive_kl(z, torch.zeros(2), q).isfinite()


@torch.no_grad()
def test_mmd_of_two_samples_of_one_law_is_zero_on_average():
    """Unbiased: the mean of many estimates lies within 4 standard errors of 0, while other laws lie far above."""
    rng = np.random.default_rng(0)
    draws = torch.from_numpy(rng.normal(size=(500, 2, 10, 3)))
    same = torch.stack([mmd_imq(x, y) for x, y in draws])
    moved = torch.stack([mmd_imq(x, y + 1) for x, y in draws])
    assert abs(same.mean()) < 4 * same.std() / math.sqrt(500)
    assert moved.mean() > 20 * moved.std() / math.sqrt(500)


@torch.no_grad()
def test_mmd_sees_each_latent_by_itself_only():
    """Its marginals stay when the codes of one latent are shuffled among images, and so does the value."""
    x, y = codes(20, 2), codes(20, 2, 1)
    shuffled = torch.stack([y[:, 0], y[torch.randperm(20, generator=torch.Generator().manual_seed(0)), 1]], dim=1)
    torch.testing.assert_close(mmd_imq(x, shuffled), mmd_imq(x, y))
    q = Posterior(y, torch.zeros_like(y))
    mixed = Posterior(shuffled, torch.zeros_like(y))
    log_prior = Isotropic().log_density(x)
    assert not torch.allclose(inclusive_kl(x, log_prior, q), inclusive_kl(x, log_prior, mixed))


def test_both_divergences_pull_the_posteriors_towards_the_prior():
    """A step against the gradient brings them down, for the means and for the spreads."""
    for weight in (inclusive, discrepancy):
        mean, logvar = (codes(30, 2, seed).requires_grad_() for seed in (1, 2))
        before = weight(3 + mean, logvar - 3)
        before.backward()
        assert mean.grad.sum() > 0
        assert logvar.grad.any()
        moved = weight(3 + mean - 0.1 * mean.grad, logvar - 3 - 0.1 * logvar.grad)
        assert moved < before


def inclusive(mean, logvar):
    points = codes(30, 2)
    return inclusive_kl(points, Isotropic().log_density(points), Posterior(mean, logvar))


def discrepancy(mean, logvar):
    return mmd_imq(codes(30, 2), sample(Posterior(mean, logvar), np.random.default_rng(3)))
