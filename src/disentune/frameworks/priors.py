"""Priors p(z) that decompose a latent space: Mathieu et al., ICML 2019, section 6 and appendix B.

Each is a distribution of codes, `Law`, and is chosen by name. Only the anisotropic one looks at the data first, so its
law is a module of the framework.
"""

import math
from typing import Annotated, Literal, Protocol

import numpy as np
import scipy
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from disentune.maths.gaussian import kl, log_density, nats_per_image
from disentune.plugin import Context, Count, Frozen, Images, Posterior, spelled_out

RELEASED = 20
"""Number of singular values that the released code computes; it then uses the smallest of them."""
MOST_NUMBERS = 2**28
"""Maximum number of pixels of the images whose components are computed: 2 GB."""


class Law(Protocol):
    def log_density(self, z: Tensor) -> Tensor:
        """log p(z) of all latents together, (n, d) -> (n,)."""
        ...

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        """KL(q(z|x) || p(z)) in nats per image, a scalar; exact if possible, else from the single sample z of q."""
        ...

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        """As many codes as in `like`, (n, d); drawn in float64, so that every precision gets the same draw."""
        ...


def sampled_kl(q: Posterior, z: Tensor, log_prior: Tensor) -> Tensor:
    """Mean over the batch of log q(z|x) - log p(z), with log p(z) (n,) counted once per image, not once per latent."""
    return (log_density(q, z).sum(dim=1) - log_prior).mean()


def _normals(like: Tensor, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.standard_normal(tuple(like.shape))).to(like)


class Isotropic(Frozen):
    """N(0, scale) in every latent; a scale of 1 is the prior of the VAE. The objective cannot tell rotations apart."""

    name: Literal["isotropic"] = "isotropic"
    scale: float = Field(1.0, gt=0, description="variance of each latent")

    def _normal(self, like: Tensor) -> Posterior:
        zeros = torch.zeros_like(like[0])
        return Posterior(zeros, zeros + math.log(self.scale))

    def log_density(self, z: Tensor) -> Tensor:
        return log_density(self._normal(z), z).sum(dim=1)

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        return nats_per_image(kl(q, self._normal(z)))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        return math.sqrt(self.scale) * _normals(like, rng)


def principal_variances(images: Tensor) -> Tensor:
    """Squared singular values of the un-centred flattened images, largest first, (min(n, pixels),), in float64.

    They are the eigenvalues of the smaller of the two Gram matrices.
    """
    flat = images.detach().cpu().double().flatten(1)
    gram = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    found: Tensor = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0)
    return found


class Anisotropic(Frozen):
    """Zero-mean Gaussian with a variance for each latent: scale * d * the share of each of d principal components.

    The components are those of the images in the network's units, so the shares depend on `dataset.transform`. The mean
    variance is always `scale`, so learning the shares cannot replace a smaller beta.
    """

    name: Literal["anisotropic"] = "anisotropic"
    scale: float = Field(1.0, gt=0, description="mean variance of the latents")
    learned: bool = Field(False, description="train the shares, starting from these values; false: they stay fixed")
    take: Literal["top", "as_released"] = Field(
        "top", description="the d largest components, or the d smallest of the 20 largest, as in the authors' code"
    )
    images: Count = Field(
        2048, ge=2, description="images from which the components are computed; all if the data set has fewer"
    )

    def check(self, setting: Context) -> None:
        """Raises ValueError if there cannot be enough components."""
        available = min(self.images, setting.population, math.prod(setting.shape))
        if self.take == "as_released" and setting.latents > RELEASED:
            raise ValueError(f"prior: as_released has {RELEASED} components, but there are {setting.latents} latents")
        needed = self._needed(setting.latents)
        numbers = min(self.images, setting.population) * math.prod(setting.shape)
        if numbers > MOST_NUMBERS:
            raise ValueError(
                f"prior: anisotropic needs {numbers:,} pixels at once, but at most {MOST_NUMBERS:,} are allowed; "
                "lower prior.images"
            )
        if available < needed:
            more = "raise prior.images, or " if self.images == available else ""
            raise ValueError(
                f"prior: anisotropic needs {needed} principal components, but there are {available} images or pixels "
                f"to compute them from; {more}{self._fewer()}"
            )

    def _needed(self, latents: int) -> int:
        return RELEASED if self.take == "as_released" else latents

    def _fewer(self) -> str:
        return "use fewer latents" if self.take == "top" else "use `take: top`, which needs one for each latent"

    def law(self, latents: int, images: Images) -> "AnisotropicLaw":
        """Computes the components. Raises ValueError if the images span fewer dimensions than components are needed."""
        seen = images(self.images)
        variances, needed = principal_variances(seen), self._needed(latents)
        noise = variances[0] * max(len(seen), seen[0].numel()) * torch.finfo(variances.dtype).eps
        rank = int((variances > noise).sum())
        if rank < needed:
            raise ValueError(
                f"prior: anisotropic needs {needed} principal components, but the {len(seen)} images span only "
                f"{rank} dimensions; {self._fewer()}, or take another prior"
            )
        return AnisotropicLaw(variances[:needed][-latents:].log(), self.scale, self.learned)


