"""KL of the aggregate posterior from its prior, and the prior's log-density: by scipy, by closed forms, by loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from disentune.frameworks.divergences import inclusive_kl
from disentune.frameworks.priors import Mixture
from disentune.learn.evaluation import code_law
from disentune.metrics import METRICS, score, scored
from disentune.metrics.aggregate import STANDARD_NORMAL, log_aggregate
from disentune.metrics.table import table_of
from disentune.plugin import Posterior


def posteriors(n=6, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), np.log(rng.uniform(0.01, 2, (n, d)))


def test_the_aggregate_density_is_the_mean_of_the_posteriors_densities():
    means, logvars = posteriors()
    points = np.random.default_rng(1).normal(size=(500, 2))
    expected = [
        np.log(
            np.mean(
                [
                    stats.multivariate_normal(m, np.diag(np.exp(v))).pdf(point)
                    for m, v in zip(means, logvars, strict=True)
                ]
            )
        )
        for point in points[:20]
    ]
    found = log_aggregate(points, means, logvars)
    np.testing.assert_allclose(found[:20], expected, rtol=1e-10)
    assert found.shape == (500,)  # also over several chunks


def test_the_aggregate_density_integrates_to_one():
    means, logvars = posteriors()
    axis, step = np.linspace(-12, 12, 600, retstep=True)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert np.exp(log_aggregate(points, means, logvars)).sum() * step**2 == pytest.approx(1, abs=1e-6)


def test_posteriors_without_spread_stay_finite():
    assert np.isfinite(log_aggregate(np.zeros((1, 1)), np.zeros((2, 1)), np.full((2, 1), -1e4))).all()


def test_it_is_the_divergence_that_the_framework_minimises():
    """The same draws from the prior through the framework's own estimate."""
    means, logvars = posteriors(40)
    table = replace(table_of(means, logvars=logvars), prior=code_law(Mixture(), torch.device("cpu")))
    params = METRICS["prior_divergence"].params(draws=300)
    found = scored(METRICS["prior_divergence"], table, 0, params).numbers["prior_divergence"]
    q = Posterior(torch.from_numpy(means), torch.from_numpy(logvars))
    repeats = []
    for seed in range(20):
        points = Mixture().sample(torch.empty(300, 2, dtype=torch.float64), np.random.default_rng(seed))
        repeats.append(inclusive_kl(points, Mixture().log_density(points), q).item())
    assert abs(found - np.mean(repeats)) < 4 * np.std(repeats, ddof=1)


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_order_and_sign_of_latents_do_not_matter(order, signs):
    """A prior whose draws are a lattice that looks the same from every side, so that both sums have equal terms."""
    axis = np.linspace(-2, 2, 9)
    lattice = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    prior = STANDARD_NORMAL._replace(sample=lambda count, latents, rng: lattice)
    means, logvars = posteriors(40)

    def found(means, logvars):
        table = replace(table_of(means, logvars=logvars), prior=prior)
        metric = METRICS["prior_divergence"]
        return scored(metric, table, 0, metric.params()).numbers["prior_divergence"]

    assert found((means * signs)[:, order], logvars[:, order]) == pytest.approx(found(means, logvars), rel=1e-12)
    assert found(means[:, [1, 0]], logvars) != pytest.approx(found(means, logvars), rel=1e-3)  # another mixture


def test_a_single_posterior_has_the_closed_form():
    """KL(N(0, 1) || N(m, s^2)) = log s + (1 + m^2) / (2 s^2) - 1/2, in each of two latents."""
    mean, deviation = 0.5, 1.4
    expected = 2 * (math.log(deviation) + (1 + mean**2) / (2 * deviation**2) - 0.5)
    codes = np.full((3, 2), mean)
    found = score("prior_divergence", codes, logvars=np.full((3, 2), 2 * math.log(deviation)), draws=200_000)
    assert found["prior_divergence"] == pytest.approx(expected, abs=0.01)  # 4 standard errors of the draws


def test_the_prior_itself_has_no_divergence_and_its_own_entropy():
    zeros = np.zeros((50, 3))
    assert score("prior_divergence", zeros, logvars=zeros)["prior_divergence"] == pytest.approx(0, abs=1e-12)
    entropy = 1.5 * (1 + math.log(2 * math.pi))
    assert score("prior_log_density", zeros, logvars=zeros, draws=1000)["prior_log_density"] == pytest.approx(
        -entropy, abs=0.03
    )


def test_log_density_of_sure_codes_is_that_of_their_means():
    codes = np.random.default_rng(0).normal(size=(30, 2))
    expected = stats.norm.logpdf(codes).sum(axis=1).mean()
    found = score("prior_log_density", codes, logvars=np.full((30, 2), -60.0))["prior_log_density"]
    assert found == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(STANDARD_NORMAL.log_density(codes), stats.norm.logpdf(codes).sum(axis=1))


def test_the_prior_of_the_table_is_the_one_that_counts():
    means, logvars = posteriors(20)
    table = table_of(means, logvars=np.minimum(logvars, -50))
    params = METRICS["prior_log_density"].params()
    other = replace(table, prior=code_law(Mixture(), torch.device("cpu")))
    found = scored(METRICS["prior_log_density"], other, 0, params).numbers["prior_log_density"]
    expected = Mixture().log_density(torch.from_numpy(means)).mean().item()
    assert found == pytest.approx(expected, abs=1e-6)
    assert found != pytest.approx(scored(METRICS["prior_log_density"], table, 0, params).numbers["prior_log_density"])
