"""The decomposition VAE against its terms written out, and the theorems of its paper."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, StudentT, kl_divergence

from disentune.frameworks import beta_vae
from disentune.frameworks.decomposition_vae import FRAMEWORK, Params, loss
from disentune.frameworks.divergences import mmd_imq
from disentune.frameworks.priors import AnisotropicLaw
from disentune.learn.training import Training
from disentune.maths.gaussian import sample
from disentune.plugin import Posterior
from disentune.spec.config import Invalid, TrialConfig

PRIORS = {
    "isotropic": {"name": "isotropic", "scale": 2},
    "fixed": {"name": "anisotropic"},
    "learned": {"name": "anisotropic", "learned": True},
    "student_t": {"name": "student_t", "nu": 4},
    "spike_and_slab": {"name": "spike_and_slab", "share": 0.6},
}
DIVERGENCES = ("inclusive_kl", "mmd_imq")


def deviation(q):
    return torch.exp(q.logvar / 2)


# ---- the terms


@torch.no_grad()
def test_terms_are_those_of_the_paper(model, batch, step):
    """Student's t, which has no closed KL: one sample of each posterior, then one draw of the prior an image."""
    q, rng = model.encode(batch.x), np.random.default_rng(0)
    z = q.mean + deviation(q) * torch.from_numpy(rng.standard_normal((6, 4)))
    prior = Independent(StudentT(torch.full((4,), 5.0, dtype=torch.float64)), 1)
    kl = (Independent(Normal(q.mean, deviation(q)), 1).log_prob(z) - prior.log_prob(z)).mean()
    points = torch.from_numpy(rng.standard_t(5, size=(6, 4)))
    aggregate = torch.stack(
        [Independent(Normal(q.mean, deviation(q)), 1).log_prob(point).exp().mean() for point in points]
    )
    gap = (prior.log_prob(points) - aggregate.log()).mean()
    losses = loss(model, batch, Params(beta=4, alpha=3, prior={"name": "student_t", "nu": 5}), step())
    torch.testing.assert_close(losses.recon, (model.decode(z) - batch.x).square().sum(dim=(1, 2, 3)).mean())
    torch.testing.assert_close(losses.parts["kl"], kl)
    torch.testing.assert_close(losses.parts["divergence"], gap)
    torch.testing.assert_close(losses.latent, 4 * kl + 3 * gap)


@torch.no_grad()
def test_the_anisotropic_law_of_the_data_is_the_prior_of_every_term(model, batch, step_for):
    params = Params(beta=2, alpha=3, prior=PRIORS["fixed"], divergence="mmd_imq")
    step = step_for(FRAMEWORK, params)
    spread = (4 * torch.softmax(step.extra.logits, dim=0)).sqrt()
    q, rng = model.encode(batch.x), np.random.default_rng(0)
    z = sample(q, rng)
    losses = loss(model, batch, params, step)
    kl = kl_divergence(Normal(q.mean, deviation(q)), Normal(torch.zeros(4), spread)).sum(dim=1).mean()
    torch.testing.assert_close(losses.parts["kl"], kl)
    points = spread * torch.from_numpy(rng.standard_normal((6, 4)))
    torch.testing.assert_close(losses.parts["divergence"], mmd_imq(points, z))
    assert spread.max() > 1.01 > 0.99 > spread.min()  # so that N(0, 1) would not pass


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("prior", PRIORS)
def test_slopes_in_alpha_and_beta_are_the_divergence_and_the_kl(prior, divergence, model, batch, step_for):
    def losses(alpha, beta):
        params = Params(beta=beta, alpha=alpha, prior=PRIORS[prior], divergence=divergence)
        return loss(model, batch, params, step_for(FRAMEWORK, params))

    low = losses(1, 1)
    torch.testing.assert_close((losses(3, 1).latent - low.latent) / 2, low.parts["divergence"])
    torch.testing.assert_close((losses(1, 3).latent - low.latent) / 2, low.parts["kl"])
    assert torch.equal(losses(3, 3).recon, low.recon)
    assert low.parts["divergence"].abs() > 1e-3


