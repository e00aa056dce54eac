"""Autoencoder: Hinton & Salakhutdinov, Science 2006: reconstruction from the mean only, no term on latents."""

from disentune.plugin import AutoEncoder, Batch, Framework, Frozen, Losses, Step


class Params(Frozen):
    """No parameters. Unlike beta-VAE with beta 0, codes have no noise, and log-variances are not used."""


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction of the decoded mean."""
    recon = batch.recon(model.decode(model.encode(batch.x).mean), batch.x)
    return Losses(recon, recon.new_zeros(()))


FRAMEWORK = Framework(name="ae", params=Params, loss=loss, parts=())
