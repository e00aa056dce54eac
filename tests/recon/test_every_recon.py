"""What every reconstruction loss of the catalogue must do."""

import numpy as np
import pytest
import torch

from disentune.recon import RECONS

SHAPE = (2, 9, 12)
EXAMPLES = {"radius": 3, "alpha": 20.0}


@pytest.fixture(params=RECONS.names())
def recon(request):
    return RECONS[request.param]


@pytest.fixture
def params(recon):
    required = [key for key, field in recon.params.model_fields.items() if field.is_required()]
    return recon.params(**{key: EXAMPLES[key] for key in required})


def numbers(n=4, seed=0):
    """Any decoder's output, (n, c, h, w)."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, *SHAPE)))


def images(n=4, seed=1):
    """Targets in [0, 1]."""
    return torch.from_numpy(np.random.default_rng(seed).random(size=(n, *SHAPE)))


def test_one_number_an_image(recon, params):
    loss = recon.per_image(numbers(), images(), params)
    assert loss.shape == (4,)
    assert loss.dtype == torch.float64
    assert (loss > 0).all()


def test_images_of_a_batch_do_not_see_each_other(recon, params):
    together = recon.per_image(numbers(), images(), params)
    alone = [recon.per_image(numbers()[i : i + 1], images()[i : i + 1], params) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_the_distance_is_the_loss_of_a_decoder_that_shows_the_first_image(recon, params):
    output, b = numbers(), images()
    torch.testing.assert_close(recon.distance(recon.to_image(output), b, params), recon.per_image(output, b, params))


def test_no_image_is_nearer_than_the_same_one(recon, params):
    a = images()
    nearest = recon.distance(a, a, params)
    for seed in range(2, 6):
        away = a + 0.1 * (images(seed=seed) - a)
        assert (recon.distance(away, a, params) > nearest).all()


def test_the_gradient_is_that_of_finite_differences(recon, params):
    target = images(2)
    output = numbers(2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: recon.per_image(x, target, params), output)


def test_single_precision_agrees(recon, params):
    single = recon.per_image(numbers().float(), images().float(), params)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), recon.per_image(numbers(), images(), params), rtol=1e-5, atol=0)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_black_and_white_give_finite_losses_and_gradients(recon, params, value):
    output = torch.full((1, *SHAPE), 40.0, requires_grad=True)
    recon.per_image(output, torch.full((1, *SHAPE), value), params).sum().backward()
    assert output.grad.isfinite().all()
    assert recon.distance(torch.ones(1, *SHAPE), torch.full((1, *SHAPE), value), params).isfinite().all()


def test_ordinary_images_pass_the_check(recon, params):
    recon.check(SHAPE, params)


def test_the_image_of_an_output_has_its_shape(recon):
    image = recon.to_image(numbers())
    assert image.shape == numbers().shape
    if recon.needs_unit_range:
        assert ((image >= 0) & (image <= 1)).all()
