"""DIP-VAE-II: its penalty entry by entry, and the VAE that it is without one."""

import numpy as np
import pytest
import torch

from disentune.frameworks import beta_vae
from disentune.frameworks.dip_vae_ii import FRAMEWORK, Params, loss
from disentune.plugin import Context, Posterior


def slow_penalties(q):
    covariance = torch.from_numpy(np.cov(q.mean.detach().T.numpy(), bias=True)) + torch.diag(q.logvar.exp().mean(dim=0))
    off, on = 0.0, 0.0
    for i in range(4):
        for j in range(4):
            off += covariance[i, j].item() ** 2 if i != j else 0
        on += (covariance[i, i].item() - 1) ** 2
    return off, on


def test_terms_are_those_of_the_paper(model, batch, step):
    off, on = slow_penalties(model.encode(batch.x))
    plain = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    losses = loss(model, batch, Params(lambda_od=2, lambda_d=3), step())
    assert (losses.recon, losses.parts["kl"]) == (plain.recon, plain.latent)
    assert losses.parts["dip_od"].item() == pytest.approx(off)
    assert losses.parts["dip_d"].item() == pytest.approx(on)
    assert losses.latent.item() == pytest.approx(plain.latent.item() + 2 * off + 3 * on)


def test_without_penalty_it_is_the_vae(model, batch, step):
    ours, theirs = (
        loss(model, batch, Params(lambda_od=0), step()),
        beta_vae.loss(model, batch, beta_vae.Params(beta=1), step()),
    )
    assert (ours.recon, ours.latent) == (theirs.recon, theirs.latent)


def test_the_diagonal_weighs_as_much_as_the_rest_by_default(model, batch, step):
    """disentanglement_lib's ratio; 0 is a weight, not its absence."""
    silent, said = (loss(model, batch, Params(lambda_od=2, **more), step()).latent for more in ({}, {"lambda_d": 2}))
    assert silent == said
    assert loss(model, batch, Params(lambda_od=2, lambda_d=0), step()).latent < said


def test_a_batch_of_one_is_refused():
    with pytest.raises(ValueError, match="batch_size must be >= 2"):
        FRAMEWORK.check(Context((1, 4, 4), 4, 1, (10,)), Params(lambda_od=1))
    FRAMEWORK.check(Context((1, 4, 4), 4, 2, (10,)), Params(lambda_od=1))


def test_lambda_od_must_be_given():
    with pytest.raises(ValueError, match="lambda_od"):
        Params()


def test_posteriors_equal_to_the_prior_cost_nothing(batch, step):
    """Means 0 and variances 1: the aggregate posterior is the prior itself. DIP-VAE-I would ask for spread means."""

    class Collapsed:
        decode = staticmethod(lambda z: torch.zeros_like(batch.x))

        def encode(self, x):
            return Posterior(torch.zeros(len(x), 4).double(), torch.zeros(len(x), 4).double())

    assert loss(Collapsed(), batch, Params(lambda_od=5), step()).latent == 0
