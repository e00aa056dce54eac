"""Adaptive sharing, and both frameworks that use it, against a slow reading one pair and one latent at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from disentune.frameworks import ada_gvae, ada_ml_vae, beta_vae
from disentune.frameworks.adaptive import aggregate, below_threshold, shared_latents
from disentune.plugin import Posterior


def posterior(seed, n=7, d=5):
    return Posterior(*torch.from_numpy(np.random.default_rng(seed).normal(size=(2, n, d))))


def slow_divergence(a, b, kind):
    return kl_divergence(a, b) if kind == "kl" else (kl_divergence(a, b) + kl_divergence(b, a)) / 2


def gvae(m0, v0, m1, v1):
    return (m0 + m1) / 2, (v0 + v1) / 2


def as_published(m0, v0, m1, v1):
    return m1, (v0 + v1) / 2


def ml_vae(m0, v0, m1, v1):
    return (m0 * v1 + m1 * v0) / (v0 + v1), 2 * v0 * v1 / (v0 + v1)


def slowly_aggregated(q, p, ratio, kind, average):
    """Means and variances of both posteriors of every pair, (2n, d)."""
    first, second = [], []
    for m0, l0, m1, l1 in zip(q.mean, q.logvar, p.mean, p.logvar, strict=True):
        delta = slow_divergence(Normal(m0, l0.exp().sqrt()), Normal(m1, l1.exp().sqrt()), kind)
        threshold = delta.min() + ratio * (delta.max() - delta.min())
        for d in range(len(delta)):
            own = [(m0[d], l0[d].exp()), (m1[d], l1[d].exp())]
            if delta[d] < threshold:
                own = [average(*own[0], *own[1])] * 2
            first.append(own[0])
            second.append(own[1])
    means, variances = torch.tensor(first + second, dtype=torch.float64).T
    return means.reshape(-1, q.mean.shape[1]), variances.reshape(-1, q.mean.shape[1])


FRAMEWORKS = {
    "ada_gvae": (ada_gvae, {}, gvae),
    "ada_gvae as published": (ada_gvae, {"averaging": "as_published"}, as_published),
    "ada_ml_vae": (ada_ml_vae, {}, ml_vae),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return FRAMEWORKS[request.param]


@pytest.mark.parametrize("divergence", ["symmetric_kl", "kl"])
@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 1.0])
@torch.no_grad()
def test_the_loss_is_that_of_the_paper(framework, ratio, divergence, model, batch, step):
    module, settings, average = framework
    q, p = model.encode(batch.x), model.encode(batch.pair)
    means, variances = slowly_aggregated(q, p, ratio, divergence, average)
    z = means + variances.sqrt() * torch.from_numpy(np.random.default_rng(0).standard_normal(means.shape))
    n = len(batch.x)
    halves = [batch.recon(model.decode(z[:n]), batch.x), batch.recon(model.decode(z[n:]), batch.pair)]
    kl = kl_divergence(Normal(means, variances.sqrt()), Normal(0.0, 1.0)).sum(dim=1)
    losses = module.loss(model, batch, module.Params(beta=2, ratio=ratio, divergence=divergence, **settings), step())
    torch.testing.assert_close(losses.recon, sum(halves) / 2)
    torch.testing.assert_close(losses.latent, 2 * (kl[:n].mean() + kl[n:].mean()) / 2)


@pytest.mark.parametrize("divergence", ["symmetric_kl", "kl"])
def test_the_masks_are_those_of_disentanglement_lib(divergence):
    """Its rule: of two equal bins from a pair's smallest to its largest divergence, the upper one is not shared."""
    q, p = posterior(0, n=200), posterior(1, n=200)
    for row, shared in enumerate(shared_latents(q, p, 0.5, divergence)):
        a, b = (Normal(one.mean[row], torch.exp(one.logvar[row] / 2)) for one in (q, p))
        delta = slow_divergence(a, b, divergence).numpy()
        bins = np.digitize(delta, np.linspace(delta.min(), delta.max(), 3)[1:2])
        assert shared.tolist() == (bins == 0).tolist()


