"""SlowVAE against torch's divergences, numerical integration and the released loss written out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import laplace, norm
from torch.distributions import Laplace, Normal, kl_divergence

from disentune.frameworks import beta_vae
from disentune.frameworks.slow_vae import Params, cross_entropy_with_laplace, loss, transition
from disentune.plugin import Posterior


def normals(model, batch):
    """The posteriors of the first images and of their partners, as torch's own."""
    encoded = [model.encode(x) for x in (batch.x, batch.pair)]
    return [Normal(q.mean, torch.exp(q.logvar / 2)) for q in encoded]


# ---- the cross-entropy


@pytest.mark.parametrize("rate", [0.5, 6.0])
@pytest.mark.parametrize("variance", [0.01, 1.0, 9.0])
@pytest.mark.parametrize("mean", [0.0, -0.3, 2.0])
def test_the_cross_entropy_is_the_integral(mean, variance, rate):
    deviation = math.sqrt(variance)

    def integrand(z):
        return -norm.pdf(z, mean, deviation) * laplace.logpdf(z, scale=1 / rate)

    ends = mean - 12 * deviation, mean + 12 * deviation
    expected, _ = quad(integrand, *ends, points=[0.0, mean], limit=200)
    ours = cross_entropy_with_laplace(*torch.tensor([mean, math.log(variance)], dtype=torch.float64), rate)
    assert ours.item() == pytest.approx(expected, rel=1e-7)  # the accuracy asked of quad is 1.5e-8


def test_gradients_of_the_cross_entropy_agree_with_differences():
    mean, logvar = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 20)) * 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: cross_entropy_with_laplace(m, v, 6.0), (mean, logvar))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_variances_give_the_distance_alone_and_finite_gradients(dtype):
    mean = torch.tensor([0.0, 1e-3, -2.0, 1e4], dtype=dtype, requires_grad=True)
    for size in (-70, -150, -200, -1500):
        logvar = torch.full((4,), size, dtype=dtype, requires_grad=True)
        value = cross_entropy_with_laplace(mean, logvar, 6.0)
        torch.testing.assert_close(value, 6 * mean.abs() - math.log(3))
        slopes = torch.autograd.grad(value.sum(), (mean, logvar))
        torch.testing.assert_close(slopes[0], 6 * mean.sign())
        torch.testing.assert_close(slopes[1], torch.zeros_like(logvar))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_variances_give_the_mean_size_of_a_centred_normal(dtype):
    """exp(80) is the largest variance whose KL to N(0, 1) is finite in single precision, but for a little."""
    mean = torch.tensor([0.0, 1.0, -1e4], dtype=dtype, requires_grad=True)
    logvar = torch.full((3,), 80.0, dtype=dtype, requires_grad=True)
    value = cross_entropy_with_laplace(mean, logvar, 6.0)
    torch.testing.assert_close(value, torch.full_like(mean, 6 * math.exp(40) * math.sqrt(2 / math.pi)))
    slopes = torch.autograd.grad(value.sum(), (mean, logvar))
    torch.testing.assert_close(slopes[1], value.detach() / 2)
    assert slopes[0].isfinite().all()


# ---- the loss


@torch.no_grad()
def test_the_default_is_the_papers_loss_of_a_pair_with_either_image_first_and_halved(model, batch, step):
    """Two reconstructions, beta KL of the earlier code to N(0, 1), gamma KL of the later one to the Laplace law."""
    q, p = normals(model, batch)
    n, noise = len(batch.x), np.random.default_rng(0).standard_normal((12, 4))
    images = [(q, batch.x, noise[:n]), (p, batch.pair, noise[n:])]
    recon = [batch.recon(model.decode(one.mean + one.stddev * torch.from_numpy(e)), x) for one, x, e in images]
    orders = []
    for earlier, later in ((q, p), (p, q)):
        start = kl_divergence(earlier, Normal(0.0, 1.0)).sum(dim=1).mean()
        move = kl_divergence(later, Laplace(earlier.mean, torch.tensor(1 / 3))).sum(dim=1).mean()
        orders.append(2 * start + 5 * move)
    losses = loss(model, batch, Params(beta=2, gamma=5, rate=3), step())
    torch.testing.assert_close(2 * losses.recon, sum(recon))
    torch.testing.assert_close(2 * losses.latent, sum(orders) / 2)


