"""Ada-GVAE against a slow reading of the paper, one pair and one latent at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.frameworks import beta_vae
from disentune.frameworks.ada_gvae import Params, aggregate, average, loss, shared_latents
from disentune.plugin import Posterior


def posterior(seed, n=7, d=5):
    return Posterior(*torch.from_numpy(np.random.default_rng(seed).normal(size=(2, n, d))))


def slowly_aggregated(q, p, ratio):
    """Both posteriors of every pair as lists of (mean, variance)."""
    first, second = [], []
    for m0, l0, m1, l1 in zip(q.mean, q.logvar, p.mean, p.logvar, strict=True):
        a, b = Normal(m0, l0.exp().sqrt()), Normal(m1, l1.exp().sqrt())
        delta = (kl_divergence(a, b) + kl_divergence(b, a)) / 2
        threshold = delta.min() + ratio * (delta.max() - delta.min())
        for d in range(len(delta)):
            own = [(m0[d], l0[d].exp()), (m1[d], l1[d].exp())]
            if delta[d] < threshold:
                own = [((m0[d] + m1[d]) / 2, (l0[d].exp() + l1[d].exp()) / 2)] * 2
            first.append(own[0])
            second.append(own[1])
    means, variances = torch.tensor(first + second, dtype=torch.float64).T
    return means.reshape(-1, q.mean.shape[1]), variances.reshape(-1, q.mean.shape[1])


@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 1.0])
def test_posteriors_are_aggregated_as_in_the_paper(ratio):
    q, p = posterior(0), posterior(1)
    means, variances = slowly_aggregated(q, p, ratio)
    both = aggregate(q, p, ratio)
    torch.testing.assert_close(both.mean, means)
    torch.testing.assert_close(both.logvar.exp(), variances)


@torch.no_grad()
def test_the_loss_is_the_mean_over_both_observations(model, batch, step):
    means, variances = slowly_aggregated(model.encode(batch.x), model.encode(batch.pair), 0.5)
    z = means + variances.sqrt() * torch.from_numpy(np.random.default_rng(0).standard_normal(means.shape))
    n = len(batch.x)
    halves = [batch.recon(model.decode(z[:n]), batch.x), batch.recon(model.decode(z[n:]), batch.pair)]
    kl = kl_divergence(Normal(means, variances.sqrt()), Normal(0.0, 1.0)).sum(dim=1)
    losses = loss(model, batch, Params(beta=2), step())
    torch.testing.assert_close(losses.recon, sum(halves) / 2)
    torch.testing.assert_close(losses.latent, 2 * (kl[:n].mean() + kl[n:].mean()) / 2)


def test_a_latent_is_shared_below_the_midpoint_only():
    """Unit variances make the symmetric KL half the squared difference of means: 0, 0.125, 0.5, 2."""
    means = torch.tensor([[0.0, 0.5, 1.0, 2.0]], dtype=torch.float64)
    q, p = Posterior(means, torch.zeros_like(means)), Posterior(torch.zeros_like(means), torch.zeros_like(means))
    assert shared_latents(q, p, 0.5).tolist() == [[True, True, True, False]]
    assert shared_latents(q, p, 0.25).tolist() == [[True, True, False, False]]  # strictly below 0.5
    assert shared_latents(q, p, 0.0).tolist() == [[False] * 4]
    assert shared_latents(q, p, 1.0).tolist() == [[True, True, True, False]]


def test_thresholds_belong_to_one_pair():
    """The second pair's larger divergences do not move the first pair's threshold."""
    means = torch.tensor([[0.0, 1.0], [1.0, 100.0]], dtype=torch.float64)
    q, p = Posterior(means, torch.zeros_like(means)), Posterior(torch.zeros_like(means), torch.zeros_like(means))
    assert shared_latents(q, p, 0.5).tolist() == [[True, False], [True, False]]


def test_both_means_and_both_variances_enter_the_average():
    q = Posterior(torch.tensor([[1.0]]), torch.tensor([[2.0]]).log())
    p = Posterior(torch.tensor([[3.0]]), torch.tensor([[6.0]]).log())
    mid = average(q, p)
    assert mid.mean.item() == 2
    assert mid.logvar.exp().item() == pytest.approx(4)


def test_gradients_reach_both_observations_through_a_shared_mean():
    q, p = posterior(0), posterior(1)
    for one in (q, p):
        one.mean.requires_grad_()
    both = aggregate(q, p, 0.5)
    both.mean[: len(q.mean)].sum().backward()  # the first observation's means alone
    shared = shared_latents(q, p, 0.5)
    torch.testing.assert_close(q.mean.grad, torch.where(shared, 0.5, 1.0).double())
    torch.testing.assert_close(p.mean.grad, torch.where(shared, 0.5, 0.0).double())


def test_equal_images_share_nothing_and_have_the_kl_of_beta_vae(model, batch, step):
    same = replace(batch, pair=batch.x)
    ours = loss(model, same, Params(beta=2), step())
    torch.testing.assert_close(ours.latent, beta_vae.loss(model, batch, beta_vae.Params(beta=2), step()).latent)


def test_without_sharing_the_kl_is_the_mean_of_two_beta_vaes(model, batch, step):
    alone = [replace(batch, x=x) for x in (batch.x, batch.pair)]
    separate = [beta_vae.loss(model, one, beta_vae.Params(beta=1), step()) for one in alone]
    ours = loss(model, batch, Params(beta=1, ratio=0.0), step())
    torch.testing.assert_close(ours.latent, sum(one.latent for one in separate) / 2)


def test_the_order_of_a_pair_does_not_matter_to_the_kl(model, batch, step):
    swapped = replace(batch, x=batch.pair, pair=batch.x)
    first, second = (loss(model, one, Params(beta=1), step()).latent for one in (batch, swapped))
    torch.testing.assert_close(first, second)


def test_an_unknown_pair_law_is_refused():
    with pytest.raises(ValueError, match="original"):
        Params(beta=1, pairs="other")