def test_without_alpha_and_with_the_usual_prior_it_is_the_beta_vae_to_the_bit(model, batch, step):
    grads = []
    for ours in (
        loss(model, batch, Params(beta=3), step()),
        beta_vae.loss(model, batch, beta_vae.Params(beta=3), step()),
    ):
        model.zero_grad()
        (ours.recon + ours.latent).backward()
        grads.append([ours.recon, ours.latent, ours.parts["kl"], *(p.grad.clone() for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_without_alpha_the_divergence_is_seen_and_moves_nothing(divergence, model, batch, step):
    seen, moved = (loss(model, batch, Params(beta=0, alpha=a, divergence=divergence), step()) for a in (0, 1))
    assert torch.equal(seen.parts["divergence"], moved.parts["divergence"])
    assert seen.latent == 0
    seen.latent.backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    moved.latent.backward()
    assert all(p.grad.any() for p in model.encoder.parameters())


def test_without_alpha_an_infinite_divergence_is_no_loss(model, batch, step):
    """Posteriors without any spread: beta 0 may drive them there."""
    encode = lambda x: Posterior(model.encode(x).mean, torch.full((len(x), 4), -1e3, dtype=torch.float64))  # noqa: E731
    losses = loss(Networks(encode, model.decode), batch, Params(beta=0), step())
    assert losses.parts["divergence"].isinf()
    assert losses.latent == 0


def test_only_the_anisotropic_prior_brings_a_module(step_for):
    kept = {name: step_for(FRAMEWORK, Params(beta=1, prior=prior)).extra for name, prior in PRIORS.items()}
    assert {name for name, module in kept.items() if module is not None} == {"fixed", "learned"}
    assert isinstance(kept["learned"], AnisotropicLaw)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_divergence_alone_moves_the_learned_prior(divergence, model, batch, step_for):
    """By its whole slope, with the noise held: the draws from the prior move with it."""
    params = Params(beta=0, alpha=1, prior=PRIORS["learned"], divergence=divergence)

    def gap(nudge):
        step = step_for(FRAMEWORK, params)
        step.extra.logits.data[0] += nudge
        return loss(model, batch, params, step).latent, step.extra.logits

    value, logits = gap(0.0)
    value.backward()
    slope = (gap(1e-5)[0] - gap(-1e-5)[0]).item() / 2e-5
    assert logits.grad[0].item() == pytest.approx(slope, rel=1e-5)
    assert abs(slope) > 1e-3
    assert logits.grad.sum().item() == pytest.approx(0, abs=1e-9)  # a common shift changes no share


# ---- the theorems


class Networks(nn.Module):
    """An encoder and a decoder given as functions."""

    def __init__(self, encode, decode):
        super().__init__()
        self.encode, self.decode = encode, decode


class Turned:
    """A generator whose normal draws are turned by a rotation."""

    def __init__(self, rng, rotation):
        self.rng, self.rotation = rng, rotation

    def standard_normal(self, size):
        return self.rng.standard_normal(size) @ self.rotation.T


def rotation(d=4):
    return torch.linalg.qr(torch.from_numpy(np.random.default_rng(7).normal(size=(d, d))))[0]


@pytest.mark.parametrize(
    ("prior", "divergence", "invariant"),
    [
        ("isotropic", "inclusive_kl", True),
        ("isotropic", "mmd_imq", False),  # it looks at each latent by itself
        ("fixed", "inclusive_kl", False),
    ],
)
@torch.no_grad()
def test_a_round_prior_cannot_tell_a_rotation(prior, divergence, invariant, model, batch, step_for):
    """Theorem 2: mean -> R mean, cov -> R cov R^T = cov for a round posterior, decoder's input -> R^T z."""
    turn = rotation()

    def rounded(x):
        q = model.encode(x)
        return Posterior(q.mean, q.logvar.mean(dim=1, keepdim=True).expand_as(q.mean))

    def turned(x):
        q = rounded(x)
        return Posterior(q.mean @ turn.T, q.logvar)

    params = Params(beta=2, alpha=3, prior=PRIORS[prior], divergence=divergence)
    step = step_for(FRAMEWORK, params)
    before = loss(Networks(rounded, model.decode), batch, params, step)
    rng = Turned(np.random.default_rng(0), turn.numpy())
    after = loss(Networks(turned, lambda z: model.decode(z @ turn)), batch, params, replace(step, rng=rng))
    torch.testing.assert_close(after.recon, before.recon)
    assert torch.allclose(after.latent, before.latent) == invariant
    assert torch.allclose(after.parts["kl"], before.parts["kl"]) == (prior == "isotropic")


@torch.no_grad()
@pytest.mark.parametrize("prior", ["isotropic", "fixed"])
def test_beta_is_an_entropy_bonus_after_rescaling_the_codes(prior, model, batch, step_for):
    """Corollary 1, as losses: L_beta = L' - (beta - 1) / 2 log|S'| - c, with mean' = sqrt(beta) mean and S' = beta S.

    beta KL(N(m, S) || N(0, P)) - KL(N(m', S') || N(0, P)) is, with D latents,
    -(beta - 1) / 2 (D - log|P| + log|S'|) + D beta / 2 log(beta).
    """
    beta, d = 3.0, 4

    def rescaled(x):
        q = model.encode(x)
        return Posterior(q.mean * math.sqrt(beta), q.logvar + math.log(beta))

    def losses(network, beta):
        params = Params(beta=beta, prior=PRIORS[prior])
        step = step_for(FRAMEWORK, params)
        return loss(network, batch, params, step), step

    ours, step = losses(model, beta)
    plain, _ = losses(Networks(rescaled, lambda z: model.decode(z / math.sqrt(beta))), 1.0)
    torch.testing.assert_close(plain.recon, ours.recon)
    log_prior = step.extra._normal().logvar.sum() if prior == "fixed" else d * math.log(2)
    log_posterior = rescaled(batch.x).logvar.sum(dim=1).mean()
    bonus = (beta - 1) / 2 * (d - log_prior + log_posterior) - d * beta / 2 * math.log(beta)
    torch.testing.assert_close(ours.latent, plain.latent - bonus)


# ---- whole trials


def trial(latents=2, batch_size=8, steps=12, seed=3, **framework) -> TrialConfig:
    return TrialConfig.parse(
        {
            "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 1},
            "model": {"name": "mlp", "width": 8, "latents": latents},
            "framework": {"name": "decomposition_vae", **framework},
            "recon": {"name": "mse"},
            "training": {"steps": steps, "batch_size": batch_size, "learning_rate": 1e-2, "log_every": steps // 3},
            "loss_scale": "sum",
            "seed": seed,
        }
    )


def rows(training, until=None):
    return [progress.row for progress in training.run(until) if progress.row]


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_resuming_a_trial_with_the_mixture_changes_nothing(divergence):
    config = trial(beta=0.5, alpha=2, prior="mixture", divergence=divergence)
    straight = Training(config)
    expected = rows(straight)
    first = Training(config)
    before, buffer = rows(first, until=5), io.BytesIO()
    torch.save(first.state(), buffer)
    buffer.seek(0)
    second = Training(config, torch.load(buffer, weights_only=True))
    assert before + rows(second) == expected
    assert all(torch.equal(a, b) for a, b in zip(second.model.parameters(), straight.model.parameters(), strict=True))


def test_a_row_adds_up_from_its_parts():
    for row in rows(Training(trial(beta=0.5, alpha=2, prior="mixture"))):
        metrics = row["metrics"]
        assert metrics["loss"] == pytest.approx(metrics["recon"] + 0.5 * metrics["kl"] + 2 * metrics["divergence"])


def test_alpha_may_start_from_nothing():
    ramp = {"schedule": "linear", "initial": 0, "final": 2, "begin": 4, "end": 8}
    early, _, late = (row["metrics"] for row in rows(Training(trial(beta=0.5, alpha=ramp, prior="mixture"))))
    assert early["loss"] == pytest.approx(early["recon"] + 0.5 * early["kl"])
    assert late["loss"] == pytest.approx(late["recon"] + 0.5 * late["kl"] + 2 * late["divergence"])


def test_the_learned_prior_is_trained_with_the_model_and_the_fixed_one_is_not():
    after = {}
    for name in ("fixed", "learned"):
        training = Training(trial(beta=1, prior=PRIORS[name]))
        start = training.extra.logits.detach().clone()
        rows(training)
        after[name] = torch.equal(training.extra.logits, start)
        assert training.extra._normal().logvar.exp().mean().item() == pytest.approx(1)
    assert after == {"fixed": True, "learned": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    "divergence", [pytest.param(name, marks=[pytest.mark.long] if name == "mmd_imq" else []) for name in DIVERGENCES]
)
def test_alpha_improves_the_match_with_the_mixture(divergence):
    """Section 6.2: increasing alpha always improves the match between q(z) and p(z)."""
    framework = {"beta": 0.1, "prior": "mixture", "divergence": divergence}
    gaps = [
        rows(Training(trial(batch_size=32, steps=300, alpha=alpha, **framework)))[-1]["metrics"]["divergence"]
        for alpha in (0, 100)
    ]
    assert gaps[1] < gaps[0] / 2


# ---- what is refused


def refusals(**changes):
    with pytest.raises(Invalid) as caught:
        trial(**changes)
    return {mistake.key: mistake.text for mistake in caught.value.mistakes}


def test_a_prior_that_does_not_fit_is_refused_before_anything_runs():
    assert "2 latents, but model.latents is 3" in refusals(latents=3, beta=1, prior="mixture")["framework"]
    assert "needs 10 principal components" in refusals(latents=10, beta=1, prior="anisotropic")["framework"]


def test_mmd_needs_two_images():
    text = refusals(batch_size=1, beta=1, divergence="mmd_imq")["framework"]
    assert text.startswith("divergence: ")
    assert "batch_size" in text
    trial(batch_size=1, beta=1)


def test_mistakes_in_a_prior_are_named_by_their_place():
    assert refusals(beta=1, prior="laplace").keys() == {"framework.prior.name"}
    assert refusals(beta=1, prior={"name": "student_t", "nu": 0}).keys() == {"framework.prior.nu"}
    assert refusals(beta=1, divergence="jensen").keys() == {"framework.divergence"}
