"""Corollaries 1 and 2 of Mathieu et al., ICML 2019: for Gaussians beta is an entropy bonus, up to a scale of codes."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 8.0])
def test_l_beta_is_the_objective_with_a_bonus_at_rescaled_networks_plus_a_constant(theory, beta):
    x, model = theory.linear_data(), theory.linear_start()
    left = theory.elbo(model, x, beta).item()
    right = theory.with_bonus(model.rescaled(beta), x, beta).item() + theory.constant(beta, 2)
    assert left == pytest.approx(right, abs=1e-10)


def test_the_constant_is_needed_and_depends_on_beta_only(theory):
    x = theory.linear_data()
    gaps = []
    for seed in range(3):
        model = theory.linear_start(seed=seed)
        gaps.append((theory.elbo(model, x, 3.0) - theory.with_bonus(model.rescaled(3.0), x, 3.0)).item())
    assert gaps == pytest.approx([theory.constant(3.0, 2)] * 3)
    assert abs(gaps[0]) > 0.1


def test_the_objective_is_that_of_torchs_distributions(theory):
    """Reconstruction by draws, KL of full covariances by torch."""
    x, model = theory.linear_data(n=40), theory.linear_start()
    q = MultivariateNormal(x @ model.v.T, model.a @ model.a.T)
    prior = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    torch.manual_seed(0)
    draws = q.sample((4000,)) @ model.w.T
    fit = -((x - draws).square().sum(dim=2) + x.shape[1] * math.log(2 * math.pi)) / 2
    expected = fit.mean() - 2 * kl_divergence(q, prior).mean()
    error = fit.mean(dim=1).std().item() / math.sqrt(4000)
    assert theory.elbo(model, x, 2.0).item() == pytest.approx(expected.item(), abs=5 * error)


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_a_stationary_point_of_one_objective_is_one_of_the_other(theory, beta):
    path, x = theory.ascent(beta)
    assert max(theory.norms(path[-1], x, beta)) < 1e-6
    assert min(theory.norms(path[0], x, beta)) > 1


def test_without_rescaling_it_is_not_stationary(theory):
    path, x = theory.ascent(4.0)
    still = theory.Linear(*(part.clone().requires_grad_() for part in path[-1]))
    assert theory.gradient_norm(theory.with_bonus(still, x, 4.0), still) > 0.1


def test_gradients_are_related_by_the_slope_of_the_map(theory):
    """d/d v of L_beta = sqrt(beta) d/d v' of L_H; of the decoder, 1 / sqrt(beta) of it."""
    beta, x, model = 4.0, theory.linear_data(), theory.linear_start()
    leaf = theory.Linear(*(part.clone().requires_grad_() for part in model))
    twin = theory.Linear(*(part.clone().requires_grad_() for part in model.rescaled(beta)))
    ours = torch.autograd.grad(theory.elbo(leaf, x, beta), leaf)
    theirs = torch.autograd.grad(theory.with_bonus(twin, x, beta), twin)
    for mine, other, slope in zip(ours, theirs, (2.0, 2.0, 0.5), strict=True):
        torch.testing.assert_close(mine, slope * other)
