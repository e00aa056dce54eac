"""ControlVAE: Shao et al., ICML 2020, Algorithm 1: VAE with a PI controller that adjusts beta to reach a target KL."""

from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from disentune.maths.exact import in_float64
from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, State, Step


class Params(Frozen):
    """beta rises while the KL exceeds `kl_target` (nats per image, whatever the `loss_scale`) and falls below it.

    For disentangling, the paper raises the target from 0.5 by 0.15 every 5000 updates up to 18; a close schedule is
    `kl_target: {schedule: linear, initial: 0.5, final: 18, end: 583333}`. For images the target is fixed, with
    beta_min 0, beta_max 1 and ki 0.0001. Both gains are positive here, as in the paper; its code has ki < 0.

    `anti_windup` sets when the integral pauses. `conditional`: while beta is beyond a bound and the error pushes it
    further. `released`: whenever the last beta before clipping was below beta_min, as in the authors' code; there, a
    target more than kp / ki nats above the first KL takes the integral below -kp, and beta stays at beta_min forever.
    """

    kl_target: float = Field(ge=0, description="nats per image")
    kp: float = Field(0.01, ge=0, description="gain of the error of this step")
    ki: float = Field(0.001, ge=0, description="gain of the sum of errors")
    beta_min: float = Field(1.0, ge=0, description="smallest beta")
    beta_max: float | None = Field(None, gt=0, description="largest beta; null: no limit")
    anti_windup: Literal["conditional", "released"] = Field(
        "conditional",
        description="when the sum of errors pauses: while beta is beyond a bound, or as in the authors' code",
    )

    @field_validator("beta_max")
    @classmethod
    def _above_beta_min(cls, beta_max: float | None, others: ValidationInfo) -> float | None:
        beta_min = others.data.get("beta_min", 0.0)
        if beta_max is not None and beta_max <= beta_min:
            raise ValueError(f"must be > beta_min, {beta_min:g}, but is {beta_max:g}")
        return beta_max


def start(params: Params) -> State:
    """The initial state of the controller, where beta is beta_min; in float64, whatever the model's precision."""
    return {
        "integral": torch.zeros((), dtype=torch.float64),
        "beta": torch.tensor(params.beta_min, dtype=torch.float64),
    }


def rests(error: Tensor, beta: Tensor, params: Params) -> Tensor:
    """Whether the integral keeps its value, given the last beta before clipping; a boolean scalar."""
    low = beta < params.beta_min
    if params.anti_windup == "released":
        return low
    high = beta > (float("inf") if params.beta_max is None else params.beta_max)
    return (low & (error > 0)) | (high & (error < 0))


def controlled(kl: Tensor, state: State, params: Params) -> State:
    """One step of the controller: its new integral, and its new beta before clipping."""
    error = params.kl_target - in_float64(kl)
    integral, beta = (state[name].to(error.device) for name in ("integral", "beta"))
    integral = torch.where(rests(error, beta, params), integral, integral - params.ki * error)
    return {"integral": integral, "beta": params.kp * torch.sigmoid(-error) + integral + params.beta_min}


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + beta * KL, where beta already depends on this step's KL, without a gradient."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    state = controlled(kl, step.state, params)
    beta = state["beta"].clamp(params.beta_min, params.beta_max).to(kl)
    return Losses(recon, beta * kl, {"kl": kl}, {"beta": beta}, state=state)


FRAMEWORK = Framework(name="control_vae", params=Params, loss=loss, watch=("beta",), state=start)
