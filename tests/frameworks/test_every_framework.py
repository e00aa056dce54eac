"""What every framework of the catalogue must do."""

import copy
from dataclasses import replace

import pytest
import torch

from disentune.data.pairs import PAIR_LAWS
from disentune.frameworks import FRAMEWORKS

EXAMPLES = {"beta": 0.7}
KL_WEIGHTED = ("ada_gvae", "beta_vae")


@pytest.fixture(params=FRAMEWORKS.names())
def framework(request):
    return FRAMEWORKS[request.param]


@pytest.fixture
def params(framework):
    required = [key for key, field in framework.params.model_fields.items() if field.is_required()]
    return framework.params(**{key: EXAMPLES[key] for key in required})


def test_losses_are_finite_scalars_and_kl_comes_first(framework, params, model, batch, step):
    losses = framework.loss(model, batch, params, step())
    for value in (losses.recon, losses.latent, *losses.parts.values()):
        assert value.shape == ()
        assert value.isfinite()
    assert next(iter(losses.parts)) == "kl"


def test_finite_gradients_reach_every_parameter(framework, params, model, batch, step):
    losses = framework.loss(model, batch, params, step())
    (losses.recon + losses.latent).backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in model.parameters())


def test_equal_noise_gives_equal_losses_and_other_noise_others(framework, params, model, batch, step):
    first, same, other = (framework.loss(model, batch, params, step(seed)).recon for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_global_generators_are_left_alone(framework, params, model, batch, step):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    framework.loss(model, batch, params, step())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_batch_stays_as_it_was(framework, params, model, batch, step):
    x, pair = batch.x.clone(), batch.pair.clone()
    framework.loss(model, batch, params, step())
    assert torch.equal(batch.x, x)
    assert torch.equal(batch.pair, pair)


def test_single_precision_agrees(framework, params, model, batch, step):
    exact = framework.loss(model, batch, params, step())
    single = replace(batch, x=batch.x.float(), pair=batch.pair.float())
    losses = framework.loss(copy.deepcopy(model).float(), single, params, step())
    assert losses.recon.dtype == torch.float32
    torch.testing.assert_close(losses.recon.double(), exact.recon, rtol=1e-5, atol=0)
    torch.testing.assert_close(losses.latent.double(), exact.latent, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", KL_WEIGHTED)
def test_slope_in_beta_is_the_kl(name, model, batch, step):
    framework = FRAMEWORKS[name]
    low, high = (framework.loss(model, batch, framework.params(beta=beta), step()) for beta in (1.0, 3.0))
    torch.testing.assert_close((high.latent - low.latent) / 2, low.parts["kl"])
    assert torch.equal(high.recon, low.recon)
    assert low.parts["kl"] > 0


@pytest.mark.parametrize("name", KL_WEIGHTED)
def test_without_beta_only_the_reconstruction_is_left(name, model, batch, step):
    framework = FRAMEWORKS[name]
    assert framework.loss(model, batch, framework.params(beta=0.0), step()).latent == 0


@pytest.mark.parametrize("name", KL_WEIGHTED)
def test_beta_must_be_given_and_not_negative(name):
    with pytest.raises(ValueError, match="beta"):
        FRAMEWORKS[name].params()
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        FRAMEWORKS[name].params(beta=-0.1)


def test_a_batch_counts_by_its_mean(framework, params, model, batch, step):
    """Two copies of a batch have the KL of one: a sum over images would double it."""
    twice = replace(batch, x=batch.x.repeat(2, 1, 1, 1), pair=batch.pair.repeat(2, 1, 1, 1))
    once = framework.loss(model, batch, params, step()).parts["kl"]
    torch.testing.assert_close(framework.loss(model, twice, params, step()).parts["kl"], once)


def test_single_images_need_no_partner(framework, params, model, batch, step):
    if framework.draws == "single":
        alone = framework.loss(model, replace(batch, pair=None), params, step())
        assert torch.equal(alone.recon, framework.loss(model, batch, params, step()).recon)
    else:
        assert params.pairs in PAIR_LAWS
