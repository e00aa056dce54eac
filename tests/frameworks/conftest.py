"""A small model and batch for all frameworks, in float64."""

import numpy as np
import pytest
import torch

from disentune.models.mlp import MODEL
from disentune.plugin import Batch, Step
from disentune.recon.mse import RECON
from disentune.recon.mse import Params as Mse

SHAPE = (2, 4, 5)


def mean_squares(output, target):
    return RECON.per_image(output, target, Mse()).mean()


@pytest.fixture
def model():
    return MODEL.build(SHAPE, MODEL.params(latents=4, width=8), torch.Generator().manual_seed(0)).double()


@pytest.fixture
def batch():
    x, pair = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, *SHAPE)))
    return Batch(x, pair, mean_squares)


@pytest.fixture
def step():
    """A fresh step of equal noise at each call."""
    return lambda seed=0: Step(3, 10, np.random.default_rng(seed))
