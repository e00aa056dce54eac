"""One training step on torch's `meta` device, whose tensors have shapes but no numbers.

It takes every branch for a device other than the CPU, and fails where a tensor of the CPU meets one of the device, or
where a number is read back, which would make every step wait for the device.
"""

import pytest

from disentune.learn import training as training_module
from disentune.learn.training import Training, built_model
from disentune.models import MODELS
from disentune.recon import RECONS
from framework_examples import CASES, EXAMPLES
from tiny_trials import tiny

pytestmark = pytest.mark.long  # torch loads its rules for shapes for five seconds
PLAIN = {"name": "beta_vae", "beta": 0.1}


@pytest.fixture(autouse=True)
def untrained_donors(monkeypatch):
    monkeypatch.setattr(training_module, "donated", lambda donor: built_model(tiny(seed=int(donor.trial, 16))))


def step_on_meta(config):
    training = Training(config.on("meta"))
    next(training.run())
    tensors = [*training.model.parameters(), training.sums.total, *training.framework_state.values()]
    tensors += [moment for state in training.optimiser.state.values() for moment in state.values()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_framework_stays_on_the_device(case):
    name, number = case
    step_on_meta(tiny({"name": name, **EXAMPLES[name][number]}))


@pytest.mark.parametrize("name", MODELS.names())
def test_every_model_stays_on_the_device(name):
    dataset = {"name": "xysquares", "image_size": 64, "square_size": 8, "grid_size": 8}
    step_on_meta(tiny(PLAIN, dataset=dataset, model={"name": name, "latents": 4}))


@pytest.mark.parametrize("name", RECONS.names())
def test_every_loss_stays_on_the_device(name):
    step_on_meta(tiny(PLAIN, name))
