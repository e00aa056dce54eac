"""Gaussian likelihood against torch's own distribution, in float64."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch.distributions import Normal
from torch.nn.functional import softplus

from disentune.recon.normal import FLOOR, RECON, Params

LEARNED = Params(std="learned")


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("std", [1.0, 0.1, 3])
def test_a_fixed_std_gives_minus_the_likelihood_in_nats(std):
    output, target = numbers(2, 3, 2, 4, 5)
    expected = -Normal(output, std).log_prob(target).sum(dim=(1, 2, 3))
    torch.testing.assert_close(RECON.per_image(output, target, Params(std=std)), expected)
    torch.testing.assert_close(RECON.distance(output, target, Params(std=std)), expected)


def test_the_std_is_one_unless_said():
    assert Params().std == 1


def test_a_learned_std_is_the_softplus_of_the_second_half_of_the_channels():
    output, target = numbers(3, 4, 4, 5), numbers(3, 2, 4, 5, seed=1)
    std = softplus(output[:, 2:]) + FLOOR
    expected = -Normal(output[:, :2], std).log_prob(target).sum(dim=(1, 2, 3))
    torch.testing.assert_close(RECON.per_image(output, target, LEARNED), expected)
    assert RECON.to_image(output, LEARNED).equal(output[:, :2])


def test_only_a_learned_std_needs_more_channels():
    assert RECON.channels(3, LEARNED) == 6
    assert RECON.channels(3, Params(std=0.5)) == 3


def test_the_best_std_is_the_size_of_the_error():
    error = numbers(1, 1, 4, 5).abs() + 0.1
    raw = torch.log(torch.expm1(error - FLOOR)).requires_grad_()
    output = torch.cat([torch.zeros_like(error), raw], dim=1)
    (slope,) = torch.autograd.grad(RECON.per_image(output, error, LEARNED).sum(), raw)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_an_exact_pixel_gains_no_more_than_the_floor_allows():
    output = torch.zeros(1, 2, 1, 1)
    output[:, 1] = -1e4  # softplus is 0 here
    output.requires_grad_()
    loss = RECON.per_image(output, torch.zeros(1, 1, 1, 1), LEARNED)
    assert loss.item() == pytest.approx(math.log(FLOOR) + math.log(2 * math.pi) / 2)
    loss.sum().backward()
    assert output.grad.isfinite().all()


def test_distances_between_images_take_a_learned_std_for_one():
    a, b = numbers(2, 3, 2, 4, 5)
    torch.testing.assert_close(RECON.distance(a, b, LEARNED), RECON.distance(a, b, Params(std=1.0)))
    raw = torch.full_like(a, math.log(math.expm1(1 - FLOOR)))
    torch.testing.assert_close(RECON.distance(a, b, LEARNED), RECON.per_image(torch.cat([a, raw], dim=1), b, LEARNED))


@pytest.mark.parametrize("std", [0, -1.0, "learnt", "1", True, None, math.inf, math.nan, [1.0]])
def test_any_other_std_is_refused_in_one_sentence(std):
    with pytest.raises(ValidationError) as raised:
        Params(std=std)
    (mistake,) = raised.value.errors()
    assert mistake["loc"] == ("std",)
    assert mistake["msg"].endswith(f"must be a number > 0 or the word learned, got {std!r}")


def test_any_range_will_do():
    assert not RECON.needs_unit_range(Params())
    assert not RECON.needs_unit_range(LEARNED)
