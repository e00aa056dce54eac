"""beta-TCVAE: its estimators against slow loops and against aggregate posteriors that are known exactly."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from disentune.frameworks import beta_vae
from disentune.frameworks.beta_tc_vae import (
    FRAMEWORK,
    LOG_WEIGHTS,
    Params,
    loss,
    mss_log_weights,
    mws_log_weights,
    other_parts,
    total_correlation,
)
from disentune.maths.gaussian import sample
from disentune.plugin import Context, Posterior


def posteriors(n, d, seed=0):
    return Posterior(*torch.from_numpy(np.random.default_rng(seed).normal(size=(2, n, d))))


def chosen(q, indices):
    return Posterior(q.mean[indices], q.logvar[indices])


def mixture(mean, logvar):
    """The aggregate posterior of (n, d), or of one latent (n,), with equal weights."""
    each = Normal(mean, torch.exp(logvar / 2))
    return MixtureSameFamily(Categorical(torch.ones(len(mean)).double()), Independent(each, mean.dim() - 1))


def exact_total_correlation(z, q):
    """Mean of log q(z) - sum of log q(z_d), where q(z) is the mean of all posteriors."""
    marginals = [mixture(q.mean[:, d], q.logvar[:, d]).log_prob(z[:, d]) for d in range(z.shape[1])]
    return (mixture(q.mean, q.logvar).log_prob(z) - sum(marginals)).mean().item()


def slow_weight(estimator, i, j, n, population):
    if estimator == "mws":
        return 1 / (population * n)
    m = n - 1
    if j == i:
        return 1 / population
    return (population - m) / (population * m) if j == (i + 1) % n else 1 / m


def slow_total_correlation(z, q, estimator, population):
    n, d = z.shape
    total = 0.0
    for i in range(n):
        weights = [slow_weight(estimator, i, j, n, population) for j in range(n)]
        densities = Normal(q.mean, torch.exp(q.logvar / 2)).log_prob(z[i]).exp()
        joint = sum(weight * densities[j].prod() for j, weight in enumerate(weights))
        marginals = [sum(weight * densities[j, k] for j, weight in enumerate(weights)) for k in range(d)]
        total += math.log(joint) - sum(math.log(one) for one in marginals)
    return total / n


@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
@pytest.mark.parametrize(("n", "population"), [(2, 2), (2, 50), (5, 50), (7, 7)])
def test_the_estimate_agrees_with_slow_loops(estimator, n, population):
    """At n = population the batch is the whole data set."""
    q = posteriors(n, 3)
    z = sample(q, np.random.default_rng(1))
    expected = slow_total_correlation(z, q, estimator, population)
    assert total_correlation(z, q, LOG_WEIGHTS[estimator](n, population)).item() == pytest.approx(expected, rel=1e-9)


def test_stratified_weights_stand_where_they_belong():
    """Row i: 1 / N on the diagonal, not in the first column, and one other (N - M) / (N M)."""
    n, population, m = 5, 100, 4
    weights = mss_log_weights(n, population).exp()
    torch.testing.assert_close(weights.diagonal(), torch.full((n,), 1 / population).double())
    others = weights[~torch.eye(n, dtype=torch.bool)].reshape(n, m).sort(dim=1).values
    torch.testing.assert_close(others[:, 0], torch.full((n,), (population - m) / (population * m)).double())
    torch.testing.assert_close(others[:, 1:], torch.full((n, m - 1), 1 / m).double())


@pytest.mark.parametrize(("n", "population"), [(2, 2), (2, 9), (3, 3), (5, 100), (64, 64), (64, 737_280)])
def test_stratified_weights_of_a_code_add_up_to_one(n, population):
    torch.testing.assert_close(mss_log_weights(n, population).exp().sum(dim=1), torch.ones(n).double())


@pytest.mark.parametrize("n", [2, 3, 5])
def test_stratified_sampling_estimates_the_aggregate_without_bias(n):
    """Over every choice, in every order, of the other images of a batch: the mean is q(z), and so for one latent."""
    population = 5
    q = posteriors(population, 2)
    z = sample(q, np.random.default_rng(1))[0]
    joint, marginal = [], []
    for others in permutations(range(1, population), n - 1):
        batch = chosen(q, [0, *others])
        densities = Normal(batch.mean, torch.exp(batch.logvar / 2)).log_prob(z).exp()
        weights = mss_log_weights(n, population)[0].exp()
        joint.append(weights @ densities.prod(dim=1))
        marginal.append(weights @ densities[:, 0])
    torch.testing.assert_close(torch.stack(joint).mean(), mixture(q.mean, q.logvar).log_prob(z).exp())
    exact = mixture(q.mean[:, 0], q.logvar[:, 0]).log_prob(z[0]).exp()
    torch.testing.assert_close(torch.stack(marginal).mean(), exact)


def test_weighted_sampling_of_the_whole_data_set_is_exact_but_for_its_constant():
    """1 / (N B) instead of 1 / N in d marginals and one joint: (d - 1) log N too much, and no gradient."""
    q = posteriors(200, 3)
    z = sample(q, np.random.default_rng(1))
    estimate = total_correlation(z, q, mws_log_weights(200, 200)).item()
    assert estimate - 2 * math.log(200) == pytest.approx(exact_total_correlation(z, q), rel=1e-9)


@pytest.mark.parametrize(("estimator", "expected"), [("mws", 9 * math.log(1000)), ("mss", 0.0)])
def test_equal_posteriors_have_the_known_value(estimator, expected):
    """disentanglement_lib's own test, -9 log B without constants, plus the 9 log(N B) that it drops."""
    q = Posterior(torch.zeros(20, 10).double(), torch.zeros(20, 10).double())
    z = sample(q, np.random.default_rng(0))
    assert total_correlation(z, q, LOG_WEIGHTS[estimator](20, 1000)).item() == pytest.approx(expected, abs=1e-9)


