"""DIP-VAE-II: Kumar et al., ICLR 2018, Eq. 7: VAE + distance of the covariance of sampled codes from the identity."""

from pydantic import Field

from disentune.frameworks.covariance import covariance_of_codes, diagonal, off_diagonal
from disentune.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Setting, Step


class Params(Frozen):
    """lambda_od weighs the squared covariances of different latents, lambda_d the squares of (variance - 1).

    Without lambda_d it is lambda_od, as in disentanglement_lib, and follows a schedule of lambda_od.
    """

    lambda_od: float = Field(ge=0, description="weight off the diagonal")
    lambda_d: float | None = Field(None, ge=0, description="weight on the diagonal; null: lambda_od")


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + KL + lambda_od * sum of Cov_ij^2 + lambda_d * sum of (Cov_ii - 1)^2; rows have both sums."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    kl, covariance = nats_per_image(kl_to_prior(q)), covariance_of_codes(q)
    dip_od, dip_d = off_diagonal(covariance), diagonal(covariance)
    lambda_d = params.lambda_od if params.lambda_d is None else params.lambda_d
    latent = kl + params.lambda_od * dip_od + lambda_d * dip_d
    return Losses(recon, latent, {"kl": kl, "dip_od": dip_od, "dip_d": dip_d})


def check(setting: Setting, params: Params) -> None:
    if setting.batch_size < 2:
        raise ValueError("dip_vae_ii needs a covariance over the batch: training.batch_size must be >= 2")


FRAMEWORK = Framework(name="dip_vae_ii", params=Params, loss=loss, parts=("kl", "dip_od", "dip_d"), check=check)
