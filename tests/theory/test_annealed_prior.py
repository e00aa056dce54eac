"""Theorem 1 of Mathieu et al., ICML 2019: L_beta is an ELBO for the prior p^beta / F_beta, with an entropy bonus."""

import math

import numpy as np
import pytest
import torch
from scipy.special import betaln

from disentune.frameworks.priors import Isotropic, Mixture, StudentT
from disentune.maths.gaussian import sample
from disentune.plugin import Posterior

BETAS = (0.5, 1.0, 2.0, 8.0)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("name", ["mixture", "student_t", "gaussian"])
def test_both_sides_agree_for_priors_that_are_not_gaussian(theory, name, beta):
    """The left by Gauss-Hermite nodes, the right on a grid that also gives F_beta."""
    case, law = theory.Encoded(), theory.LAWS[name]
    assert theory.right_side(case, law, beta).total == pytest.approx(theory.left_side(case, law, beta), abs=1e-5)


@pytest.mark.parametrize("beta", BETAS)
def test_f_beta_of_a_gaussian_has_its_closed_form(theory, beta):
    """(2 pi)^(D (1 - beta) / 2) beta^(-D / 2) for D = 2 and unit variances."""
    expected = (1 - beta) * math.log(2 * math.pi) - math.log(beta)
    assert theory.right_side(theory.Encoded(), Isotropic(), beta).log_f == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("beta", [1.0, 2.0, 8.0])
def test_f_beta_of_students_t_has_its_closed_form(theory, beta):
    """A t to the power of beta is another t: each latent gives C^beta sqrt(nu) B(1/2, (beta (nu + 1) - 1) / 2)."""
    nu = 3
    log_c = -betaln(nu / 2, 0.5) - math.log(nu) / 2
    expected = 2 * (beta * log_c + math.log(nu) / 2 + betaln(0.5, (beta * (nu + 1) - 1) / 2))
    found = theory.right_side(theory.Encoded(), StudentT(nu=nu), beta).log_f
    assert found == pytest.approx(expected, abs=1e-4)  # what lies beyond 60 at beta 1


def test_every_prior_integrates_to_one(theory):
    at, width = theory.line()
    for name, law in theory.LAWS.items():
        mass = theory.plane_integral(np.exp(theory.log_prior(law, at)), width)
        assert mass == pytest.approx(1, abs=1e-4 if name == "student_t" else 1e-8)


def test_the_frameworks_sampled_kl_is_the_one_of_the_theorem(theory):
    """With a flat likelihood, L_beta - L_1 = -(beta - 1) KL(q || p): the framework's own estimate of the KL."""
    case, law = theory.Encoded(), Mixture()
    kl = theory.left_side(case, law, 1.0) - theory.left_side(case, law, 2.0)
    draws = 40_000
    mean, deviation = (torch.tensor(part, dtype=torch.float64) for part in (case.mean, case.deviation))
    q = Posterior(mean.expand(draws, 2), (2 * deviation.log()).expand(draws, 2))
    z = sample(q, np.random.default_rng(0))
    singles = [law.kl(Posterior(mean[None], 2 * deviation.log()[None]), row[None]).item() for row in z[:400]]
    error = np.std(singles, ddof=1) / math.sqrt(draws)
    assert law.kl(q, z).item() == pytest.approx(kl, abs=5 * error)


def test_a_large_beta_leaves_only_the_modes(theory):
    """Of the mixture: the share of the annealed prior within one deviation of a mode grows with beta."""
    at, width = theory.line()
    log_p = theory.log_prior(Mixture(), at)
    across, up = np.meshgrid(at, at)
    near = np.minimum((np.abs(across) - 1) ** 2 + up**2, across**2 + (np.abs(up) - 1) ** 2) < 0.03
    shares = []
    for beta in BETAS:
        annealed = np.exp(beta * (log_p - log_p.max()))
        shares.append(theory.plane_integral(annealed * near, width) / theory.plane_integral(annealed, width))
    assert shares == sorted(shares)
    # one round Gaussian of variance v / beta has 1 - exp(-beta r^2 / 2 v) within r
    assert shares[-1] == pytest.approx(1 - math.exp(-4), abs=0.01)
