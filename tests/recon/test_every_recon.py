"""What every reconstruction loss of the catalogue must do, whatever its parameters."""

from itertools import product
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from disentune.recon import RECONS

SHAPE = (2, 9, 12)
EXAMPLES = {"radius": 3, "alpha": 20.0, "std": 0.3, "scale": 0.2}
TAPS = [0.4, 0.1, 0.0, 0.3]
"""Of a learned kernel with the radius above."""
LAYOUTS = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "columns first": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "cropped": lambda x: pad(x, (1, 2, 1, 0))[..., 1:, 1:-2],
}


def words(annotation):
    """Every value of every Literal in a type."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [word for part in get_args(annotation) for word in words(part)]


def options(key, field):
    """Values to try; a required field without any gets none, and its params refuse that loudly."""
    return [EXAMPLES[word] for word in EXAMPLES if word == key] + words(field.annotation) or [field.default]


def variants(recon):
    """Params with every combination of the words that may be chosen, so that a new word is tested by itself."""
    fields = recon.params.model_fields
    values = product(*(options(key, field) for key, field in fields.items()))
    chosen = [dict(zip(fields, value, strict=True)) for value in values]
    return [recon.params(**value | ({"taps": TAPS} if value.get("kernel") == "learned" else {})) for value in chosen]


CASES = [
    pytest.param((recon, params), id=f"{recon.name} {params}".strip()) for recon in RECONS for params in variants(recon)
]


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def recon(case):
    return case[0]


@pytest.fixture
def params(case):
    return case[1]


def outputs(recon, params, n=4, seed=0):
    """Any decoder's output, (n, channels, h, w)."""
    shape = (n, recon.channels(SHAPE[0], params), *SHAPE[1:])
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def images(n=4, seed=1):
    """Targets in [0, 1]."""
    return torch.from_numpy(np.random.default_rng(seed).random(size=(n, *SHAPE)))


def loss_and_gradient(recon, params, output, target):
    output = output.detach().requires_grad_()
    loss = recon.per_image(output, target, params)
    return loss.detach(), torch.autograd.grad(loss.sum(), output)[0]


def test_one_number_an_image(recon, params):
    loss = recon.per_image(outputs(recon, params), images(), params)
    assert loss.shape == (4,)
    assert loss.dtype == torch.float64
    assert loss.isfinite().all()


def test_images_of_a_batch_do_not_see_each_other(recon, params):
    output, target = outputs(recon, params), images()
    alone = [recon.per_image(output[i : i + 1], target[i : i + 1], params) for i in range(4)]
    torch.testing.assert_close(recon.per_image(output, target, params), torch.cat(alone))


def test_inputs_are_left_as_they_were(recon, params):
    output, target = outputs(recon, params), images()
    loss_and_gradient(recon, params, output, target)
    recon.distance(target, target, params)
    assert output.equal(outputs(recon, params))
    assert target.equal(images())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_numbers_lie_in_memory_changes_nothing(recon, params, layout):
    output, target = outputs(recon, params), images()
    plain = loss_and_gradient(recon, params, output, target)
    other, other_target = LAYOUTS[layout](output), LAYOUTS[layout](target)
    assert not other.is_contiguous()
    torch.testing.assert_close(loss_and_gradient(recon, params, other, target), plain)
    torch.testing.assert_close(loss_and_gradient(recon, params, output, other_target), plain)
    torch.testing.assert_close(loss_and_gradient(recon, params, other, other_target), plain)
    distance = recon.distance(target, target.flip(0), params)
    torch.testing.assert_close(recon.distance(other_target, target.flip(0), params), distance)


def test_the_distance_is_the_loss_of_a_decoder_that_shows_the_first_image(recon, params):
    if recon.channels(SHAPE[0], params) != SHAPE[0]:
        pytest.skip("its outputs say more than an image does")
    output, b = outputs(recon, params), images()
    torch.testing.assert_close(
        recon.distance(recon.to_image(output, params), b, params), recon.per_image(output, b, params)
    )


def test_no_image_is_nearer_than_the_same_one(recon, params):
    a = images()
    nearest = recon.distance(a, a, params)
    for seed in range(2, 6):
        away = a + 0.1 * (images(seed=seed) - a)
        assert (recon.distance(away, a, params) > nearest).all()


def test_the_gradient_is_that_of_finite_differences(recon, params):
    target = images(2)
    output = outputs(recon, params, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: recon.per_image(x, target, params), output)


def test_single_precision_agrees(recon, params):
    output, target = outputs(recon, params), images()
    single = recon.per_image(output.float(), target.float(), params)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), recon.per_image(output, target, params), rtol=1e-5, atol=0)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("extreme", [-200.0, 40.0])
def test_black_and_white_give_finite_losses_and_gradients(recon, params, value, extreme):
    output = torch.full_like(outputs(recon, params, 1), extreme, dtype=torch.float32)
    loss, gradient = loss_and_gradient(recon, params, output, torch.full((1, *SHAPE), value))
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert recon.distance(torch.ones(1, *SHAPE), torch.full((1, *SHAPE), value), params).isfinite().all()


def test_a_first_use_without_gradients_does_not_spoil_later_ones(recon, params):
    output, target = outputs(recon, params)[..., 1:, 2:], images()[..., 1:, 2:]  # a size that no other test warms up
    with torch.inference_mode():
        recon.per_image(output, target, params)
    assert loss_and_gradient(recon, params, output, target)[1].isfinite().all()


def test_ordinary_images_pass_the_check(recon, params):
    recon.check(SHAPE, params)


def test_the_image_of_an_output_has_the_shape_of_a_target(recon, params):
    image = recon.to_image(outputs(recon, params), params)
    assert image.shape == images().shape
    if recon.needs_unit_range(params):
        assert ((image >= 0) & (image <= 1)).all()
