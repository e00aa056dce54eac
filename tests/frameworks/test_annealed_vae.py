"""AnnealedVAE: its capacity, and where the absolute value is taken."""

from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.frameworks import beta_vae
from disentune.frameworks.annealed_vae import Params, capacity, loss


def kl_of_each(model, batch):
    q = model.encode(batch.x)
    return kl_divergence(Normal(q.mean, torch.exp(q.logvar / 2)), Normal(0.0, 1.0)).sum(dim=1)


def test_capacity_grows_in_a_straight_line_and_then_stays():
    """The values of disentanglement_lib's own test."""
    assert [capacity(updates, 100, 100) for updates in (0, 10, 100, 101)] == [0, 10, 100, 100]
    assert capacity(50_000, 25, 100_000) == 12.5


@pytest.mark.parametrize(("number", "expected"), [(1, 0.0), (2, 0.5), (9, 4.0), (10, 4.0)])
def test_the_first_update_sees_capacity_zero(number, expected, model, batch, step):
    losses = loss(model, batch, Params(c_max=4, gamma=7, ramp=8), replace(step(), number=number))
    assert losses.watch["capacity"] == expected
    torch.testing.assert_close(losses.latent, 7 * (kl_of_each(model, batch).mean() - expected).abs())


def test_without_capacity_it_is_beta_vae_with_beta_gamma(model, batch, step):
    ours = loss(model, batch, Params(c_max=0, gamma=7), step())
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=7), step())
    assert (ours.recon, ours.latent) == (theirs.recon, theirs.latent)


def test_images_on_both_sides_of_the_capacity_cancel(model, batch, step):
    """A mean of absolute values would be above 0 here: pythae's loss is."""
    kl = kl_of_each(model, batch)
    assert kl.std() > 0.1 * kl.mean()
    losses = loss(model, batch, Params(c_max=kl.mean().item(), ramp=1), step())
    torch.testing.assert_close(losses.latent, torch.zeros_like(losses.latent), rtol=0, atol=1e-9)  # 1000 roundings


@pytest.mark.parametrize(("c_max", "sign"), [(0.0, 1), (1e4, -1)])
def test_the_kl_is_driven_towards_the_capacity(c_max, sign, model, batch, step):
    losses = loss(model, batch, Params(c_max=c_max, gamma=7, ramp=1), step())
    last = [*model.encoder.parameters()][-1]
    slopes = [torch.autograd.grad(one, last, retain_graph=True)[0] for one in (losses.latent, losses.parts["kl"])]
    torch.testing.assert_close(slopes[0], sign * 7 * slopes[1])


def test_the_defaults_are_those_of_the_study():
    params = Params(c_max=25)
    assert (params.gamma, params.ramp) == (1000, 100_000)
    with pytest.raises(ValueError, match="c_max"):
        Params()
