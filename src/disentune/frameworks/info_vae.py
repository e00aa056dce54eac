"""InfoVAE: Zhao et al., AAAI 2019, Eq. 6: VAE with (1 - alpha) * KL + (alpha + lambda - 1) * MMD(q(z), p(z))."""

from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator

from disentune.frameworks.mmd import KERNELS, mmd
from disentune.maths.gaussian import kl_to_prior, nats_per_image, sample
from disentune.plugin import AutoEncoder, Batch, Context, Framework, Frozen, Losses, Step


class Params(Frozen):
    """`alpha` reduces the weight of the KL; `lambda_z` is the paper's lambda, the weight of the codes' divergence.

    alpha 0 and lambda_z 1 are the VAE, alpha 1 is the MMD-VAE. With squares = |z - z'|^2 the kernel is
    exp(-squares / scale) (`rbf`) or scale / (scale + squares) (`imq`), where scale = 2 * latents * kernel_variance:
    with variance 1 the mean squared distance of two draws from the prior (Tolstikhin et al., ICLR 2018).
    """

    alpha: float = Field(le=1, description="weight of the mutual information of images and codes")
    lambda_z: float = Field(gt=0, description="weight of the codes' divergence from the prior, lambda in the paper")
    kernel: Literal["rbf", "imq"] = Field(
        "rbf", description="kernel of the maximum mean discrepancy: rbf (Gaussian) or imq (inverse multiquadratic)"
    )
    kernel_variance: float = Field(1.0, gt=0, description="multiplies the kernel's scale, 2 * latents")

    @property
    def mmd_weight(self) -> float:
        return self.alpha + self.lambda_z - 1

    @field_validator("lambda_z")
    @classmethod
    def _draws_codes_to_the_prior(cls, lambda_z: float, others: ValidationInfo) -> float:
        alpha = others.data.get("alpha", 1.0)
        if alpha + lambda_z < 1 - 1e-9:  # -1.993 + 2.993 is a rounding below 1
            reason = "a smaller value gives the MMD a negative weight and drives codes away from the prior"
            raise ValueError(f"must be >= 1 - alpha, {1 - alpha:g}, but is {lambda_z:g}: {reason}")
        return lambda_z


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + (1 - alpha) * KL + (alpha + lambda - 1) * MMD of the codes and as many draws from the prior."""
    q = model.encode(batch.x)
    z = sample(q, step.rng)
    recon = batch.recon(model.decode(z), batch.x)
    prior = torch.from_numpy(step.rng.standard_normal(tuple(z.shape))).to(z)
    scale = 2 * model.latents * params.kernel_variance
    kl, discrepancy = nats_per_image(kl_to_prior(q)), mmd(z, prior, KERNELS[params.kernel], scale)
    latent = (1 - params.alpha) * kl + params.mmd_weight * discrepancy
    return Losses(recon, latent, {"kl": kl, "mmd": discrepancy})


def check(setting: Context, params: Params) -> None:
    if setting.batch_size < 2:
        raise ValueError("info_vae compares the codes of a batch: training.batch_size must be >= 2")


FRAMEWORK = Framework(name="info_vae", params=Params, loss=loss, parts=("kl", "mmd"), check=check)
