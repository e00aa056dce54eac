"""iVAE: Khemakhem et al., AISTATS 2020: a VAE whose prior and posterior depend on some known factors of each image.

Given enough distinct values u of these factors, latents that are independent given u are identifiable. The prior is
N(0, diag exp l(u)); the posterior adds g(u) to what the encoder makes of the image, where the authors feed x and u to
one network. The KL is exact, where they draw one sample. Their decoder has noise of variance 0.01.
"""

import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from disentune.errors import unknown
from disentune.maths.gaussian import kl, log_density, nats_per_image, sample
from disentune.maths.initialise import initialised
from disentune.plugin import AutoEncoder, Batch, Context, Count, Framework, Frozen, Losses, Posterior, Step

MOST_COMBINATIONS = 10_000
"""Of the values of u."""
SLOPE = 0.1
"""Of the activations, below 0."""


class Params(Frozen):
    """u has the values of `labels`, one-hot. Scores, too, encode each image together with its u."""

    labels: list[str] = Field(min_length=1, description="names of the factors that the prior and posterior depend on")
    width: Count = Field(50, ge=1, le=10_000, description="units of each hidden layer of the networks of u")
    depth: Count = Field(3, ge=1, le=100, description="layers of these networks")


def network(inputs: int, outputs: int, params: Params, generator: torch.Generator) -> nn.Module:
    def layers() -> nn.Sequential:
        sizes = [inputs, *[params.width] * (params.depth - 1)]
        hidden = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.LeakyReLU(SLOPE))]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], outputs))

    return initialised(layers, generator)


class Conditional(nn.Module):
    """The networks of u: `prior`, the log-variance of each latent, and `posterior`, what is added to its mean and
    log-variance."""

    def __init__(self, places: Sequence[int], sizes: Sequence[int], latents: int, params: Params, rng: torch.Generator):
        super().__init__()
        self.places, self.sizes = list(places), list(sizes)
        self.prior = network(sum(sizes), latents, params, rng)
        self.posterior = network(sum(sizes), 2 * latents, params, rng)

    def one_hot(self, factors: Tensor) -> Tensor:
        """Factors (n, k), each spread over [-1, 1] -> (n, sum of the sizes)."""
        last = torch.tensor(self.sizes, device=factors.device) - 1
        labels = ((factors[:, self.places] + 1) / 2 * last).round().long()
        pieces = [nn.functional.one_hot(one, size) for one, size in zip(labels.T, self.sizes, strict=True)]
        return torch.cat(pieces, dim=1).to(factors)

    def combinations(self, like: Tensor) -> Tensor:
        """Every u, one row each."""
        places = [torch.eye(size, device=like.device, dtype=like.dtype) for size in self.sizes]
        return torch.stack([torch.cat(rows) for rows in product(*places)])


class Mixture:
    """The prior of all images together: every u equally often."""

    def __init__(self, conditional: Conditional):
        self.conditional = conditional

    def _logvars(self, like: Tensor) -> Tensor:
        """(m, d), of each u."""
        weight = next(self.conditional.parameters())
        found: Tensor = self.conditional.prior(self.conditional.combinations(weight))
        return found.to(like)

    def log_density(self, z: Tensor) -> Tensor:
        """(n, d) -> (n,)"""
        logvars = self._logvars(z)
        parts = log_density(Posterior(torch.zeros_like(logvars), logvars), z[:, None]).sum(dim=2)
        return torch.logsumexp(parts, dim=1) - math.log(len(logvars))

    def sample(self, like: Tensor, rng: np.random.Generator) -> Tensor:
        logvars = self._logvars(like)
        chosen = torch.from_numpy(rng.integers(len(logvars), size=len(like))).to(like.device)
        return sample(Posterior(torch.zeros_like(like), logvars[chosen]), rng)


def extra(setting: Context, params: Params, generator: torch.Generator, images: Any) -> Conditional:
    places = [setting.factor_names.index(name) for name in params.labels]
    sizes = [setting.factor_sizes[place] for place in places]
    return Conditional(places, sizes, setting.latents, params, generator)


def posterior(model: AutoEncoder, x: Tensor, factors: Tensor, params: Params, extra: Any) -> Posterior:
    q = model.encode(x)
    mean, logvar = extra.posterior(extra.one_hot(factors.to(q.mean))).chunk(2, dim=1)
    return Posterior(q.mean + mean, q.logvar + logvar)


def prior(params: Params, extra: Any) -> Mixture:
    return Mixture(extra)


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Reconstruction + KL(q(z|x, u) || N(0, diag exp l(u)))."""
    assert batch.factors is not None
    q = posterior(model, batch.x, batch.factors, params, step.extra)
    recon = batch.recon(model.decode(sample(q, step.rng)), batch.x)
    logvars = step.extra.prior(step.extra.one_hot(batch.factors))
    nats = nats_per_image(kl(q, Posterior(torch.zeros_like(logvars), logvars)))
    return Losses(recon, nats, {"kl": nats})


def check(setting: Context, params: Params) -> None:
    if not setting.factor_names:
        return  # every framework that needs factors is refused there
    for name in params.labels:
        if name not in setting.factor_names:
            raise ValueError(f"labels: {unknown('factor', name, setting.factor_names)}")
    if len(set(params.labels)) < len(params.labels):
        raise ValueError(f"labels must be different, got {', '.join(params.labels)}")
    sizes = dict(zip(setting.factor_names, setting.factor_sizes, strict=True))
    if (count := math.prod(sizes[name] for name in params.labels)) > MOST_COMBINATIONS:
        raise ValueError(
            f"labels may have at most {MOST_COMBINATIONS:,} combinations of values, but these have {count:,}"
        )


FRAMEWORK = Framework(
    name="ivae",
    params=Params,
    loss=loss,
    extra=extra,
    check=check,
    prior=prior,
    posterior=posterior,
    needs_factors=True,
)
