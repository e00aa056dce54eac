"""KL per latent against torch's and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.metrics import score, scores
from disentune.metrics.table import table_of


def test_the_score_is_the_divergence_of_torch():
    means, logvars = np.random.default_rng(0).normal(size=(2, 60, 4))
    posterior = Normal(torch.tensor(means), torch.tensor(np.exp(logvars / 2)))
    expected = kl_divergence(posterior, Normal(0.0, 1.0)).mean(dim=0).numpy()
    found = scores("kl_per_latent", table_of(means, logvars=logvars), 0, "full", {})
    np.testing.assert_allclose(found.details["kl_per_latent_values"], expected, rtol=1e-7)  # torch's prior is float32
    assert found.numbers["kl_per_latent"] == pytest.approx(expected.mean(), rel=1e-7)


@pytest.mark.parametrize(("mean", "logvar", "total"), [(0, 0, 0), (1, 0, 5), (1, 1, 8.5914)])
def test_ten_latents_have_the_published_sum(mean, logvar, total):
    codes, logvars = np.full((3, 10), float(mean)), np.full((3, 10), float(logvar))
    assert 10 * score("kl_per_latent", codes, logvars=logvars)["kl_per_latent"] == pytest.approx(total, abs=5e-5)


def test_unbounded_variances_have_a_finite_divergence():
    logvars = np.tile([1e38, -1e38], (10_000, 1))
    assert np.isfinite(score("kl_per_latent", logvars, logvars=logvars)["kl_per_latent"])


def test_sampled_codes_have_the_divergence_of_their_posteriors():
    table = table_of(np.random.default_rng(0).normal(size=(50, 2)), logvars=np.zeros((50, 2)))
    assert scores("kl_per_latent", replace(table, means=np.zeros((50, 2))), 0, "full", {}).numbers == {
        "kl_per_latent": 0
    }
