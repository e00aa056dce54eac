"""Manipulator: Zietlow et al., ICML 2021, section 4: changes images little so that good models fit worse than bad ones.

Not a model of images: it learns a change of at most epsilon per pixel, as a function of the ground-truth factors, under
which the decoders of the worst donors reconstruct better than those of the best. The data set `manipulated` applies it.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from disentune.maths.adam import Adam
from disentune.maths.gaussian import sample
from disentune.maths.manipulation import Bottleneck, bottleneck, manipulated, pattern
from disentune.plugin import AutoEncoder, Batch, Context, Count, Donor, Framework, Frozen, Helper, Images, Losses, Step

EPSILON = 1e-7
"""Adam's epsilon, for the manipulator and the decoders."""


class Params(Frozen):
    """The encoders of the donors always see the original image; their decoders learn the manipulated one.

    `training.learning_rate` is the manipulator's, `helper_learning_rate` the decoders'; both are 1e-4 in the paper.
    """

    donors: list[Donor] = Field(description="trained models: those with the best scores, and those with the worst")
    epsilon: float = Field(gt=0, le=1, description="largest change of a pixel in [0, 1]")
    decoder_batches: Count = Field(3, ge=1, description="batches of the decoders for each batch of the manipulator")
    samples: Count = Field(5, ge=1, le=1000, description="codes drawn from the posterior of each image")
    helper_learning_rate: float = Field(1e-4, gt=0, description="learning rate of the decoders")

    @field_validator("donors")
    @classmethod
    def _both_roles(cls, donors: list[Donor]) -> list[Donor]:
        if {donor.role for donor in donors} != {"best", "worst"}:
            raise ValueError("must have at least one donor with role best and one with role worst")
        return donors


class Donors(nn.Module):
    """The donors' networks: encoders as they were trained, decoders that continue."""

    def __init__(self, best: Sequence[AutoEncoder], worst: Sequence[AutoEncoder]):
        super().__init__()
        self.best, self.worst = nn.ModuleList(best), nn.ModuleList(worst)
        for model in (*self.best, *self.worst):
            model.encoder.requires_grad_(False)


def donors(setting: Context, params: Params, generator: torch.Generator) -> Donors:
    assert setting.donated is not None
    by_role = {role: [setting.donated(one) for one in params.donors if one.role == role] for role in ("best", "worst")}
    return Donors(**by_role)


def optimiser(parameters: Iterable[nn.Parameter], params: Params) -> Adam:
    return Adam(parameters, params.helper_learning_rate, epsilon=EPSILON)


def extra(setting: Context, params: Params, generator: torch.Generator, images: Images) -> Bottleneck:
    return bottleneck(len(setting.factor_sizes), generator)


@torch.no_grad()
def codes(model: AutoEncoder, x: Tensor, samples: int, rng: np.random.Generator) -> Tensor:
    """Draws from the posterior of each original image (n, c, h, w), all first draws first: (samples * n, d)."""
    q = model.encode(x)
    return torch.cat([sample(q, rng) for _ in range(samples)])


def decoded(models: Iterable[AutoEncoder], x: Tensor, samples: int, rng: np.random.Generator) -> list[Tensor]:
    """The reconstructions of the original images by each donor, (samples * n, c, h, w)."""
    return [model.decode(codes(model, x, samples, rng)) for model in models]


def mean_loss(batch: Batch, outputs: Iterable[Tensor], target: Tensor) -> Tensor:
    """The mean loss of an ensemble, without gradients through its outputs."""
    return torch.stack([batch.recon(output.detach(), target) for output in outputs]).mean()


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """The decoders minimise each their own reconstruction; every `decoder_batches` steps the manipulator learns from
    the same batch, to minimise the mean loss of the worst minus that of the best. Both learn from the weights that the
    step began with."""
    assert batch.factors is not None
    with torch.set_grad_enabled(step.number % params.decoder_batches == 0):
        change = params.epsilon * pattern(model, step.extra(batch.factors))
        target = torch.cat([manipulated(batch.x, change)] * params.samples)
    best = decoded(step.helper.best, batch.x, params.samples, step.rng)
    worst = decoded(step.helper.worst, batch.x, params.samples, step.rng)
    own = torch.stack([batch.recon(output, target.detach()) for output in (*best, *worst)])
    parts = {"best_recon": own[: len(best)].detach().mean(), "worst_recon": own[len(best) :].detach().mean()}
    gap = parts["worst_recon"] - parts["best_recon"]
    if target.requires_grad:
        gap = mean_loss(batch, worst, target) - mean_loss(batch, best, target)
    watch = {"change": change.detach().abs().mean()}
    return Losses(gap, gap.new_zeros(()), parts, watch, own.sum())


FRAMEWORK = Framework(
    name="manipulator",
    params=Params,
    loss=loss,
    parts=("best_recon", "worst_recon"),
    watch=("change",),
    extra=extra,
    helper=Helper(donors, optimiser),
    optimiser=lambda parameters, learning_rate: Adam(parameters, learning_rate, epsilon=EPSILON),
    needs_factors=True,
    needs_unit_range=True,
    read_once=("helper_learning_rate",),
)
