"""A linear beta-VAE finds the principal components (Zietlow et al., ICML 2021, Theorem 1), an autoencoder does not.

With the loss |x - W z|^2 + beta KL, codes z = E x + noise of variances s, and data of covariance C with eigenvalues
lambda_j, the expected loss is smallest (probabilistic PCA with decoder variance beta / 2) where

    lambda_j > beta / 2:  |w_j|^2 = lambda_j - beta / 2,  s_j = beta / (2 lambda_j),  w_j along the j-th eigenvector;
    the others:           w_j = 0,  s_j = 1.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from disentune.frameworks.beta_vae import Params, loss
from disentune.models.linear import MODEL
from disentune.plugin import Batch, Step

EIGENVALUES = torch.tensor([9, 5, 3, 1.5, 0.6, 0.2], dtype=torch.float64)
LATENTS = len(EIGENVALUES)
LOSSES = {1.0: 6.832825, 2.0: 10.110740}


def rotation(seed=0):
    return torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).normal(size=(LATENTS, LATENTS))))[0]


AXES = rotation()
"""Eigenvectors as columns."""
COVARIANCE = AXES @ torch.diag(EIGENVALUES) @ AXES.T


def data(n=600):
    """Images of one row, with mean 0 and exactly that covariance: (n, 1, 1, 6)."""
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(n, LATENTS)))
    white = torch.linalg.qr(x - x.mean(dim=0))[0] * math.sqrt(n)
    return (white @ torch.diag(EIGENVALUES.sqrt()) @ AXES.T).reshape(n, 1, 1, LATENTS)


@dataclass
class Weights:
    """decoder (6, d), encoder (d, 6), logvar (d,)."""

    decoder: Tensor
    encoder: Tensor
    logvar: Tensor

    @classmethod
    def drawn(cls, seed, latents=LATENTS):
        values = np.random.default_rng(seed).normal(size=(2 * LATENTS + 1, latents)) / 3
        decoder, encoder, logvar = torch.from_numpy(values).split([LATENTS, LATENTS, 1])
        return cls(decoder.clone(), encoder.T.contiguous(), logvar[0].clone())

    def minimise(self, value):
        tensors = [tensor.requires_grad_() for tensor in (self.decoder, self.encoder, self.logvar)]
        optimiser = torch.optim.LBFGS(
            tensors, max_iter=2000, tolerance_grad=1e-7, tolerance_change=1e-13, line_search_fn="strong_wolfe"
        )

        def closure():
            optimiser.zero_grad()
            now = value(self)
            now.backward()
            return now

        optimiser.step(closure)
        for tensor in tensors:
            tensor.requires_grad_(False)
        return self


def noiseless_loss(weights):
    left = torch.eye(LATENTS, dtype=torch.float64) - weights.decoder @ weights.encoder
    return torch.trace(left @ COVARIANCE @ left.T)


def expected_recon(weights):
    return noiseless_loss(weights) + weights.logvar.exp() @ weights.decoder.square().sum(dim=0)


def expected_kl(weights):
    spreads = torch.diag(weights.encoder @ COVARIANCE @ weights.encoder.T)
    return (spreads + weights.logvar.exp() - weights.logvar - 1).sum() / 2


def expected_loss(beta):
    return lambda weights: expected_recon(weights) + beta * expected_kl(weights)


@pytest.fixture(scope="module", params=LOSSES)
def beta(request):
    return request.param


@pytest.fixture(scope="module")
def optimum(beta):
    return Weights.drawn(2).minimise(expected_loss(beta))


def by_norm(decoder):
    return decoder[:, decoder.norm(dim=0).argsort(descending=True)]


def cosines(decoder):
    """|cos| between each column, longest first, and the eigenvector of the same rank."""
    columns = by_norm(decoder)
    return ((columns * AXES[:, : columns.shape[1]]).sum(dim=0) / columns.norm(dim=0).clamp(min=1e-12)).abs()


def active(beta):
    return int((beta / 2 < EIGENVALUES).sum())


# ---- the expected loss in closed form


def test_the_smallest_expected_loss_is_the_known_one(beta, optimum):
    """Each active latent costs beta / 2 (1 + log(2 lambda / beta)), each other component its eigenvalue."""
    assert expected_loss(beta)(optimum).item() == pytest.approx(LOSSES[beta], abs=1e-5)
    found = EIGENVALUES[: active(beta)]
    formula = (beta / 2 * (1 + torch.log(2 * found / beta))).sum() + EIGENVALUES[active(beta) :].sum()
    assert formula.item() == pytest.approx(LOSSES[beta], abs=1e-6)


def test_active_latents_are_principal_components(beta, optimum):
    found, k = EIGENVALUES[: active(beta)], active(beta)
    order = optimum.decoder.norm(dim=0).argsort(descending=True)
    columns, spreads = optimum.decoder[:, order], optimum.logvar.exp()[order]
    torch.testing.assert_close(columns.square().sum(dim=0)[:k], found - beta / 2, rtol=0, atol=1e-3)
    torch.testing.assert_close(spreads[:k], beta / (2 * found), rtol=0, atol=1e-3)
    torch.testing.assert_close(cosines(optimum.decoder)[:k], torch.ones(k, dtype=torch.float64), rtol=0, atol=1e-3)
    means = torch.diag(optimum.encoder @ COVARIANCE @ optimum.encoder.T)[order]
    torch.testing.assert_close(means[:k], 1 - beta / (2 * found), rtol=0, atol=1e-3)


def test_the_others_are_off(beta, optimum):
    order = optimum.decoder.norm(dim=0).argsort(descending=True)[active(beta) :]
    zeros = torch.zeros(len(order), dtype=torch.float64)
    assert len(order) == {1.0: 1, 2.0: 2}[beta]
    torch.testing.assert_close(optimum.decoder[:, order].norm(dim=0), zeros, rtol=0, atol=1e-3)
    torch.testing.assert_close(optimum.encoder[order].norm(dim=1), zeros, rtol=0, atol=1e-3)
    torch.testing.assert_close(optimum.logvar[order], zeros, rtol=0, atol=1e-3)


# ---- our loss


def linear(weights):
    """Our linear model with these weights, no offsets, and variances that do not depend on the image."""
    model = MODEL.build((1, 1, LATENTS), 1, MODEL.params(latents=LATENTS), torch.Generator()).double()
    encoder, decoder = model.encoder[1], model.decoder[0]
    with torch.no_grad():
        encoder.weight.copy_(torch.cat([weights.encoder, torch.zeros_like(weights.encoder)]))
        encoder.bias.copy_(torch.cat([torch.zeros_like(weights.logvar), weights.logvar]))
        decoder.weight.copy_(weights.decoder)
        decoder.bias.zero_()
    return model


def squares(output, target):
    return (output - target).square().sum() / len(target)


def losses(model, x, beta, rng):
    return loss(model, Batch(x, None, squares, population=len(x)), Params(beta=beta), Step(1, 1, rng))


@torch.no_grad()
def test_our_loss_has_the_expected_value_at_the_optimum(beta, optimum):
    model, x, rng = linear(optimum), data(), np.random.default_rng(0)
    drawn = [losses(model, x, beta, rng) for _ in range(400)]
    recon = torch.stack([one.recon for one in drawn])
    error = recon.std().item() / math.sqrt(len(drawn))
    assert recon.mean().item() == pytest.approx(expected_recon(optimum).item(), abs=4 * error)
    assert error < 0.01
    assert drawn[0].latent.item() == pytest.approx(beta * expected_kl(optimum).item())  # no noise in the KL
    total = (recon.mean() + drawn[0].latent).item()
    assert total == pytest.approx(LOSSES[beta], abs=4 * error + 1e-5)


def trained(beta, steps=1000, seed=2):
    """By Adam; the columns turn slowly towards the axes, so the learning rate is high and then falls."""
    model, x, rng = linear(Weights.drawn(seed)), data(), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.2, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        batch = x[rng.integers(len(x), size=128)]
        now = losses(model, batch, beta, rng)
        optimiser.zero_grad()
        (now.recon + now.latent).backward()
        optimiser.step()
        scheduler.step()
    return model


@pytest.mark.slow
def test_training_with_our_loss_finds_the_principal_directions(beta):
    found = cosines(trained(beta).decoder[0].weight.detach())[: active(beta)]
    assert (found > 0.99).all()


# ---- control


def test_a_linear_autoencoder_spans_the_same_space_along_other_axes():
    weights = Weights.drawn(4, latents=3).minimise(noiseless_loss)
    basis = torch.linalg.qr(weights.decoder)[0]
    assert noiseless_loss(weights).item() == pytest.approx(EIGENVALUES[3:].sum().item(), abs=1e-6)
    torch.testing.assert_close(basis @ basis.T, AXES[:, :3] @ AXES[:, :3].T, rtol=0, atol=1e-4)
    assert cosines(weights.decoder).min() < 0.9
    beside = Weights.drawn(4, latents=3).minimise(expected_loss(1.0))
    torch.testing.assert_close(cosines(beside.decoder), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-3)
