"""DIP-VAE-I: Kumar et al., ICLR 2018, Eq. 6: VAE + distance of the covariance of posterior means from the identity."""

from pydantic import Field

from disentune.frameworks.covariance import check_batch, covariance_of_means, dip_loss
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Step


class Params(Frozen):
    """lambda_od weights the squared covariances of different latents, lambda_d the squares of (variance - 1).

    lambda_d defaults to 10 times lambda_od, as in disentanglement_lib, and follows a schedule of lambda_od.
    """

    lambda_od: float = Field(ge=0, description="weight off the diagonal")
    lambda_d: float | None = Field(None, ge=0, description="weight on the diagonal; null: 10 times lambda_od")


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    lambda_d = 10 * params.lambda_od if params.lambda_d is None else params.lambda_d
    return dip_loss(model, batch, step, covariance_of_means, params.lambda_od, lambda_d)


FRAMEWORK = Framework(name="dip_vae_i", params=Params, loss=loss, parts=("kl", "dip_od", "dip_d"), check=check_batch)
