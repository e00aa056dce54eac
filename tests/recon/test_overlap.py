"""The overlap loss against direct convolution and autograd, in float64."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.signal import convolve2d

from disentune.data import load
from disentune.data.factors import FactorGrid
from disentune.recon.overlap import RECON, Params, blur_matrix

# facts of the paper's code: 64x64, box of radius 31, alpha 3969; one square moved in a middle row, error / 12288
FROM_0 = [0, 0.03668, 0.07578, 0.11487, 0.15885, 0.19795, 0.23704, 0.27614]
FROM_3 = [0.11487, 0.07578, 0.03668, 0, 0.04157, 0.08066, 0.11976, 0.15885]
CASES = [("box", 2, (5, 8)), ("box", 4, (8, 8)), ("gaussian", 4, (9, 6)), ("gaussian", 1, (4, 4)), ("box", 7, (8, 8))]


def kernel_2d(kernel, radius):
    apart = np.arange(-radius, radius + 1)
    line = np.ones_like(apart) if kernel == "box" else np.exp(-(apart**2) / (2 * (radius / 4) ** 2))
    return np.outer(line, line) / np.outer(line, line).sum()


def slow_loss(output, target, params):
    error = output - target
    blurred = [[convolve2d(plane, kernel_2d(params.kernel, params.radius), "same") for plane in one] for one in error]
    return (error**2).sum(axis=(1, 2, 3)) + params.alpha * (np.array(blurred) ** 2).sum(axis=(1, 2, 3))


@pytest.fixture(params=CASES, ids=str)
def case(request):
    kernel, radius, size = request.param
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2, *size)), rng.normal(size=(3, 2, *size)), Params(kernel=kernel, radius=radius, alpha=9)


def test_the_value_is_that_of_direct_convolution(case):
    output, target, params = case
    value = RECON.per_image(torch.from_numpy(output), torch.from_numpy(target), params)
    np.testing.assert_allclose(value.numpy(), slow_loss(output, target, params), rtol=1e-12)


def test_the_gradient_is_that_of_autograd_through_the_blur(case):
    output, target, params = case
    blurs = [torch.from_numpy(blur_matrix(size, params.kernel, params.radius)) for size in output.shape[2:]]

    def gradient(loss):
        x = torch.from_numpy(output).requires_grad_()
        weights = torch.arange(1.0, 4.0, dtype=torch.float64)  # images of a batch may weigh differently
        return torch.autograd.grad((weights * loss(x - torch.from_numpy(target))).sum(), x)[0]

    def plain(error):
        blurred = blurs[0] @ error @ blurs[1]
        return (error.square() + params.alpha * blurred.square()).sum(dim=(1, 2, 3))

    ours = gradient(lambda error: RECON.per_image(error, torch.zeros_like(error), params))
    torch.testing.assert_close(ours, gradient(plain))


def test_the_gradient_reaches_the_target_too():
    x, y = (torch.ones(1, 1, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    RECON.per_image(2 * x, y, Params(radius=1, alpha=1)).sum().backward()
    torch.testing.assert_close(x.grad, -2 * y.grad)


def test_blur_weights_sum_to_one_inside_and_to_less_at_the_border():
    rows = blur_matrix(9, "box", 2).sum(axis=1)
    np.testing.assert_allclose(rows, [0.6, 0.8, 1, 1, 1, 1, 1, 0.8, 0.6])
    assert blur_matrix(99, "gaussian", 8).sum(axis=1)[49] == pytest.approx(1)


def test_without_alpha_it_is_the_squared_error():
    x, y = torch.randn(2, 3, 1, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(RECON.per_image(x, y, Params(radius=2, alpha=0)), (x - y).square().sum(dim=(1, 2, 3)))


@pytest.mark.parametrize(("origin", "expected"), [(0, FROM_0), (3, FROM_3)])
def test_distances_of_xysquares_are_those_of_the_paper(origin, expected):
    data = load("xysquares")
    factors = np.array([[x, 3, 0, 0, 0, 0] for x in range(8)])
    images = torch.from_numpy(data.images(FactorGrid(data.factor_names, data.factor_sizes).index(factors)) / 255.0)
    distance = RECON.distance(images, images[[origin] * 8], Params(radius=31, alpha=3969))
    np.testing.assert_allclose(distance / 12288, expected, atol=5.1e-6)  # five digits are published


def test_blurring_orders_what_squared_error_cannot():
    images = torch.from_numpy(load("xysquares").images(np.arange(8)) / 255.0)
    distance = RECON.distance(images, images[[0] * 8], Params(radius=31, alpha=3969))
    assert (distance.diff() > 0).all()


def test_a_first_use_without_gradients_does_not_spoil_later_ones():
    params = Params(radius=2, alpha=3)
    with torch.inference_mode():
        RECON.per_image(torch.ones(1, 1, 13, 17), torch.zeros(1, 1, 13, 17), params)
    x = torch.ones(1, 1, 13, 17, requires_grad=True)
    RECON.per_image(x, torch.zeros(1, 1, 13, 17), params).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("wrong", [{"radius": 0}, {"alpha": -1}, {"kernel": "sinc"}, {"radius": 1.5}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        Params(**({"radius": 2, "alpha": 1} | wrong))


def test_the_widest_useful_radius_passes_and_the_next_is_refused():
    RECON.check((3, 64, 48), Params(radius=63, alpha=1))
    with pytest.raises(ValueError, match="radius must be 1 to 63 for images of 64x48, but is 64"):
        RECON.check((3, 64, 48), Params(radius=64, alpha=1))