def released(mean, variance, beta, gamma, rate):
    """Latent part of the released loss of interleaved pairs, (2n, d): x0, x1, x0, x1, ..."""
    entropy = 0.5 * np.log(2 * np.pi * np.e * variance)
    normal = 0.5 * (mean**2 + variance) + 0.5 * np.log(2 * np.pi)
    sparse = []
    for pair in range(0, len(mean), 2):
        total = 0.0
        for one, other in ((pair, pair + 1), (pair + 1, pair)):
            m, v = mean[one] - mean[other], variance[one]
            total += -np.log(rate / 2) + rate * np.sqrt(2 * v / np.pi) * np.exp(-(m**2) / (2 * v))
            total -= rate * m * (1 - 2 * norm.cdf(m / np.sqrt(v)))
        sparse.append(total)
    entropy, normal, sparse = (np.sum(terms, axis=1).mean() for terms in (entropy, normal, sparse))
    return beta * (normal - entropy) + gamma * (sparse - entropy)


@torch.no_grad()
def test_as_published_is_half_the_released_loss(model, batch, step):
    q, p = normals(model, batch)
    mean = torch.stack([q.mean, p.mean], dim=1).reshape(12, 4).numpy()
    variance = torch.stack([q.variance, p.variance], dim=1).reshape(12, 4).numpy()
    losses = loss(model, batch, Params(beta=2, gamma=5, rate=3, directions="as_published"), step())
    assert 2 * losses.latent.item() == pytest.approx(released(mean, variance, 2, 5, 3))


def test_without_gamma_it_is_the_mean_of_two_beta_vaes_of_half_the_beta(model, batch, step):
    alone = [replace(batch, x=x) for x in (batch.x, batch.pair)]
    separate = [beta_vae.loss(model, one, beta_vae.Params(beta=1.5), step()).latent for one in alone]
    ours = loss(model, batch, Params(beta=3, gamma=0), step())
    torch.testing.assert_close(ours.latent, sum(separate) / 2)


@pytest.mark.parametrize("directions", ["mean", "as_published"])
def test_slopes_in_beta_and_gamma_are_half_the_parts(directions, model, batch, step):
    def latent(beta, gamma):
        return loss(model, batch, Params(beta=beta, gamma=gamma, directions=directions), step())

    base = latent(1, 10)
    torch.testing.assert_close((latent(4, 10).latent - base.latent) / 3, base.parts["kl"] / 2)
    torch.testing.assert_close((latent(1, 14).latent - base.latent) / 4, base.parts["transition"] / 2)


def test_each_image_is_compared_with_its_partner(model, batch):
    q, p = normals(model, batch)
    expected = [kl_divergence(one, Laplace(other.mean, torch.tensor(1 / 3))) for one, other in ((q, p), (p, q))]
    ours = transition(model.encode(batch.x), model.encode(batch.pair), Params(rate=3))
    torch.testing.assert_close(ours, torch.cat(expected))


def test_gradients_of_one_direction_reach_both_means():
    q, p = (Posterior(*torch.from_numpy(np.random.default_rng(s).normal(size=(2, 3, 2)))) for s in (0, 1))
    for one in (q, p):
        one.mean.requires_grad_()
    transition(q, p, Params())[:3].sum().backward()  # the first images' posteriors against their partners' means
    assert q.mean.grad.all()
    torch.testing.assert_close(p.mean.grad, -q.mean.grad)


def test_the_transition_of_a_posterior_that_stays_depends_on_its_variance_alone():
    """E|z| = s sqrt(2 / pi) around the own mean, so KL = r s sqrt(2 / pi) - log(r / 2) - log(s sqrt(2 pi e))."""
    q = Posterior(torch.tensor([[3.0]]).double(), torch.tensor([[2 * math.log(0.1)]]).double())
    expected = 6 * 0.1 * math.sqrt(2 / math.pi) - math.log(3) - math.log(0.1 * math.sqrt(2 * math.pi * math.e))
    torch.testing.assert_close(transition(q, q, Params()), torch.full((2, 1), expected).double())
