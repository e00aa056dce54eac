"""Diagonal Gaussians against torch.distributions, in float64."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.maths.gaussian import kl, kl_to_prior, log_density, nats_per_image, sample, symmetric_kl
from disentune.plugin import Posterior


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return [Posterior(*torch.from_numpy(rng.normal(size=(2, 5, 3)) * 2)) for _ in range(2)]


def normal(q):
    return Normal(q.mean, torch.exp(q.logvar / 2))


def test_kl_agrees_with_torch(pair):
    q, p = pair
    torch.testing.assert_close(kl(q, p), kl_divergence(normal(q), normal(p)))


def test_kl_to_prior_agrees_with_torch(pair):
    torch.testing.assert_close(kl_to_prior(pair[0]), kl_divergence(normal(pair[0]), Normal(0.0, 1.0)))


def test_symmetric_kl_is_the_mean_of_both_directions(pair):
    q, p = pair
    both = kl_divergence(normal(q), normal(p)) + kl_divergence(normal(p), normal(q))
    torch.testing.assert_close(symmetric_kl(q, p), both / 2)


def test_symmetric_kl_of_equal_posteriors_is_exactly_zero(pair):
    assert torch.equal(symmetric_kl(pair[0], pair[0]), torch.zeros(5, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("mean", "logvar", "nats"),
    [(0, 0, 0.0), (1, 0, 5.0), (1, 1, 5 * math.e - 5)],  # 10 * (1 + e - 1 - 1) / 2
)
def test_ten_latents_have_the_known_kl(mean, logvar, nats):
    q = Posterior(torch.full((4, 10), mean, dtype=torch.float64), torch.full((4, 10), logvar, dtype=torch.float64))
    torch.testing.assert_close(nats_per_image(kl_to_prior(q)), torch.tensor(nats, dtype=torch.float64))


def test_nats_are_summed_over_latents_and_averaged_over_images():
    assert nats_per_image(torch.tensor([[1.0, 2.0], [3.0, 4.0]])) == 5.0


def test_samples_have_the_posterior_mean_and_spread():
    q = Posterior(torch.full((50_000, 1), 3.0), torch.full((50_000, 1), 2 * math.log(0.5)))
    z = sample(q, np.random.default_rng(0))
    assert abs(z.mean() - 3) < 4 * 0.5 / math.sqrt(50_000)
    assert abs(z.std() - 0.5) < 4 * 0.5 / math.sqrt(2 * 50_000)


def test_samples_are_the_mean_plus_the_stream_of_normals_times_the_deviation(pair):
    q = pair[0]
    noise = torch.from_numpy(np.random.default_rng(5).standard_normal((5, 3)))
    torch.testing.assert_close(sample(q, np.random.default_rng(5)), q.mean + torch.exp(q.logvar / 2) * noise)


def test_every_precision_sees_the_same_noise(pair):
    q = pair[0]
    single = sample(Posterior(q.mean.float(), q.logvar.float()), np.random.default_rng(1))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), sample(q, np.random.default_rng(1)), rtol=1e-6, atol=1e-6)


def test_gradients_of_samples_reach_mean_and_logvar():
    mean, logvar = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    z = sample(Posterior(mean, logvar), np.random.default_rng(0))
    z.sum().backward()
    assert torch.equal(mean.grad, torch.ones(2, 2))
    torch.testing.assert_close(logvar.grad, z.detach() / 2)  # d(exp(l/2) e)/dl at l = 0


def test_log_density_of_every_code_under_every_posterior_agree_with_torch(pair):
    q, z = pair[0], pair[1].mean[:4]
    expected = [[normal(Posterior(q.mean[j], q.logvar[j])).log_prob(z[i]) for j in range(5)] for i in range(4)]
    torch.testing.assert_close(log_density(q, z[:, None]), torch.stack([torch.stack(row) for row in expected]))


def test_the_log_density_of_one_is_the_known_number():
    q = Posterior(torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1))
    assert log_density(q, torch.ones(1, 1)).flatten().tolist() == pytest.approx([-1.4189385, -0.9189385])
