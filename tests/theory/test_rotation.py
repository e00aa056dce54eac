"""Theorem 2 of Mathieu et al., ICML 2019: an isotropic prior cannot tell rotations apart; what breaks that."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, StudentT, kl_divergence

ANGLES = np.radians([10, 30, 45, 80])


def test_a_round_prior_with_full_covariance_is_blind_to_every_angle(theory):
    assert np.abs(theory.changes(ANGLES)["round prior, full covariance"]).max() < 1e-12


@pytest.mark.parametrize(
    "broken",
    ["round prior, diagonal covariance", "Student's t (nu 3), full covariance", "anisotropic prior, full covariance"],
)
def test_anything_else_sees_the_angle(theory, broken):
    found = theory.changes(ANGLES)[broken]
    assert np.abs(found).min() > 1e-3


def test_a_diagonal_posterior_prefers_the_axes_of_the_decoder(theory):
    """Rolinek et al. 2019: it loses most half way between them, and a quarter turn swaps equal axes."""
    angles = np.radians([0, 15, 30, 45, 60, 75, 90])
    found = theory.changes(angles)["round prior, diagonal covariance"]
    assert found.argmin() == 3
    assert (found[1:-1] < 0).all()
    assert found[-1] == pytest.approx(0, abs=1e-9)


def test_a_quarter_turn_tells_anisotropic_axes_apart_and_not_those_of_students_t(theory):
    found = theory.changes(np.radians([90.0]))
    assert abs(found["anisotropic prior, full covariance"][0]) > 0.1
    assert found["Student's t (nu 3), full covariance"][0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("prior", ["isotropic", "anisotropic", "student_t"])
def test_the_objective_is_that_of_torchs_distributions(theory, prior):
    """At 30 degrees, with means and covariance written out again; Student's t from draws."""
    beta, noise = theory.BETA, theory.NOISE
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    r = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    codes, stretch = torch.from_numpy(theory.CODES), torch.from_numpy(theory.STRETCH)
    w = stretch @ r.T
    cov = torch.linalg.inv(torch.eye(2).double() + w.T @ w / (beta * noise**2))
    q = MultivariateNormal(codes @ r.T, cov)
    target = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    if prior == "anisotropic":
        target = MultivariateNormal(torch.zeros(2).double(), torch.diag(torch.from_numpy(theory.SPREAD)))
    torch.manual_seed(0)
    z = q.sample((3000,))
    fits = MultivariateNormal(codes @ stretch.T, noise**2 * torch.eye(2).double()).log_prob(z @ w.T)
    if prior == "student_t":
        law = Independent(StudentT(torch.full((2,), 3.0).double()), 1)
        values = fits - beta * (q.log_prob(z) - law.log_prob(z))
    else:
        values = fits - beta * kl_divergence(q, target)
    by_draw = values.mean(dim=1)
    found = theory.objective(math.pi / 6, prior)
    assert found == pytest.approx(by_draw.mean().item(), abs=5 * by_draw.std().item() / math.sqrt(3000))
