"""The BetaVAE score is perfect when all factors but one are captured (Kim & Mnih, ICML 2018, section 4)."""

import numpy as np
import pytest


def test_codes_that_miss_one_factor_have_the_perfect_betavae_score(theory):
    """A classifier needs only tell which code stands still; where none does, it was the factor that is missing."""
    found = theory.partial_scores(len(theory.SIZES) - 1)
    assert found["beta_vae_score"] > 0.99
    assert found["factor_vae_score"] < 0.9
    assert found["mig"] < 0.9


def test_codes_that_show_every_factor_are_perfect_by_all(theory):
    assert min(theory.partial_scores(len(theory.SIZES)).values()) > 0.99


def test_two_missing_factors_cannot_be_told_apart(theory):
    """Then one of the two is guessed: 3 of 5 factors and half of the other 2."""
    assert theory.partial_scores(3)["beta_vae_score"] == pytest.approx(4 / 5, abs=0.03)
    assert theory.partial_scores(3)["factor_vae_score"] == pytest.approx(3 / 5, abs=0.05)


def test_the_codes_miss_what_they_say(theory):
    codes, factors = theory.partial_codes(4)
    shown = np.abs(np.corrcoef(codes.T, factors.T)[:5, 5:])
    np.testing.assert_allclose(np.diag(shown)[:4], 1)
    assert shown[4].max() < 0.1
