"""What every framework of the catalogue must do."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from disentune.frameworks import FRAMEWORKS
from framework_examples import CASES, EXAMPLES, NOISELESS, UNDECODED, UNENCODED

KL_WEIGHTED = ("ada_gvae", "ada_ml_vae", "beta_vae", "decomposition_vae")


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request):
    name, number = request.param
    framework = FRAMEWORKS[name]
    return framework, framework.params(**EXAMPLES[name][number])


@pytest.fixture
def framework(case):
    return case[0]


@pytest.fixture
def params(case):
    return case[1]


def test_every_framework_has_examples():
    assert EXAMPLES.keys() == set(FRAMEWORKS.names())


def test_losses_are_finite_scalars_under_the_names_that_were_declared(framework, params, model, batch, step_for):
    losses = framework.loss(model, batch, params, step_for(framework, params))
    numbers = (losses.recon, losses.latent, *losses.parts.values(), *losses.watch.values())
    assert all(value.shape == () and value.isfinite() for value in numbers)
    assert tuple(losses.parts) == framework.parts
    assert tuple(losses.watch) == framework.watch
    assert (losses.helper is None) == (framework.helper is None)


def test_finite_gradients_reach_every_parameter(framework, params, model, batch, step_for):
    step = step_for(framework, params)
    losses = framework.loss(model, batch, params, step)
    (losses.recon + losses.latent).backward()
    # Features that are normalised over the batch do not feel the last bias.
    taught = [*model.encoder.parameters()][:-1] if framework.name in UNDECODED else [*model.parameters()]
    taught = [*model.decoder.parameters()] if framework.name in UNENCODED else taught
    own = [parameter for parameter in step.extra.parameters() if parameter.requires_grad] if step.extra else []
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in [*taught, *own])


def test_equal_noise_gives_equal_losses_and_other_noise_others(framework, params, model, batch, step_for):
    def total(seed):
        losses = framework.loss(model, batch, params, step_for(framework, params, seed))
        return losses.recon + losses.latent

    assert torch.equal(total(0), total(0))
    assert torch.equal(total(0), total(1)) == (framework.name in NOISELESS)


def test_global_generators_are_left_alone(framework, params, model, batch, step_for):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    framework.loss(model, batch, params, step_for(framework, params))
    assert torch.equal(torch.get_rng_state(), before)


def test_its_inputs_stay_as_they_were(framework, params, model, batch, step_for):
    step = step_for(framework, params)
    x, pair, state = batch.x.clone(), batch.pair.clone(), {name: value.clone() for name, value in step.state.items()}
    modules = [copy.deepcopy(module.state_dict()) for module in (model, step.extra, step.helper) if module]
    framework.loss(model, batch, params, step)
    assert torch.equal(batch.x, x)
    assert torch.equal(batch.pair, pair)
    assert all(torch.equal(step.state[name], value) for name, value in state.items())
    after = [module.state_dict() for module in (model, step.extra, step.helper) if module]
    assert all(torch.equal(a[key], b[key]) for a, b in zip(modules, after, strict=True) for key in a)


def test_single_precision_agrees(framework, params, model, batch, step_for):
    exact = framework.loss(model, batch, params, step_for(framework, params))
    single = replace(batch, x=batch.x.float(), pair=batch.pair.float(), factors=batch.factors.float())
    step = step_for(framework, params, dtype=torch.float32)
    losses = framework.loss(copy.deepcopy(model).float(), single, params, step)
    assert losses.recon.dtype == losses.latent.dtype == torch.float32
    torch.testing.assert_close(losses.recon.double(), exact.recon, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        losses.latent.double(), exact.latent, rtol=1e-4, atol=1e-5
    )  # sums of terms of both signs


def test_the_state_keeps_its_names_and_kinds(framework, params, model, batch, step_for):
    step = step_for(framework, params)
    losses = framework.loss(model, batch, params, step)
    assert losses.state.keys() == step.state.keys()
    for name, value in losses.state.items():
        assert value.isfinite().all()
        assert (value.shape, value.dtype) == (step.state[name].shape, step.state[name].dtype)


def test_the_helpers_loss_moves_the_helper_and_nothing_else(framework, params, model, batch, step_for):
    if framework.helper is None:
        pytest.skip(f"{framework.name} has no helper network")
    step = step_for(framework, params)
    framework.loss(model, batch, params, step).helper.backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    trained = [parameter for parameter in step.helper.parameters() if parameter.requires_grad]
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in trained)


def bounds(framework):
    """(key, value just outside) for every bound of every number."""
    outside = {"Ge": -1e-3, "Gt": 0.0, "Le": 1e-3, "Lt": 0.0}
    for key, field in framework.params.model_fields.items():
        whole = field.annotation is int
        for rule in field.metadata:
            kind = type(rule).__name__
            if kind in outside:
                step = (1 if outside[kind] > 0 else -1) if whole and outside[kind] else outside[kind]
                yield key, getattr(rule, kind.lower()) + step


def test_every_number_out_of_its_bounds_is_refused_by_name(framework, params):
    for key, value in bounds(framework):
        with pytest.raises(ValueError, match=key):
            framework.params(**{**params.model_dump(), key: value})


@pytest.mark.parametrize("name", KL_WEIGHTED)
def test_slope_in_beta_is_the_kl(name, model, batch, step_for):
    framework = FRAMEWORKS[name]
    low, high = (framework.params(**{**EXAMPLES[name][0], "beta": beta}) for beta in (1.0, 3.0))
    low, high = (framework.loss(model, batch, params, step_for(framework, params)) for params in (low, high))
    torch.testing.assert_close((high.latent - low.latent) / 2, low.parts["kl"])
    assert torch.equal(high.recon, low.recon)
    assert low.parts["kl"] > 0


@pytest.mark.parametrize("name", KL_WEIGHTED)
def test_beta_must_be_given(name):
    with pytest.raises(ValueError, match="beta"):
        FRAMEWORKS[name].params()


class Repeating(np.random.Generator):
    """Gives both copies of a doubled batch the same normal noise."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))

    def standard_normal(self, size):
        return np.tile(super().standard_normal((size[0] // 2, *size[1:])), (2, *(1,) * (len(size) - 1)))


def test_a_batch_counts_by_its_mean(framework, params, model, batch, step_for):
    """Two copies of a batch have the KL of one: a sum over images would double it."""
    if "kl" not in framework.parts:
        pytest.skip(f"{framework.name} reports no KL")
    factors = batch.factors.repeat(2, 1)
    twice = replace(batch, x=batch.x.repeat(2, 1, 1, 1), pair=batch.pair.repeat(2, 1, 1, 1), factors=factors)
    once = framework.loss(model, batch, params, step_for(framework, params))
    both = framework.loss(model, twice, params, replace(step_for(framework, params), rng=Repeating(0)))
    torch.testing.assert_close(both.parts["kl"], once.parts["kl"])


def test_partners_are_only_needed_with_a_pair_law(framework, params, model, batch, step_for):
    if getattr(params, "pairs", None) is None:
        alone = framework.loss(model, replace(batch, pair=None), params, step_for(framework, params))
        assert torch.equal(alone.recon, framework.loss(model, batch, params, step_for(framework, params)).recon)
    else:
        assert callable(params.pairs.draw)
