"""The overlap loss against direct convolution and autograd, in float64."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.signal import convolve2d
from torch.distributions import Bernoulli, Laplace, Normal
from torch.nn.functional import conv2d

from disentune.data import load
from disentune.data.factors import FactorGrid
from disentune.recon.bce import SURE
from disentune.recon.overlap import RECON, Params, blur_matrix, one_side

# facts of the paper's code: 64x64, box of radius 31, alpha 3969; one square moved in a middle row, error / 12288
FROM_0 = [0, 0.03668, 0.07578, 0.11487, 0.15885, 0.19795, 0.23704, 0.27614]
FROM_3 = [0.11487, 0.07578, 0.03668, 0, 0.04157, 0.08066, 0.11976, 0.15885]
TAPS = [0.3, 0.0, 0.2]
BLURS = [
    ("learned", 2, (5, 8)),
    ("box", 2, (5, 8)),
    ("box", 4, (8, 8)),
    ("gaussian", 4, (9, 6)),
    ("gaussian", 1, (4, 4)),
    ("box", 7, (8, 8)),
]
LOSSES = ["mse", "mae", "bce", "normal"]
PIXELS = {  # (shown, target) -> loss of each pixel; logits have become probabilities before
    "mse": lambda shown, target: (shown - target).square(),
    "mae": lambda shown, target: -Laplace(shown, 1.0).log_prob(target) - math.log(2),
    "bce": lambda shown, target: -Bernoulli(probs=shown, validate_args=False).log_prob(target),
    "normal": lambda shown, target: -Normal(shown, 1.0).log_prob(target),
}


def matrix(size, kernel, radius):
    return blur_matrix(size, one_side(Params(kernel=kernel, radius=radius, alpha=1)))


def kernel_keys(kernel):
    return {"kernel": kernel, "taps": TAPS} if kernel == "learned" else {"kernel": kernel}


def kernel_2d(kernel, radius):
    apart = np.arange(-radius, radius + 1)
    if kernel == "learned":
        line = np.array([TAPS[abs(step)] for step in apart])
    else:
        line = np.ones_like(apart) if kernel == "box" else np.exp(-(apart**2) / (2 * (radius / 4) ** 2))
    return np.outer(line, line) / np.outer(line, line).sum()


def by_scipy(images, params):
    kernel = kernel_2d(params.kernel, params.radius)
    return torch.tensor(np.array([[convolve2d(plane, kernel, "same") for plane in one] for one in images.numpy()]))


def by_torch(images, params):
    kernel = torch.from_numpy(kernel_2d(params.kernel, params.radius))
    weight = kernel.expand(images.shape[1], 1, *kernel.shape)
    return conv2d(images, weight, padding=params.radius, groups=images.shape[1])


def equation_11(output, target, params, blur):
    pixel = PIXELS[params.loss]
    shown = torch.sigmoid(output) if params.loss == "bce" else output
    blurred = pixel(blur(shown, params), blur(target, params))
    if params.loss == "normal":
        blurred = blurred - math.log(2 * math.pi) / 2  # its constant is left out
    return (pixel(shown, target) + params.alpha * blurred).sum(dim=(1, 2, 3))


@pytest.fixture(params=BLURS, ids=str)
def blur(request):
    return request.param


@pytest.fixture(params=LOSSES)
def case(request, blur):
    """Output, target and params."""
    kernel, radius, size = blur
    rng = np.random.default_rng(0)
    output, target = torch.tensor(rng.normal(size=(3, 2, *size))), torch.tensor(rng.random(size=(3, 2, *size)))
    return output, target, Params(loss=request.param, radius=radius, alpha=9, **kernel_keys(kernel))


def test_the_value_is_that_of_direct_convolution(case):
    output, target, params = case
    torch.testing.assert_close(
        RECON.per_image(output, target, params), equation_11(*case, by_scipy), rtol=1e-12, atol=0
    )


def test_the_gradients_are_those_of_autograd_through_the_blur(case):
    output, target, params = case
    weights = torch.arange(1.0, 4.0, dtype=torch.float64)  # images of a batch may weigh differently

    def gradients(loss):
        pair = output.clone().requires_grad_(), target.clone().requires_grad_()
        return torch.autograd.grad((weights * loss(*pair)).sum(), pair)

    ours = gradients(lambda x, y: RECON.per_image(x, y, params))
    torch.testing.assert_close(ours, gradients(lambda x, y: equation_11(x, y, params, by_torch)))


@pytest.mark.parametrize("loss", LOSSES)
def test_without_alpha_it_is_the_pixel_wise_loss(loss):
    output, target = torch.rand(2, 3, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shown = torch.sigmoid(output) if loss == "bce" else output
    expected = PIXELS[loss](shown, target).sum(dim=(1, 2, 3))
    torch.testing.assert_close(RECON.per_image(output, target, Params(loss=loss, radius=2, alpha=0)), expected)


@pytest.mark.parametrize("loss", ["mse", "mae", "normal"])
def test_the_gradient_counts_as_a_constant(loss):
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    value = RECON.per_image(x, torch.zeros(1, 1, 4, 4), Params(loss=loss, radius=1, alpha=1)).sum()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    assert not slope.requires_grad


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"kernel": "learned"}, "needs its taps"),
        ({"kernel": "learned", "taps": [1.0, 0.5]}, "radius 2 needs 3 weights, got 2"),
        ({"kernel": "learned", "taps": [0.0, 0.0, 0.0]}, "must not all be 0"),
        ({"kernel": "learned", "taps": [1.0, -0.5, 0.0]}, "greater than or equal to 0"),
        ({"kernel": "box", "taps": [1.0, 0.5, 0.0]}, "only for kernel: learned"),
    ],
)
def test_taps_that_make_no_kernel_are_refused(keys, expected):
    with pytest.raises(ValidationError, match=expected):
        Params(radius=2, alpha=1, **keys)


@pytest.mark.parametrize("kernel", ["box", "gaussian"])
def test_a_known_kernel_may_be_written_as_taps(kernel):
    known = Params(kernel=kernel, radius=3, alpha=1)
    side = one_side(known)
    learned = Params(kernel="learned", radius=3, alpha=1, taps=list(side / side.max()))
    np.testing.assert_allclose(blur_matrix(9, one_side(learned)), blur_matrix(9, side), rtol=1e-15)


def test_taps_change_the_id_only_of_learned_kernels():
    assert "taps" not in Params(radius=2, alpha=1).model_dump()


def test_squared_error_is_the_default():
    assert Params(radius=1, alpha=1).loss == "mse"


def test_only_cross_entropy_takes_logits_and_targets_of_the_unit_range():
    for loss in LOSSES:
        params = Params(loss=loss, radius=1, alpha=1)
        assert RECON.needs_unit_range(params) == (loss == "bce")
        assert RECON.to_image(torch.zeros(1), params).item() == (0.5 if loss == "bce" else 0)


@pytest.mark.parametrize("kernel", ["box", "gaussian"])
def test_white_images_that_round_beyond_one_still_have_a_cross_entropy(kernel):
    """In float32 the weights of some windows add up to more than 1; which ones is up to the machine."""
    white = torch.ones(1, 1, 64, 64)
    for radius in range(1, 64):
        assert RECON.per_image(40 * white, white, Params(loss="bce", kernel=kernel, radius=radius, alpha=1)) >= 0


def test_a_blurred_pixel_that_is_surely_wrong_costs_the_clamped_probability():
    params, pixel = Params(loss="bce", kernel="gaussian", radius=1, alpha=2), torch.ones(1, 1, 1, 1).double()
    seen = matrix(1, "gaussian", 1).item() ** 2  # the share of the kernel that falls inside
    loss = RECON.per_image(-100 * pixel, pixel, params).item()
    expected = 100 + 2 * (-seen * math.log(SURE) - (1 - seen) * math.log1p(-SURE))
    assert loss == pytest.approx(expected)


def test_blur_weights_sum_to_one_inside_and_to_less_at_the_border():
    rows = matrix(9, "box", 2).sum(axis=1)
    np.testing.assert_allclose(rows, [0.6, 0.8, 1, 1, 1, 1, 1, 0.8, 0.6])
    assert matrix(99, "gaussian", 8).sum(axis=1)[49] == pytest.approx(1)


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


@pytest.mark.parametrize(
    "wrong", [{"radius": 0}, {"alpha": -1}, {"kernel": "sinc"}, {"loss": "bernoulli"}, {"radius": 1.5}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        Params(**({"radius": 2, "alpha": 1} | wrong))


def test_the_widest_useful_radius_passes_and_the_next_is_refused():
    RECON.check((3, 64, 48), Params(radius=63, alpha=1))
    with pytest.raises(ValueError, match="radius must be 1 to 63 for images of 64x48, but is 64"):
        RECON.check((3, 64, 48), Params(radius=64, alpha=1))


def test_the_gaussian_loss_keeps_its_nats_in_single_precision():
    """At the paper's alpha the constant of the blurred image would be 4.5e7, where float32 counts in steps of 4."""
    target = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    output, params = target + 0.01 * target.roll(5, dims=3), Params(loss="normal", radius=31, alpha=3969)
    exact = RECON.per_image(output, target, params)
    torch.testing.assert_close(
        RECON.per_image(output.float(), target.float(), params).double(), exact, rtol=0, atol=0.05
    )