def world(population=1000, d=4):
    """Posteriors whose means are correlated: the aggregate is no product of its marginals."""
    rng = np.random.default_rng(0)
    mixing = np.eye(d) + 0.5 * np.eye(d, k=1)
    mean = torch.from_numpy(rng.normal(size=(population, d)) @ mixing)
    return Posterior(mean, torch.full_like(mean, 2 * math.log(0.3)))


def mean_estimates(q, size, batches=20):
    """Of both estimators and of the plain mean over the batch, over batches of different images."""
    rng, population = np.random.default_rng(2), len(q.mean)
    plain = torch.full((size, size), -math.log(size), dtype=torch.float64)
    weights = {"mws": mws_log_weights(size, population), "mss": mss_log_weights(size, population), "plain": plain}
    found = {name: [] for name in weights}
    for _ in range(batches):
        batch = chosen(q, rng.choice(population, size, replace=False))
        z = sample(batch, rng)
        for name, log_weights in weights.items():
            found[name].append(total_correlation(z, batch, log_weights).item())
    return {name: np.mean(values) for name, values in found.items()}


def test_estimates_of_a_known_aggregate_stand_as_measured():
    """facts 4.3 in another world: the plain mean lies above the exact value, the stratified estimate below it, both
    come nearer with the batch, and the weighted one is the plain mean plus its constant."""
    q = world()
    exact = exact_total_correlation(sample(q, np.random.default_rng(1)), q)
    small, large = mean_estimates(q, 64), mean_estimates(q, 256)
    assert small["mss"] < large["mss"] < exact < large["plain"] < small["plain"]
    assert abs(large["mss"] - exact) < abs(large["plain"] - exact)
    for estimates in (small, large):
        assert estimates["mws"] == pytest.approx(estimates["plain"] + 3 * math.log(1000), rel=1e-9)


@pytest.mark.parametrize("logvar", [-8.0, 0.0])
@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
def test_densities_neither_underflow_nor_overflow(estimator, logvar):
    """100 latents: about exp(260) or exp(-140) under a code's own posterior, exp(-1e6) under others; in float32."""
    q = Posterior(100 * torch.arange(8.0)[:, None].expand(8, 100), torch.full((8, 100), logvar))
    z = sample(q, np.random.default_rng(0)).requires_grad_()
    tc = total_correlation(z, q, LOG_WEIGHTS[estimator](8, 1000))
    (gradient,) = torch.autograd.grad(tc, z)
    assert tc.isfinite()
    assert gradient.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
def test_terms_are_those_of_the_paper(estimator, model, batch, step):
    q = model.encode(batch.x)
    z = sample(q, np.random.default_rng(0))
    plain = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    losses = loss(model, batch, Params(beta=4, estimator=estimator), step())
    tc = slow_total_correlation(z, q, estimator, batch.population)
    assert (losses.recon, losses.parts["kl"]) == (plain.recon, plain.latent)
    assert losses.parts["tc"].item() == pytest.approx(tc, rel=1e-9)
    assert losses.latent.item() == pytest.approx(plain.latent.item() + 3 * tc, rel=1e-9)