class AnisotropicLaw(nn.Module):
    """N(0, scale * d * softmax(logits)): the mean variance is always `scale`. `logits` (d,) are trained if learned."""

    def __init__(self, logits: Tensor, scale: float, learned: bool):
        super().__init__()
        self.scale, logits = scale, logits.to(torch.get_default_dtype())
        if learned:
            self.logits: Tensor = nn.Parameter(logits)
        else:
            self.register_buffer("logits", logits)

    def _normal(self) -> Posterior:
        logvar = torch.log_softmax(self.logits, dim=0) + math.log(self.scale * len(self.logits))
        return Posterior(torch.zeros_like(logvar), logvar)

    def log_density(self, z: Tensor) -> Tensor:
        return log_density(self._normal(), z).sum(dim=1)

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        return nats_per_image(kl(q, self._normal()))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.exp(self._normal().logvar / 2) * _normals(like, rng)


class StudentT(Frozen):
    """Student's t in every latent, independent: heavy tails mark the axes; a large `nu` gives the isotropic prior."""

    name: Literal["student_t"] = "student_t"
    nu: float = Field(ge=1, description="degrees of freedom; 1 is the Cauchy distribution")
    scale: float = Field(1.0, gt=0, description="square of the distribution's scale")

    def log_density(self, z: Tensor) -> Tensor:
        spread = self.nu * self.scale
        beta = scipy.special.betaln(self.nu / 2, 0.5)  # log-gammas would cancel at a large nu
        constant = -beta - math.log(spread) / 2
        found: Tensor = (constant - (self.nu + 1) / 2 * torch.log1p(z.square() / spread)).sum(dim=1)
        return found

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        return sampled_kl(q, z, self.log_density(z))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        return math.sqrt(self.scale) * torch.from_numpy(rng.standard_t(self.nu, size=tuple(like.shape))).to(like)

    def to_normal(self, codes: np.ndarray) -> np.ndarray:
        """The increasing map of each code that makes N(0, 1) of this law, as the authors' code does before scoring.

        It goes through the tail on the code's own side of 0, where a probability near 1 would lose its digits.
        """
        tails = scipy.special.stdtr(self.nu, -np.abs(codes) / math.sqrt(self.scale))
        found: np.ndarray = -np.sign(codes) * scipy.special.ndtri(np.maximum(tails, np.finfo(np.float64).tiny))
        return found


class Mixture(Frozen):
    """Four equally likely round Gaussians at (0, -1), (0, 1), (1, 0), (-1, 0): clusters in exactly 2 latents."""

    name: Literal["mixture"] = "mixture"
    scale: float = Field(0.03, gt=0, description="variance of each Gaussian along each axis")

    def check(self, setting: Context) -> None:
        if setting.latents != 2:
            raise ValueError(f"prior: the mixture lies in 2 latents, but model.latents is {setting.latents}")

    def _centres(self, like: Tensor) -> Tensor:
        return like.new_tensor([[0, -1], [0, 1], [1, 0], [-1, 0]])

    def log_density(self, z: Tensor) -> Tensor:
        squares = (z[:, None] - self._centres(z)).square().sum(dim=2)
        return torch.logsumexp(-squares / (2 * self.scale), dim=1) - math.log(4 * 2 * math.pi * self.scale)

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        return sampled_kl(q, z, self.log_density(z))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        chosen = torch.from_numpy(rng.integers(4, size=len(like))).to(like.device)
        return self._centres(like)[chosen] + math.sqrt(self.scale) * _normals(like, rng)


class SpikeAndSlab(Frozen):
    """(1 - share) N(0, 1) + share N(0, spike^2) in every latent, independent: sparse codes, of which a share is off.

    The body of the paper has spike^2 = 0.05; its appendix and its code have spike = 0.05.
    """

    name: Literal["spike_and_slab"] = "spike_and_slab"
    share: float = Field(ge=0, le=1, description="probability that a latent is off; 0 is the prior of the VAE")
    spike: float = Field(0.05, gt=0, description="standard deviation of a latent that is off")

    def _log_normal(self, z: Tensor, deviation: float, weight: float) -> Tensor:
        if weight == 0:
            return torch.full_like(z, -torch.inf)
        return math.log(weight / deviation) - (math.log(2 * math.pi) + (z / deviation).square()) / 2

    def log_density(self, z: Tensor) -> Tensor:
        slab, spike = self._log_normal(z, 1, 1 - self.share), self._log_normal(z, self.spike, self.share)
        return torch.logaddexp(slab, spike).sum(dim=1)

    def kl(self, q: Posterior, z: Tensor) -> Tensor:
        return sampled_kl(q, z, self.log_density(z))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        off = torch.from_numpy(rng.random(tuple(like.shape)) < self.share).to(like.device)
        return torch.where(off, self.spike, 1.0).to(like) * _normals(like, rng)


Prior = Annotated[
    Isotropic | Anisotropic | StudentT | Mixture | SpikeAndSlab,
    Field(discriminator="name"),
    BeforeValidator(spelled_out),
]
"""A prior by name, with its own parameters."""
