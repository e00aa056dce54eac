"""iVAE: its KL by hand and by scipy, how it uses the factors, and the VAE that is left without them."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from disentune.errors import DataError
from disentune.frameworks import beta_vae
from disentune.frameworks.ivae import FRAMEWORK, Mixture, Params, check, loss, posterior
from disentune.learn.evaluation import encoded, table_from
from disentune.learn.image_distances import finite_codes
from disentune.learn.training import Training
from disentune.maths.gaussian import kl
from disentune.plugin import Context, Posterior
from disentune.spec.config import Invalid
from tiny_trials import tiny

PARAMS = Params(labels=["x_G"], width=6)
NAMES = ("x_R", "x_G", "y_B")
SETTING = Context((2, 4, 5), latents=4, batch_size=6, factor_sizes=(10, 10, 10), factor_names=NAMES)


def of(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


@pytest.mark.parametrize(("p", "nats"), [(1, 0.44315), (0.5, 0.34657), (2, 0.66472)])
def test_the_kl_of_one_latent_is_that_computed_by_hand(p, nats):
    """Mean 0.5 and variance 0.25 against N(0, p): (ln(p / v) + (v + m^2) / p - 1) / 2."""
    found = kl(Posterior(of(0.5), of(math.log(0.25))), Posterior(of(0.0), of(math.log(p))))
    assert found.item() == pytest.approx(nats, abs=5e-6)
    assert found.item() == pytest.approx((math.log(p / 0.25) + (0.25 + 0.25) / p - 1) / 2)


def test_its_loss_is_its_equation(model, batch, step_for):
    step = step_for(FRAMEWORK, PARAMS)
    losses = loss(model, batch, PARAMS, step)
    labels = ((batch.factors[:, NAMES.index("x_G")] + 1) / 2 * 9).round().long()
    q, total = model.encode(batch.x), 0.0
    for n, label in enumerate(labels.tolist()):
        u = torch.eye(10).double()[label]
        mean, logvar = (step.extra.posterior(u)).chunk(2)
        m, v = q.mean[n] + mean, (q.logvar[n] + logvar).exp()
        p = step.extra.prior(u).exp()
        total += 0.5 * (torch.log(p / v) + (v + m**2) / p - 1).sum().item() / len(labels)
    assert losses.latent.item() == pytest.approx(total)


def test_without_what_the_factors_add_it_is_the_vae(model, batch, step_for):
    step = step_for(FRAMEWORK, PARAMS)
    with torch.no_grad():
        for parameter in step.extra.parameters():
            parameter.zero_()
    ours = loss(model, batch, PARAMS, step)
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step_for(FRAMEWORK, PARAMS))
    torch.testing.assert_close(ours.recon, theirs.recon)
    torch.testing.assert_close(ours.latent, theirs.latent)


def test_only_the_listed_factors_matter(model, batch, step_for):
    from dataclasses import replace

    def latent(place):
        factors = batch.factors.clone()
        factors[:, place] = -factors[:, place]
        return loss(model, replace(batch, factors=factors), PARAMS, step_for(FRAMEWORK, PARAMS)).latent

    plain = loss(model, batch, PARAMS, step_for(FRAMEWORK, PARAMS)).latent
    assert torch.equal(latent(NAMES.index("x_R")), plain)
    assert not torch.equal(latent(NAMES.index("x_G")), plain)


def test_labels_come_back_from_factors_spread_over_their_range(step_for):
    params = Params(labels=["y_B", "x_R"], width=6)
    extra = step_for(FRAMEWORK, params).extra
    labels = np.array([[3, 0, 9], [0, 5, 4]])
    rows = extra.one_hot(torch.from_numpy(2 * labels / 9 - 1))
    assert rows.nonzero()[:, 1].reshape(2, 2).tolist() == [[9, 10 + 3], [4, 10 + 0]]


def test_the_prior_of_all_images_is_a_mixture_over_every_combination(step_for):
    params = Params(labels=["x_R", "y_B"], width=6)
    extra = step_for(FRAMEWORK, params).extra
    extra.sizes = [10, 10]
    z = np.random.default_rng(0).normal(size=(3, 4))
    densities = []
    for a, b in itertools.product(range(10), repeat=2):
        u = torch.cat([torch.eye(10)[a], torch.eye(10)[b]]).double()
        scale = (extra.prior(u) / 2).exp().detach().numpy()
        densities.append(np.prod(stats.norm.pdf(z, 0, scale), axis=1))
    found = Mixture(extra).log_density(torch.from_numpy(z))
    np.testing.assert_allclose(found.detach(), np.log(np.mean(densities, axis=0)))
    drawn = Mixture(extra).sample(torch.empty(4000, 4, dtype=torch.float64), np.random.default_rng(0))
    variances = np.mean([
        extra.prior(torch.cat([torch.eye(10)[a], torch.eye(10)[b]]).double()).exp().detach().numpy()
        for a, b in itertools.product(range(10), repeat=2)
    ], axis=0)  # fmt: skip
    np.testing.assert_allclose(drawn.detach().var(dim=0), variances, rtol=0.2)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["xx_G"], "labels: unknown factor 'xx_G'. Did you mean 'x_G'?"),
        (["x_G", "x_G"], "labels must be different, got x_G, x_G"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(labels, reason):
    with pytest.raises(ValueError, match=reason.replace("?", r"\?")):
        check(SETTING, Params(labels=labels))


def test_labels_of_a_trial_are_checked_at_plan_time():
    with pytest.raises(Invalid, match="unknown factor 'colour'"):
        tiny({"name": "ivae", "labels": ["colour"]})


def test_scores_encode_each_image_with_its_factors():
    training = Training(tiny({"name": "ivae", "labels": ["x_G"], "width": 6}))
    for _ in training.run():
        pass
    trained, indices = training.trained_model(), np.array([3, 400, 728])
    codes = table_from(trained, encoded(trained, indices), "mean").codes
    factors = torch.from_numpy(training.known.evenly(indices))
    with torch.no_grad():
        expected = posterior(training.model, trained.images(indices), factors, None, training.extra).mean
    np.testing.assert_allclose(codes, expected.double(), rtol=1e-6)
    with pytest.raises(DataError, match="only images of its data set"):
        finite_codes(trained, trained.images(indices), None)
