"""Cross-entropy against its definition."""

import math

import pytest
import torch
from torch.distributions import Bernoulli

from disentune.recon.bce import RECON, SURE, Params


def test_the_loss_is_minus_the_bernoulli_likelihood():
    logits = torch.randn(3, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = (torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(1)) > 0.5).double()
    expected = -Bernoulli(logits=logits).log_prob(target).sum(dim=(1, 2, 3))
    torch.testing.assert_close(RECON.per_image(logits, target, Params()), expected)


def test_grey_targets_weigh_both_answers():
    logits, target = torch.zeros(1, 1, 2, 2, dtype=torch.float64) + 1, torch.full((1, 1, 2, 2), 0.25).double()
    p = 1 / (1 + math.exp(-1))
    expected = -4 * (0.25 * math.log(p) + 0.75 * math.log(1 - p))
    assert RECON.per_image(logits, target, Params()).item() == pytest.approx(expected)


def test_a_wrong_black_or_white_pixel_costs_the_clamped_probability():
    black, white = torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1, dtype=torch.float64)
    assert RECON.distance(black, white, Params()).item() == pytest.approx(-math.log(SURE))
    assert RECON.distance(white, black, Params()).item() == pytest.approx(-math.log(SURE))
    assert RECON.distance(white, white, Params()).item() == pytest.approx(-math.log1p(-SURE))


def test_targets_must_lie_in_the_unit_range():
    assert RECON.needs_unit_range(Params())
    assert RECON.to_image(torch.zeros(1), Params()).item() == 0.5