def test_the_kl_is_that_of_the_first_to_the_second():
    """A wide and a narrow posterior: KL(wide || narrow) is the larger, so a swap shares the other latent."""
    wide, narrow, zero = torch.tensor(2.0), torch.tensor(-2.0), torch.zeros(1, 2)
    first = Posterior(zero, torch.stack([wide, narrow])[None])
    second = Posterior(zero, torch.stack([narrow, wide])[None])
    assert shared_latents(first, second, 0.5, "kl").tolist() == [[False, True]]
    assert shared_latents(second, first, 0.5, "kl").tolist() == [[True, False]]
    assert shared_latents(first, second, 0.5, "symmetric_kl").tolist() == [[False, False]]  # equal: none is below


@pytest.mark.parametrize(
    ("deltas", "own", "average", "expected"),
    [([0, 0.1], 1.0, 0.0, [0, 1]), ([0] * 5 + [1] * 5, 0.0, 1.0, [1] * 5 + [0] * 5)],
)
def test_the_golden_masks_of_disentanglement_lib(deltas, own, average, expected):
    shared = below_threshold(torch.tensor([deltas]).double(), 0.5)
    own, average = (Posterior(*torch.full((2, 1, len(deltas)), value)) for value in (own, average))
    both = aggregate(own, own, average, shared)
    assert both.mean.tolist() == both.logvar.tolist() == [expected, expected]


def test_a_latent_is_shared_below_the_midpoint_only():
    divergence = torch.tensor([[0.0, 0.125, 0.5, 2.0]])
    assert below_threshold(divergence, 0.5).tolist() == [[True, True, True, False]]
    assert below_threshold(divergence, 0.25).tolist() == [[True, True, False, False]]  # strictly below 0.5
    assert below_threshold(divergence, 0.0).tolist() == [[False] * 4]
    assert below_threshold(divergence, 1.0).tolist() == [[True, True, True, False]]


def test_thresholds_belong_to_one_pair():
    """The second pair's larger divergences do not move the first pair's threshold."""
    assert below_threshold(torch.tensor([[0.0, 1.0], [1.0, 100.0]]), 0.5).tolist() == [[True, False], [True, False]]


def test_equal_images_share_nothing_and_have_the_kl_of_beta_vae(framework, model, batch, step):
    module, settings, _ = framework
    ours = module.loss(model, replace(batch, pair=batch.x), module.Params(beta=2, **settings), step())
    torch.testing.assert_close(ours.latent, beta_vae.loss(model, batch, beta_vae.Params(beta=2), step()).latent)


def test_without_sharing_the_kl_is_the_mean_of_two_beta_vaes(framework, model, batch, step):
    module, settings, _ = framework
    alone = [replace(batch, x=x) for x in (batch.x, batch.pair)]
    separate = [beta_vae.loss(model, one, beta_vae.Params(beta=1), step()).latent for one in alone]
    ours = module.loss(model, batch, module.Params(beta=1, ratio=0.0, **settings), step())
    torch.testing.assert_close(ours.latent, sum(separate) / 2)


@pytest.mark.parametrize("module", [ada_gvae, ada_ml_vae])
def test_the_order_of_a_pair_does_not_matter_to_the_kl(module, model, batch, step):
    swapped = replace(batch, x=batch.pair, pair=batch.x)
    first, second = (module.loss(model, one, module.Params(beta=1), step()).latent for one in (batch, swapped))
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("module", [ada_gvae, ada_ml_vae])
def test_an_unknown_pair_law_is_refused(module):
    with pytest.raises(ValueError, match="original"):
        module.Params(beta=1, pairs="other")


def test_the_largest_divergence_is_never_shared_even_where_the_threshold_rounds_up():
    rows = torch.rand(2000, 8, generator=torch.Generator().manual_seed(0))
    shared = below_threshold(rows, 1.0)
    assert not shared.gather(1, rows.argmax(dim=1, keepdim=True)).any()
    assert (shared.sum(dim=1) == 7).all()
