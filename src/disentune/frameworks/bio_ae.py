"""BioAE: Whittington et al., ICLR 2023: an autoencoder of non-negative codes with little activity and small weights.

The paper proves for linear networks that these constraints make each unit prefer one factor. Small weights are a weight
decay, which belongs to the optimiser: `training.optimiser: {decoupled: true, weight_decay: 1e-4}`, as in the comparison
of Hsu et al. (NeurIPS 2023), whose weights of the other terms are the defaults here. Their terms are means over latents
and pixels, so the defaults are meant for `loss_scale: mean`.
"""

from pydantic import Field

from disentune.maths.gaussian import nats_per_image
from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Step


class Params(Frozen):
    """With both weights 0 it is the autoencoder. Log-variances are not used."""

    negativity: float = Field(1.0, ge=0, description="weight of the part of each code below 0")
    activity: float = Field(0.01, ge=0, description="weight of the square of each code")


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction of the decoded mean z + negativity * sum max(0, -z) + activity * sum z^2."""
    z = model.encode(batch.x).mean
    recon = batch.recon(model.decode(z), batch.x)
    below, energy = nats_per_image((-z).relu()), nats_per_image(z.square())
    latent = params.negativity * below + params.activity * energy
    return Losses(recon, latent, {"negative_part": below, "energy": energy})


FRAMEWORK = Framework(name="bio_ae", params=Params, loss=loss, parts=("negative_part", "energy"))
