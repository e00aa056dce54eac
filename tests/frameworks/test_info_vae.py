"""InfoVAE: its two weights, and the models that it contains."""

import numpy as np
import pytest
import torch

from disentune.frameworks import beta_vae
from disentune.frameworks.info_vae import FRAMEWORK, Params, loss
from disentune.frameworks.mmd import KERNELS, mmd
from disentune.plugin import Context


@pytest.mark.parametrize("kernel", KERNELS)
def test_terms_are_those_of_the_paper(kernel, model, batch, step):
    """Codes and prior come from the step's generator, one after the other; 2 * 4 latents * variance 3 is the scale."""
    rng = np.random.default_rng(0)
    noise, prior = (torch.from_numpy(rng.standard_normal((6, 4))) for _ in range(2))
    q = model.encode(batch.x)
    discrepancy = mmd(q.mean + torch.exp(q.logvar / 2) * noise, prior, KERNELS[kernel], 24.0)
    plain = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    losses = loss(model, batch, Params(alpha=-0.5, lambda_z=4, kernel=kernel, kernel_variance=3), step())
    assert (losses.recon, losses.parts["kl"]) == (plain.recon, plain.latent)
    torch.testing.assert_close(losses.parts["mmd"], discrepancy)
    torch.testing.assert_close(losses.latent, 1.5 * plain.latent + 2.5 * discrepancy)


def test_alpha_zero_and_lambda_one_are_the_vae(model, batch, step):
    ours = loss(model, batch, Params(alpha=0, lambda_z=1), step())
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    assert (ours.recon, ours.latent) == (theirs.recon, theirs.latent)


def test_alpha_one_is_the_mmd_vae(model, batch, step):
    losses = loss(model, batch, Params(alpha=1, lambda_z=10), step())
    torch.testing.assert_close(losses.latent, 10 * losses.parts["mmd"])


def test_slope_in_lambda_is_the_mmd_and_in_alpha_mmd_minus_kl(model, batch, step):
    low, more, other = (
        loss(model, batch, Params(alpha=alpha, lambda_z=weight), step())
        for alpha, weight in ((0.0, 2.0), (0.0, 5.0), (-1.0, 2.0))
    )
    torch.testing.assert_close((more.latent - low.latent) / 3, low.parts["mmd"])
    torch.testing.assert_close(low.latent - other.latent, low.parts["mmd"] - low.parts["kl"])


def test_gradients_of_the_mmd_reach_means_and_variances(model, batch, step):
    losses = loss(model, batch, Params(alpha=0.5, lambda_z=2), step())
    (gradient,) = torch.autograd.grad(losses.parts["mmd"], [*model.encoder.parameters()][-1])
    assert all(half.any() for half in gradient.chunk(2))


@pytest.mark.parametrize(("alpha", "lambda_z"), [(0.0, 1e-3), (-9.0, 9.5)])
def test_a_negative_weight_of_the_mmd_is_refused_with_the_reason(alpha, lambda_z):
    """alpha 0 and lambda 0.001 are pythae's defaults: its MMD is driven up."""
    with pytest.raises(ValueError, match=r"lambda_z\n.*must be >= 1 - alpha, .* drives codes away from the prior"):
        Params(alpha=alpha, lambda_z=lambda_z)


def test_a_weight_of_zero_is_allowed_in_spite_of_rounding():
    assert abs(Params(alpha=-1.993, lambda_z=2.993).mmd_weight) < 1e-12


def test_a_batch_of_one_is_refused():
    params = Params(alpha=0, lambda_z=2)
    with pytest.raises(ValueError, match="batch_size must be >= 2"):
        FRAMEWORK.check(Context((1, 4, 4), 4, 1, (10,)), params)
    FRAMEWORK.check(Context((1, 4, 4), 4, 2, (10,)), params)
