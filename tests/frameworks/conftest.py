"""A small model and batch for all frameworks, in float64."""

import numpy as np
import pytest
import torch

from disentune.models.mlp import MODEL
from disentune.plugin import Batch, Context, Step
from disentune.recon.mse import RECON
from disentune.recon.mse import Params as Mse

SHAPE = (2, 4, 5)
FACTORS, NAMES = (10, 10, 10), ("x_R", "x_G", "y_B")


def donated(donor):
    """A small network for each donor, as its trial's last digit draws it."""
    generator = torch.Generator().manual_seed(int(donor.trial, 16))
    return MODEL.build(SHAPE, SHAPE[0], MODEL.params(latents=3, width=8), generator)


SETTING = Context(SHAPE, latents=4, batch_size=6, factor_sizes=FACTORS, factor_names=NAMES, donated=donated)


def mean_squares(output, target):
    return RECON.per_image(output, target, Mse()).mean()


def images(count):
    return torch.from_numpy(np.random.default_rng(1).normal(size=(min(count, SETTING.population), *SHAPE))).float()


@pytest.fixture
def model():
    return MODEL.build(SHAPE, SHAPE[0], MODEL.params(latents=4, width=8), torch.Generator().manual_seed(0)).double()


@pytest.fixture
def batch():
    x, pair = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, *SHAPE)))
    factors = torch.from_numpy(np.random.default_rng(2).uniform(-1, 1, size=(6, len(FACTORS))))
    return Batch(x, pair, mean_squares, population=SETTING.population, factors=factors)


@pytest.fixture
def step():
    """A fresh step of equal noise at each call, for frameworks that need nothing else."""
    return lambda seed=0: Step(3, 10, np.random.default_rng(seed))


@pytest.fixture
def step_for():
    """`step_for(framework, params)`: a fresh step with the framework's own state, extra module and helper network."""

    def build(framework, params, seed=0, number=3, dtype=torch.float64):
        generator = torch.Generator().manual_seed(0)
        extra = framework.extra(SETTING, params, generator, images) if framework.extra else None
        helper = framework.helper.build(SETTING, params, generator) if framework.helper else None
        return Step(
            number=number,
            steps=10,
            rng=np.random.default_rng(seed),
            state=framework.state(params),
            extra=extra.to(dtype) if extra else None,
            helper=helper.to(dtype) if helper else None,
        )

    return build
