"""beta-VAE: Higgins et al., ICLR 2017, Eq. 4: reconstruction + beta * KL; beta 1 is the VAE, 0 an autoencoder."""

from pydantic import Field

from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Step


class Params(Frozen):
    """beta weights the KL; its meaning depends on `loss_scale`."""

    beta: float = Field(ge=0, description="weight of the KL; its meaning depends on loss_scale")


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + beta * KL(q(z|x) || N(0, 1))."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl = nats_per_image(kl_to_prior(q))
    return Losses(recon, params.beta * kl, {"kl": kl})


FRAMEWORK = Framework(name="beta_vae", params=Params, loss=loss)
