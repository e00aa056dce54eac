"""How many codes another image's posterior fits better."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from disentune.maths.randomness import metric_rng
from disentune.metrics import score
from disentune.metrics.posteriors import drawn
from disentune.metrics.table import table_of


def overlap(means, logvars, **params):
    return score("posterior_overlap", means, logvars=logvars, **params)["posterior_overlap"]


def slow_overlap(q):
    deviations, confused = np.exp(q.logvars / 2), 0
    for own, z in enumerate(q.z):
        densities = [norm.logpdf(z, mean, std).sum() for mean, std in zip(q.means, deviations, strict=True)]
        confused += any(density > densities[own] for other, density in enumerate(densities) if other != own)
    return confused / len(q.z)


@pytest.mark.parametrize("d", [1, 3])
def test_it_agrees_with_a_slow_loop(d):
    rng = np.random.default_rng(0)
    means, logvars = rng.normal(size=(40, d)), rng.normal(-3, 1, size=(40, d))
    q = drawn(table_of(means, None, logvars), 5000, metric_rng(0, "posterior_overlap"))
    found = overlap(means, logvars)
    assert found == slow_overlap(q)
    assert 0 < found < 1


def test_two_equal_bells_are_confused_beyond_the_middle():
    """Of pairs at distance 2 and deviation 1, far from other pairs: the share is Phi(-1)."""
    means = (np.arange(4000) // 2 * 1000 + np.arange(4000) % 2 * 2.0)[:, None]
    found, expected = overlap(means, np.zeros_like(means), samples=4000), norm.cdf(-1)
    assert found == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000))


def test_far_posteriors_are_never_confused_and_crowded_ones_nearly_always():
    means = np.random.default_rng(0).normal(size=(300, 1))
    assert overlap(1e4 * means, np.full_like(means, -4.0)) == 0
    assert overlap(means, np.zeros_like(means)) > 0.95


def test_equal_posteriors_are_not_nearer_than_one_another():
    assert overlap(np.zeros((50, 2)), np.zeros((50, 2))) == 0