@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
def test_beta_one_is_the_vae(estimator, model, batch, step):
    ours = loss(model, batch, Params(beta=1, estimator=estimator), step())
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    assert (ours.recon, ours.latent) == (theirs.recon, theirs.latent)


@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
def test_slope_in_beta_is_the_total_correlation(estimator, model, batch, step):
    low, high = (loss(model, batch, Params(beta=beta, estimator=estimator), step()) for beta in (0.5, 2.5))
    torch.testing.assert_close((high.latent - low.latent) / 2, low.parts["tc"])


@pytest.mark.parametrize(
    ("estimator", "size", "message"),
    [("mws", 1, "batch_size must be >= 2"), ("mss", 1, "batch_size must be >= 2"), ("mss", 11, "batch_size <= 10")],
)
def test_batches_that_cannot_serve_are_refused(estimator, size, message):
    with pytest.raises(ValueError, match=message):
        FRAMEWORK.check(Context((1, 4, 4), 4, size, (5, 2)), Params(beta=2, estimator=estimator))


@pytest.mark.parametrize(("estimator", "size"), [("mws", 2), ("mws", 11), ("mss", 2), ("mss", 10)])
def test_other_batches_serve(estimator, size):
    FRAMEWORK.check(Context((1, 4, 4), 4, size, (5, 2)), Params(beta=2, estimator=estimator))


# ---- the other two parts of the KL


def sampled_kl(z, q):
    """Mean over codes of log q(z|x) - log p(z)."""
    own = Normal(q.mean, torch.exp(q.logvar / 2)).log_prob(z)
    return (own - Normal(0.0, 1.0).log_prob(z)).sum(dim=1).mean()


@pytest.mark.parametrize("estimator", LOG_WEIGHTS)
def test_the_three_parts_add_up_to_the_kl_of_the_draws(estimator):
    q = posteriors(6, 3)
    z = sample(q, np.random.default_rng(1))
    weights = LOG_WEIGHTS[estimator](6, 50)
    information, marginals = other_parts(z, q, weights)
    total = information + total_correlation(z, q, weights) + marginals
    torch.testing.assert_close(total, sampled_kl(z, q))


def test_with_equal_weights_the_parts_are_those_of_the_batchs_mixture():
    q = posteriors(7, 2)
    z = sample(q, np.random.default_rng(1))
    information, marginals = other_parts(z, q, torch.full((7, 7), -math.log(7), dtype=torch.float64))
    own = Normal(q.mean, torch.exp(q.logvar / 2)).log_prob(z).sum(dim=1)
    joint = mixture(q.mean, q.logvar).log_prob(z)
    each = sum(mixture(q.mean[:, d], q.logvar[:, d]).log_prob(z[:, d]) for d in range(2))
    torch.testing.assert_close(information, (own - joint).mean())
    torch.testing.assert_close(marginals, (each - Normal(0.0, 1.0).log_prob(z).sum(dim=1)).mean())


def test_equal_weights_of_all_three_weigh_the_kl_of_the_draws(model, batch, step):
    weighted = loss(model, batch, Params(beta=3, alpha=3, gamma=3), step())
    plain = loss(model, batch, Params(beta=1), step())
    q = model.encode(batch.x)
    z = sample(q, step().rng)
    torch.testing.assert_close(weighted.latent - plain.latent, 2 * sampled_kl(z, q))


def test_weights_of_one_leave_config_and_bits_as_they_were(model, batch, step):
    assert Params(beta=3, alpha=1.0, gamma=1.0).model_dump() == {"beta": 3.0, "estimator": "mws"}
    torch.testing.assert_close(
        loss(model, batch, Params(beta=3, alpha=1.0), step()).latent, loss(model, batch, Params(beta=3), step()).latent,
        rtol=0, atol=0,
    )  # fmt: skip


def test_without_alpha_the_information_costs_nothing(model, batch, step):
    """The slope in alpha is the index-code mutual information."""
    q = model.encode(batch.x)
    z = sample(q, step().rng)
    information, _ = other_parts(z, q, mws_log_weights(len(z), batch.population))
    low, high = (loss(model, batch, Params(beta=2, alpha=alpha), step()).latent for alpha in (0.0, 2.0))
    torch.testing.assert_close((high - low) / 2, information)
