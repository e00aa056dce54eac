"""ControlVAE: its controller against a slow scalar reading, and what it does to a KL."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from disentune.frameworks import beta_vae
from disentune.frameworks.control_vae import FRAMEWORK, Params, controlled, loss, start


def driven(params, kls):
    """Betas before clipping, one for each KL."""
    state, betas = start(params), []
    for kl in kls:
        state = controlled(torch.tensor(float(kl), dtype=torch.float64), state, params)
        betas.append(state["beta"].item())
    return betas


def slowly_driven(params, kls):
    """The authors' rules in plain numbers, with their sign of the integral's gain."""
    integral, last, betas = 0.0, params.beta_min, []
    for kl in kls:
        error = params.kl_target - kl
        proportional = params.kp / (1 + math.exp(error))
        moved = integral + (-params.ki) * error
        below, above = last < params.beta_min, params.beta_max is not None and last > params.beta_max
        if params.anti_windup == "released":
            integral = integral if below else moved
        elif not (below and error > 0) and not (above and error < 0):
            integral = moved
        last = proportional + integral + params.beta_min
        betas.append(last)
    return betas


RULES = [
    {"anti_windup": "released"},
    {"anti_windup": "conditional"},
    {"anti_windup": "conditional", "beta_max": 1.05},
    {"anti_windup": "released", "beta_min": 0, "beta_max": 1},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_the_controller_agrees_with_plain_numbers_over_many_steps(rules):
    params = Params(kl_target=6, **rules)
    kls = np.random.default_rng(0).gamma(2.0, 3.0, size=3000)  # mean 6: the error takes both signs, up to -40
    betas = driven(params, kls)
    assert betas == pytest.approx(slowly_driven(params, kls), rel=1e-12)
    assert min(betas) < params.beta_min < max(betas)


def test_errors_of_any_size_leave_it_finite():
    assert all(math.isfinite(beta) for beta in driven(Params(kl_target=5000), [0, 1e6, 0, 1e6]))


def test_the_integral_rests_below_the_floor_and_so_recovers_at_once():
    """Without a rest, 3,000 steps of error 2 would need 3,000 steps of error -2 to undo."""
    betas = driven(Params(kl_target=4), [2] * 3_000 + [6] * 20)
    assert betas[2_999] > 1 - 0.01
    assert betas[-1] > 1


def test_the_integral_rests_above_the_ceiling_too():
    betas = driven(Params(kl_target=4, beta_max=2), [6] * 3_000 + [2] * 20)
    assert 2 < betas[2_999] < 2.01
    assert betas[-1] < 2


@pytest.mark.parametrize(("rule", "recovers"), [("conditional", True), ("released", False)])
def test_a_target_far_off_at_the_start_only_stops_the_released_controller(rule, recovers):
    """First error 18: integral -0.018, below -kp; whatever comes, the released rule then never moves it again."""
    betas = driven(Params(kl_target=18, anti_windup=rule), [0] + [100] * 1000)
    assert (betas[-1] > 2) == recovers
    assert (max(betas) < 1) == (not recovers)


def test_it_brings_a_kl_to_its_target():
    """A VAE whose KL is 20 / beta has KL 8 at beta 2.5."""
    params, kl = Params(kl_target=8), 20.0
    state = start(params)
    for _ in range(6000):
        state = controlled(torch.tensor(kl, dtype=torch.float64), state, params)
        kl = 20 / max(state["beta"].item(), 1.0)
    assert kl == pytest.approx(8, abs=1e-3)
    assert state["beta"].item() == pytest.approx(2.5, abs=1e-3)


def step_with(step, integral, beta=1.0):
    state = {"integral": torch.tensor(integral, dtype=torch.float64), "beta": torch.tensor(beta, dtype=torch.float64)}
    return replace(step(), state=state)


def test_the_loss_is_beta_vaes_with_the_controllers_beta(model, batch, step):
    params = Params(kl_target=1)
    kl = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step()).latent.item()
    beta = 0.01 / (1 + math.exp(1 - kl)) + 2 - 0.001 * (1 - kl) + 1
    losses = loss(model, batch, params, step_with(step, 2.0))
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=beta), step())
    assert losses.watch["beta"].item() == pytest.approx(beta, rel=1e-12)
    torch.testing.assert_close((losses.recon, losses.latent), (theirs.recon, theirs.latent))
    assert losses.state["beta"].item() == pytest.approx(beta, rel=1e-12)
    assert losses.state["integral"].item() == pytest.approx(2 - 0.001 * (1 - kl), rel=1e-12)


@pytest.mark.parametrize(("integral", "clipped"), [(-3.0, 1.0), (0.5, None), (7.0, 2.0)])
def test_beta_is_clipped_in_the_loss_and_not_in_the_state(integral, clipped, model, batch, step):
    losses = loss(model, batch, Params(kl_target=1, beta_max=2), step_with(step, integral))
    assert losses.state["beta"].item() == pytest.approx(1 + integral, abs=0.05)
    assert losses.watch["beta"] == (losses.state["beta"] if clipped is None else clipped)
    torch.testing.assert_close(losses.latent, losses.watch["beta"] * losses.parts["kl"])


def test_beta_carries_no_gradient(model, batch, step):
    losses = loss(model, batch, Params(kl_target=1), step_with(step, 2.0))
    last = [*model.encoder.parameters()][-1]
    slopes = [torch.autograd.grad(one, last, retain_graph=True)[0] for one in (losses.latent, losses.parts["kl"])]
    torch.testing.assert_close(slopes[0], losses.watch["beta"] * slopes[1])
    assert not any(value.requires_grad for value in losses.state.values())


def test_the_state_is_kept_in_double_precision(model, batch, step):
    single = replace(batch, x=batch.x.float())
    losses = loss(model.float(), single, Params(kl_target=1), step_with(step, 2.0))
    assert losses.latent.dtype == torch.float32
    assert {value.dtype for value in losses.state.values()} == {torch.float64}
    assert FRAMEWORK.state(Params(kl_target=1, beta_min=0.5))["beta"] == 0.5


@pytest.mark.parametrize("beta_max", [0.5, 1.0])
def test_a_ceiling_under_the_floor_is_refused(beta_max):
    with pytest.raises(ValueError, match=r"beta_max\n.*must be > beta_min, 1,"):
        Params(kl_target=1, beta_max=beta_max)
