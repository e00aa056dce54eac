"""PCL against its logits written out, and on sources that it must find."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

from disentune.frameworks.pcl import FRAMEWORK, Params, Regression, extra, loss, others
from disentune.plugin import AutoEncoder, Batch, Context, Step

SETTING = Context((1, 1, 3), latents=4, batch_size=6, factor_sizes=(4, 4))
N = 20_000


# ---- wrong partners


def test_wrong_partners_are_a_permutation_without_fixed_points_and_all_alike():
    rng = np.random.default_rng(0)
    draws = np.array([others(5, rng) for _ in range(N)])
    assert (np.sort(draws, axis=1) == np.arange(5)).all()
    frequencies = np.array([np.bincount(column, minlength=5) / N for column in draws.T])
    np.testing.assert_allclose(frequencies, (1 - np.eye(5)) / 4, atol=4.5 * math.sqrt(3 / 16 / N))


def test_two_images_swap():
    assert others(2, np.random.default_rng(0)).tolist() == [1, 0]


# ---- the loss


@pytest.fixture
def regression():
    """With every parameter away from where it starts, and logits on both sides of 0 and near it."""
    module = Regression(4, learns_scale=True).double()
    rng = np.random.default_rng(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(scale=0.3, size=tuple(parameter.shape))))
    return module


def slow_loss(earlier, later, wrong, w):
    """Mean cross-entropy and share of right answers, one pair and one feature at a time."""

    def logit(h, other):
        total = float(w["offset"])
        for i in range(len(h)):
            total += abs(w["scale"]) * h[i] ** 2 - abs(
                w["later"][i] * h[i] + w["earlier"][i] * other[i] + w["shift"][i]
            )
        return total

    nats, right = [], []
    for i, h in enumerate(later):
        for other, true in ((earlier[i], True), (earlier[wrong[i]], False)):
            probability = 1 / (1 + np.exp(-logit(h, other)))
            nats.append(-np.log(probability if true else 1 - probability))
            right.append((probability > 0.5) == true)
    return np.mean(nats), np.mean(right)


@pytest.mark.parametrize("features", ["normalised", "raw"])
@torch.no_grad()
def test_the_loss_is_the_cross_entropy_of_true_and_wrong_pairs(features, regression, model, batch, step):
    h = torch.cat([model.encode(x).mean for x in (batch.x, batch.pair)]).numpy()
    if features == "normalised":
        h = (h - h.mean(axis=0)) / np.sqrt(h.var(axis=0) + 1e-5)  # torch's own 1e-5
    weights = {name: value.numpy() for name, value in regression.state_dict().items()}
    nats, right = slow_loss(h[:6], h[6:], others(6, np.random.default_rng(0)), weights)
    losses = loss(model, batch, Params(features=features), replace(step(), extra=regression))
    assert losses.latent.item() == losses.parts["contrast"].item() == pytest.approx(nats)
    assert losses.watch["accuracy"].item() == pytest.approx(right)
    assert losses.recon.item() == 0


def test_it_starts_where_the_authors_start():
    """h = (1, 2) and h' = (0, 4): -|1 - 0| - |2 - 4| + 1 + 4 = 2."""
    regression = extra(replace(SETTING, latents=2), Params(), torch.Generator(), None)
    assert regression(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).tolist() == [2]


def test_squares_never_count_against_a_pair():
    h = torch.tensor([[1.0, 2.0, -1.0, 0.5]])
    regression = Regression(4, learns_scale=True)
    logit = regression(h, h)
    with torch.no_grad():
        regression.scale.neg_()
    assert torch.equal(regression(h, h), logit)


def test_raw_features_leave_the_weight_of_the_squares_alone(step_for):
    names = [{*dict(step_for(FRAMEWORK, Params(features=f)).extra.named_parameters())} for f in ("normalised", "raw")]
    assert names[0] - names[1] == {"scale"}


def test_only_the_encoders_means_learn(model, batch, step_for):
    loss(model, batch, Params(), step_for(FRAMEWORK, Params())).latent.backward()
    assert all(parameter.grad is None for parameter in model.decoder.parameters())
    means, logvars = list(model.encoder.parameters())[-2].grad.chunk(2)
    assert means.all()
    assert not logvars.any()


def test_a_shift_and_scale_of_normalised_features_changes_nothing(regression, model, batch, step):
    def value(features):
        return loss(model, batch, Params(features=features), replace(step(), extra=regression)).latent

    before = [value(features) for features in ("normalised", "raw")]
    with torch.no_grad():
        last = list(model.encoder.parameters())[-2:]
        last[0].mul_(30)
        last[1].mul_(30).add_(7)
    torch.testing.assert_close(value("normalised"), before[0], rtol=1e-3, atol=0)  # torch adds 1e-5 to variances
    assert value("raw") > 2 * before[1]


def test_a_batch_must_have_something_to_shuffle():
    FRAMEWORK.check(replace(SETTING, batch_size=2), Params())
    with pytest.raises(ValueError, match="batch_size must be >= 2"):
        FRAMEWORK.check(replace(SETTING, batch_size=1), Params())


# ---- sources


def sources(rng, dependence, n=N, d=3):
    """Two moments (n, d) of AR(1) processes of unit variance with Laplace innovations."""
    now = np.zeros((n, d))
    for _ in range(30):
        before, now = now, dependence * now + rng.laplace(scale=math.sqrt((1 - dependence**2) / 2), size=(n, d))
    return before, now


def correlation(codes, truth):
    """Mean absolute correlation of the best matching of codes and sources."""
    d = codes.shape[1]
    table = np.abs(np.corrcoef(codes.T, truth.T)[:d, d:])
    return table[linear_sum_assignment(-table)].mean()


def trained(dependence, seed, steps=500):
    """Losses of the last 100 steps, and the correlation before and after training a linear encoder of a mixture."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    before, now = sources(rng, dependence)
    mixing = rng.normal(size=(3, 3))
    x, pair = (torch.from_numpy(s @ mixing.T).reshape(N, 1, 1, 3) for s in (before, now))
    model = AutoEncoder(nn.Sequential(nn.Flatten(), nn.Linear(3, 6)), nn.Identity(), 3).double()
    nn.init.normal_(model.encoder[1].weight, generator=generator)
    nn.init.zeros_(model.encoder[1].bias)
    regression = Regression(3, learns_scale=True).double()
    optimiser = torch.optim.Adam([*model.encoder.parameters(), *regression.parameters()], lr=0.02)
    start, losses = correlation(model.encode(pair).mean.detach().numpy(), now), []
    for number in range(1, steps + 1):
        rows = rng.integers(N, size=256)
        batch = Batch(x[rows], pair[rows], lambda output, target: output, N)
        latent = loss(model, batch, Params(), Step(number, steps, rng, extra=regression)).latent
        optimiser.zero_grad()
        latent.backward()
        optimiser.step()
        losses.append(latent.item())
    return np.mean(losses[-100:]), start, correlation(model.encode(pair).mean.detach().numpy(), now)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_mixed_sources_are_found(seed):
    """A poor start can end, or stay long, where two features follow one source; these two do not."""
    contrast, start, end = trained(dependence=0.7, seed=seed)
    assert contrast < 0.75 * math.log(2)
    assert start < 0.9
    assert end > 0.99


def test_without_dependence_pairs_cannot_be_told_and_no_source_is_found():
    """No classifier can then do better than ln 2; the mean over 100 steps of 256 pairs strays 1 % at most."""
    contrast, _, end = trained(dependence=0.0, seed=0)
    assert contrast > 0.99 * math.log(2)
    assert end < 0.9
