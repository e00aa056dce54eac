"""The maximum mean discrepancy against double loops and the closed form of two Gaussians."""

import math

import numpy as np
import pytest
import torch

from disentune.frameworks.mmd import KERNELS, imq, mmd, rbf, squared_distances

SLOW_KERNELS = {
    "rbf": lambda squares, scale: math.exp(-squares / scale),
    "imq": lambda squares, scale: scale / (scale + squares),
}


def normals(seed, n, d, mean=0.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, size=(n, d)))


def slow_mmd(x, y, kernel, scale):
    def mean(a, b, same):
        pairs = [(p, q) for i, p in enumerate(a) for j, q in enumerate(b) if not (same and i == j)]
        values = [kernel(sum((u - v) ** 2 for u, v in zip(p, q, strict=True)), scale) for p, q in pairs]
        return sum(values) / len(values)

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_agrees_with_double_loops(kernel):
    """Pairs of a point with itself are left out within a sample; across, the i-th with the i-th counts."""
    x, y = normals(0, 5, 3), normals(1, 7, 3, mean=1)
    expected = slow_mmd(x.tolist(), y.tolist(), SLOW_KERNELS[kernel], 4.0)
    assert mmd(x, y, KERNELS[kernel], 4.0).item() == pytest.approx(expected, rel=1e-12)


def test_kernels_are_one_at_no_distance_and_fall():
    squares = torch.tensor([0.0, 2.0, 8.0])
    assert rbf(squares, 2.0).tolist() == pytest.approx([1, math.exp(-1), math.exp(-4)])
    assert imq(squares, 2.0).tolist() == pytest.approx([1, 1 / 2, 1 / 5])


@pytest.mark.parametrize("kernel", KERNELS)
def test_samples_of_one_law_have_none_in_the_mean(kernel):
    """The self-pairs of a biased estimate would lift the mean by about 2 / n, here 0.1: far above 4 standard errors."""
    values = torch.stack(
        [mmd(normals(2 * s, 20, 3), normals(2 * s + 1, 20, 3), KERNELS[kernel], 6.0) for s in range(400)]
    )
    assert abs(values.mean()) < 4 * values.std() / math.sqrt(400)
    assert (values < 0).any()
    assert 4 * values.std() / math.sqrt(400) < 0.01


def test_two_gaussians_have_the_closed_form():
    """x - y is N(shift, 2) in each latent, and E exp(-(x - y)^2 / s) = (1 + 4 / s)^(-1/2) exp(-shift^2 / (s + 4))."""
    scale, shift, d = 6.0, 0.7, 3
    same = (1 + 4 / scale) ** (-d / 2)
    expected = 2 * same * (1 - math.exp(-d * shift**2 / (scale + 4)))
    pairs = ((normals(2 * s, 200, d), normals(2 * s + 1, 200, d, mean=shift)) for s in range(50))
    values = torch.stack([mmd(x, y, rbf, scale) for x, y in pairs])
    assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(50)
    assert values.std() / math.sqrt(50) < expected / 20


def test_equal_codes_have_finite_gradients():
    x = torch.zeros(4, 3, requires_grad=True)
    for kernel in KERNELS.values():
        (gradient,) = torch.autograd.grad(mmd(x, torch.ones(5, 3), kernel, 2.0), x)
        assert gradient.isfinite().all()
        assert gradient.any()


def test_distances_of_equal_rows_are_exactly_zero():
    x = normals(0, 6, 3) * 1e4
    assert not squared_distances(x, x).diagonal().any()
