"""AnnealedVAE: Burgess et al., arXiv 2018, Eq. 8: reconstruction + gamma * |KL - C|, where C grows with the step."""

from pydantic import Field

from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Count, Framework, Frozen, Losses, Step


class Params(Frozen):
    """The capacity C grows linearly from 0 to `c_max` over `ramp` updates, then stays constant.

    C is in nats per image, whatever the `loss_scale`. The paper: gamma 1000, c_max 25, ramp 100,000 on dSprites.
    """

    c_max: float = Field(ge=0, description="capacity at the end of the ramp, nats per image")
    gamma: float = Field(1000.0, ge=0, description="weight of the KL's distance from the capacity")
    ramp: Count = Field(100_000, ge=1, description="updates until the capacity reaches c_max")


def capacity(updates: int, c_max: float, ramp: int) -> float:
    """C after `updates` updates, in nats per image."""
    return min(c_max, c_max * updates / ramp)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + gamma * |KL - C|, where the KL is the batch's mean: single images may lie on both sides."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    target = kl.new_tensor(capacity(step.number - 1, params.c_max, params.ramp))
    return Losses(recon, params.gamma * (kl - target).abs(), {"kl": kl}, {"capacity": target})


FRAMEWORK = Framework(name="annealed_vae", params=Params, loss=loss, watch=("capacity",))
