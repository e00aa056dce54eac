"""The manipulator: its losses by a slow loop, and who learns when."""

import copy
import itertools

import numpy as np
import pytest
import torch

from disentune.errors import DataError
from disentune.files import earlier
from disentune.frameworks.manipulator import EPSILON, FRAMEWORK, Params, codes, loss
from disentune.learn import training as training_module
from disentune.learn.training import Training, built_model
from disentune.maths.manipulation import manipulated, pattern
from disentune.spec.config import Invalid, TrialConfig
from framework_examples import DONORS

PARAMS = Params(donors=DONORS, epsilon=0.3, samples=3, decoder_batches=3)


@pytest.fixture
def images(batch):
    """The batch with pixels in [0, 1]."""
    return type(batch)(batch.x.sigmoid(), None, batch.recon, batch.population, batch.factors)


def slow_losses(model, batch, params, step):
    """Mean squared distance of each donor's images from the manipulated one, image by image and draw by draw."""
    found = []
    for donor in (*step.helper.best, *step.helper.worst):
        q = donor.encode(batch.x)
        total = 0.0
        for _ in range(params.samples):
            noise = torch.from_numpy(step.rng.standard_normal(tuple(q.mean.shape)))
            for n in range(len(batch.x)):
                z = q.mean[n] + (q.logvar[n] / 2).exp() * noise[n]
                unit = step.extra(batch.factors[n : n + 1])
                target = manipulated(batch.x[n], params.epsilon * pattern(model, unit)[0])
                total = total + (donor.decode(z[None])[0] - target).square().sum()
        found.append(total / (params.samples * len(batch.x)))
    return found


@pytest.mark.parametrize("number", [2, 3])
def test_losses_equal_a_slow_loop(number, model, images, step_for):
    found = loss(model, images, PARAMS, step_for(FRAMEWORK, PARAMS, number=number))
    best, second, worst, last = slow_losses(model, images, PARAMS, step_for(FRAMEWORK, PARAMS))
    torch.testing.assert_close(found.helper, best + second + worst + last)
    torch.testing.assert_close(found.recon, (worst + last) / 2 - (best + second) / 2)
    torch.testing.assert_close(found.parts["best_recon"], (best + second) / 2)
    torch.testing.assert_close(found.parts["worst_recon"], (worst + last) / 2)
    assert found.latent == 0


def test_the_manipulator_follows_the_slope_of_worst_minus_best(model, images, step_for):
    step = step_for(FRAMEWORK, PARAMS)
    found = torch.autograd.grad(loss(model, images, PARAMS, step).recon, step.extra[0].weight)
    step = step_for(FRAMEWORK, PARAMS)
    best, second, worst, last = slow_losses(model, images, PARAMS, step)
    expected = torch.autograd.grad((worst + last - best - second) / 2, step.extra[0].weight)
    torch.testing.assert_close(found, expected)


def test_the_manipulator_learns_in_every_third_step(model, images, step_for):
    learns = [
        loss(model, images, PARAMS, step_for(FRAMEWORK, PARAMS, number=n)).recon.requires_grad for n in range(1, 7)
    ]
    assert learns == [False, False, True] * 2


def test_codes_are_draws_from_the_posterior_of_the_original(model, images):
    q = model.encode(images.x)
    found = codes(model, images.x, 4000, np.random.default_rng(0)).unflatten(0, (4000, -1))
    torch.testing.assert_close(found.mean(0), q.mean.detach(), atol=0.1, rtol=0)  # five standard errors
    torch.testing.assert_close(found.std(0), (q.logvar / 2).exp().detach(), atol=0.1, rtol=0)
    assert not found.requires_grad


# ---- in the loop


def config(**changes):
    tree = {
        "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 2,
                    "transform": "unit"},
        "model": {"name": "mlp", "width": 8, "latents": 3},
        "framework": {"name": "manipulator", "donors": DONORS, "epsilon": 0.3},
        "recon": {"name": "bce"},
        "training": {"steps": 6, "batch_size": 4, "learning_rate": 1e-4, "log_every": 1},
        "evaluation": {"metrics": []},
        "loss_scale": "sum",
        "seed": 0,
    }  # fmt: skip
    return TrialConfig.parse({**tree, **changes})


@pytest.fixture
def training(monkeypatch):
    plain = config(framework={"name": "ae"})
    monkeypatch.setattr(training_module, "donated", lambda donor: built_model(plain.with_seed(int(donor.trial, 16))))
    return Training(config())


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_encoders_stay_and_decoders_and_manipulator_take_their_turns(training):
    def now():
        named = {"model": training.model, "extra": training.extra, "helper": training.helper.network}
        return {f"{name}.{key}": value.clone() for name, module in named.items()
                for key, value in copy.deepcopy(module.state_dict()).items()}  # fmt: skip

    states = [now()]
    for _ in training.run():
        states.append(now())
    for number, (before, after) in enumerate(itertools.pairwise(states), start=1):
        moved = changed(before, after)
        assert not any(".encoder." in name for name in moved)
        assert {name for name in moved if name.startswith("helper")} == {
            name for name in before if name.startswith("helper") and ".decoder." in name
        }
        assert any(name.startswith("model.decoder") for name in moved) == (number % 3 == 0)
        assert ("extra.0.weight" in moved) == (number % 3 == 0)


def test_both_optimisers_are_adam_with_the_papers_constants(training):
    for optimiser in (training.optimiser, training.helper.optimiser):
        assert (optimiser.learning_rate, optimiser.betas, optimiser.epsilon) == (1e-4, (0.9, 0.999), EPSILON)
    assert EPSILON == 1e-7


def test_factors_are_only_computed_for_frameworks_that_need_them(training):
    assert training._batch().factors.shape == (4, 4)
    assert Training(config(framework={"name": "ae"}))._batch().factors is None


# ---- refusals


def test_pixels_must_be_in_the_unit_range():
    with pytest.raises(Invalid, match=r"framework.name: 'manipulator' needs pixels in \[0, 1\]: set dataset.transform"):
        config(dataset={"name": "xysquares", "image_size": 8, "square_size": 2}, recon={"name": "mse"})


def test_both_ends_of_the_scores_are_needed():
    with pytest.raises(Invalid, match="at least one donor with role best and one with role worst"):
        config(framework={"name": "manipulator", "donors": DONORS[:1], "epsilon": 0.1})


def test_a_donor_that_the_storage_does_not_have_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(earlier.VARIABLE, str(tmp_path))
    with pytest.raises(DataError, match=f"trial {DONORS[0]['trial']} has no sound checkpoint in {tmp_path}"):
        Training(config())
