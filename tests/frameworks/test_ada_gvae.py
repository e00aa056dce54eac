"""Ada-GVAE's average; the whole loss is tested in test_adaptive.py."""

import numpy as np
import pytest
import torch

from disentune.frameworks.ada_gvae import Params, average, loss
from disentune.frameworks.adaptive import aggregate, shared_latents
from disentune.plugin import Posterior


def posterior(seed, n=7, d=5):
    q = Posterior(*torch.from_numpy(np.random.default_rng(seed).normal(size=(2, n, d))))
    q.mean.requires_grad_()
    return q


@pytest.mark.parametrize(("averaging", "mean"), [("mean", 2), ("as_published", 3)])
def test_variances_are_averaged_and_means_unless_as_published(averaging, mean):
    q = Posterior(torch.tensor([[1.0]]), torch.tensor([[2.0]]).log())
    p = Posterior(torch.tensor([[3.0]]), torch.tensor([[6.0]]).log())
    mid = average(q, p, averaging)
    assert mid.mean.item() == mean
    assert mid.logvar.exp().item() == pytest.approx(4)


def gradients(averaging):
    """Which latents are shared, and the gradients of the sum of the first images' aggregated means."""
    q, p = posterior(0), posterior(1)
    shared = shared_latents(q, p, 0.5, "symmetric_kl")
    aggregate(q, p, average(q, p, averaging), shared).mean[: len(q.mean)].sum().backward()
    return shared, q.mean.grad, p.mean.grad


def test_gradients_reach_both_images_through_a_shared_mean():
    shared, first, second = gradients("mean")
    torch.testing.assert_close(first, torch.where(shared, 0.5, 1.0).double())
    torch.testing.assert_close(second, torch.where(shared, 0.5, 0.0).double())


def test_as_published_no_gradient_reaches_the_first_image_through_a_shared_mean():
    shared, first, second = gradients("as_published")
    assert 0 < shared.sum() < shared.numel()
    torch.testing.assert_close(first, torch.where(shared, 0.0, 1.0).double())
    torch.testing.assert_close(second, torch.where(shared, 1.0, 0.0).double())


@torch.no_grad()
def test_every_choice_gives_a_loss_of_its_own(model, batch, step):
    choices = [
        Params(beta=1, divergence=d, averaging=a) for d in ("kl", "symmetric_kl") for a in ("mean", "as_published")
    ]
    assert len({loss(model, batch, params, step()).latent.item() for params in choices}) == 4


@pytest.mark.parametrize("logvars", [(-60.0, 60.0), (80.0, 80.0), (-80.0, -80.0)])
def test_the_average_is_finite_for_any_variances(logvars):
    q, p = (Posterior(torch.ones(1, 1), torch.full((1, 1), logvar)) for logvar in logvars)
    assert average(q, p).logvar.item() == pytest.approx(np.logaddexp(*logvars) - np.log(2))
