"""The Laplace likelihood against torch's distribution."""

import pytest
import torch
from torch.distributions import Laplace

from disentune.recon import mae
from disentune.recon.laplace import RECON, Params


@pytest.mark.parametrize("scale", [1.0, 0.1, 3.0])
def test_the_loss_is_the_negative_log_likelihood(scale):
    output, target = torch.randn(2, 3, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = -Laplace(output, scale).log_prob(target).sum(dim=(1, 2, 3))
    torch.testing.assert_close(RECON.per_image(output, target, Params(scale=scale)), expected)


def test_gradients_are_those_of_the_absolute_error_over_the_scale():
    output = torch.randn(1, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    (ours,) = torch.autograd.grad(RECON.per_image(output, target, Params()).sum(), output)
    (theirs,) = torch.autograd.grad(mae.per_image(output, target, mae.Params()).sum(), output)
    torch.testing.assert_close(ours, theirs / 0.1)


def test_the_scale_is_that_of_the_paper_unless_set():
    assert Params().scale == 0.1
