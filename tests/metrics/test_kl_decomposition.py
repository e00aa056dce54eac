"""The parts of the KL against mixtures of torch, closed forms and the bias that appendix C proves."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from disentune.maths.randomness import metric_rng
from disentune.metrics import score
from disentune.metrics.kl_decomposition import METRIC, exact, minibatch, parts
from disentune.metrics.posteriors import BLOCK, Gaussians, blocks, drawn
from disentune.metrics.table import table_of

MI, TC, MARGINALS = PARTS = METRIC.keys[:3]


def posteriors(n=40, d=3, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    means, logvars = spread * rng.normal(size=(n, d)), rng.normal(-1, 0.5, size=(n, d))
    return Gaussians(means, logvars, means + np.exp(logvars / 2) * rng.normal(size=(n, d)))


def normals(q):
    return Normal(*(torch.from_numpy(array) for array in (q.means, np.exp(q.logvars / 2))))


def mixture(q, latent=None):
    """Of all posteriors, in all latents or in one, by torch."""
    each = normals(q)
    each = Independent(each, 1) if latent is None else Normal(each.mean[:, latent], each.stddev[:, latent])
    return MixtureSameFamily(Categorical(torch.ones(len(q.means)).double()), each)


def closed_kl(q):
    return torch.distributions.kl_divergence(normals(q), Normal(0.0, 1.0)).sum(dim=1).mean().item()


def by_torch(q):
    z = torch.from_numpy(q.z)
    own, joint = normals(q).log_prob(z).sum(dim=1), mixture(q).log_prob(z)
    each = sum(mixture(q, latent).log_prob(z[:, latent]) for latent in range(z.shape[1]))
    information, correlation = (own - joint).mean().item(), (joint - each).mean().item()
    return {MI: information, TC: correlation, MARGINALS: closed_kl(q) - information - correlation}


def test_the_parts_are_those_of_torchs_mixture():
    q = posteriors()
    assert parts(q, exact(q)) == pytest.approx(by_torch(q), rel=1e-9)


def test_the_three_add_up_to_the_kl_exactly():
    q = posteriors()
    assert sum(parts(q, exact(q)).values()) == pytest.approx(closed_kl(q), rel=1e-12)
    of_batches = Gaussians(*(array[:36] for array in q))
    assert sum(parts(q, minibatch(q, 12)).values()) == pytest.approx(closed_kl(of_batches), rel=1e-12)


@pytest.mark.slow
def test_the_dimension_wise_kl_is_the_mean_over_draws_of_log_q_over_log_p():
    """Up to the draws, of which the metric uses the part in closed form."""
    q = posteriors(n=2000)
    z = torch.from_numpy(q.z)
    terms = sum(mixture(q, d).log_prob(z[:, d]) for d in range(3)) - Normal(0.0, 1.0).log_prob(z).sum(dim=1)
    error = terms.std().item() / math.sqrt(2000)
    assert parts(q, exact(q))[MARGINALS] == pytest.approx(terms.mean().item(), abs=4 * error)


def test_blocks_change_nothing(monkeypatch):
    q = posteriors()
    whole = parts(q, exact(q))
    monkeypatch.setattr("disentune.metrics.posteriors.BLOCK", 7 * q.means.size)
    assert [len(log_q) for _, log_q in blocks(q)] == [7] * 5 + [5]
    assert parts(q, exact(q)) == pytest.approx(whole, rel=1e-12)
    assert BLOCK > 1000


def test_posteriors_far_apart_tell_every_image_and_equal_ones_none():
    far = posteriors(n=50, spread=1e6)
    found = parts(far, exact(far))
    assert found[MI] == pytest.approx(math.log(50), abs=1e-9)
    equal = far._replace(means=np.zeros_like(far.means), logvars=np.zeros_like(far.logvars), z=far.z - far.means)
    assert parts(equal, exact(equal)) == pytest.approx(dict.fromkeys(PARTS, 0), abs=1e-12)


def test_independent_latents_on_a_grid_have_no_total_correlation_and_a_copied_one_has_that_of_its_information():
    """Latent 2 is independent of latent 1 on the grid; as a copy, it shares all that latent 1 tells."""
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[np.linspace(-3, 3, 20)] * 2)], axis=1)
    logvars, noise = np.full(grid.shape, -8.0), np.exp(-4) * np.random.default_rng(0).normal(size=grid.shape)
    apart = Gaussians(grid, logvars, grid + noise)
    assert parts(apart, exact(apart))[TC] == pytest.approx(0, abs=1e-6)
    twice = grid[:, [0, 0]]
    same = Gaussians(twice, logvars, twice + noise)
    assert parts(same, exact(same))[TC] == pytest.approx(math.log(20), abs=0.01)


@pytest.mark.slow
def test_means_that_are_gaussian_have_the_mutual_information_of_a_channel():
    """z = m + noise, m ~ N(0, 1), noise ~ N(0, s): I = log(1 + 1 / s) / 2 for each latent, TC = 0."""
    n, s = 4000, 0.25
    rng = np.random.default_rng(0)
    means = rng.normal(size=(n, 2))
    q = Gaussians(means, np.full((n, 2), math.log(s)), means + math.sqrt(s) * rng.normal(size=(n, 2)))
    found = parts(q, exact(q))
    assert found[MI] == pytest.approx(math.log(1 + 1 / s), abs=0.05)  # 4000 draws
    assert found[TC] == pytest.approx(0, abs=0.05)


# ---- minibatches, and what appendix C says of them


def slow_minibatch(q, size):
    """Appendix C, code by code."""
    n, joint, marginals = len(q.means), [], []
    for start in range(0, n - size + 1, size):
        for b in range(start, start + size):
            weights = [1 / n if other == b else (n - 1) / (n * (size - 1)) for other in range(start, start + size)]
            density = normals(q).log_prob(torch.from_numpy(q.z[b])).exp()[start : start + size].numpy()
            joint.append(math.log(sum(w * d.prod() for w, d in zip(weights, density, strict=True))))
            marginals.append(sum(math.log(sum(w * d for w, d in zip(weights, one, strict=True))) for one in density.T))
    return np.array(joint), np.array(marginals)


def test_minibatches_agree_with_slow_loops_and_leave_out_a_rest():
    q = posteriors(n=17)
    found = minibatch(q, 5)
    np.testing.assert_allclose(found, slow_minibatch(q, 5), rtol=1e-9)
    assert len(found.joint) == 15


def test_a_batch_of_all_images_is_exact():
    q = posteriors()
    for size in (40, 1000):
        np.testing.assert_allclose(minibatch(q, size), exact(q), rtol=1e-9)


def test_small_batches_overstate_the_entropy_and_more_so_the_smaller_they_are():
    q = posteriors(n=512)
    entropies = [-minibatch(q, size).joint.mean() for size in (2, 8, 64, 512)]
    assert entropies == sorted(entropies, reverse=True)
    assert entropies[-1] == pytest.approx(-exact(q).joint.mean(), rel=1e-9)


def test_where_a_batch_hardly_overlaps_the_entropy_tends_to_log_n_plus_that_of_a_posterior():
    """Appendix C. Posteriors that each overlap with one of 600 others, which is rarely in the batch."""
    rng = np.random.default_rng(0)
    places = np.repeat(10 * np.arange(300.0), 2)
    means = rng.permutation(places)[:, None]
    logvars = np.zeros_like(means)
    q = Gaussians(means, logvars, means + rng.normal(size=means.shape))
    entropy = (math.log(2 * math.pi) + 1) / 2
    assert -exact(q).joint.mean() == pytest.approx(math.log(300) + entropy, abs=0.15)
    assert -minibatch(q, 2).joint.mean() == pytest.approx(math.log(600) + entropy, abs=0.15)
    assert parts(q, minibatch(q, 2))[MI] == pytest.approx(math.log(600), abs=0.02)
    assert parts(q, exact(q))[MI] == pytest.approx(math.log(300), abs=0.01)


# ---- as a metric


def test_the_metric_draws_from_the_posteriors_of_its_table():
    q = posteriors()
    table = table_of(q.means, None, q.logvars)
    again = drawn(table, 10_000, metric_rng(0, "kl_decomposition"))
    found = score("kl_decomposition", q.means, logvars=q.logvars, batch_size=4)
    assert {key: found[key] for key in PARTS} == parts(again, exact(again))
    assert {key: found[f"{key}_minibatch"] for key in PARTS} == parts(again, minibatch(again, 4))


def test_information_near_its_ceiling_comes_with_a_warning():
    q = posteriors(spread=100)
    with pytest.warns(
        UserWarning, match=r"kl_decomposition_mi is close to log 40 = 3.69, the most that so many images"
    ):
        score("kl_decomposition", q.means, logvars=q.logvars)


def test_samples_bound_the_images():
    q = posteriors(n=200, spread=100)
    with pytest.warns(UserWarning, match="log 20 "):
        assert score("kl_decomposition", q.means, logvars=q.logvars, samples=20)[MI] <= math.log(20)
