"""From indices to tensors: the published statistics, [0, 1], and noise that belongs to an image."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from disentune.learn.transforms import Pixels, disturbed, fits, inputs, moved
from disentune.plugin import Statistics

CPU = torch.device("cpu")
IMAGES = np.array([[[[0, 255]], [[51, 102]]]], dtype=np.uint8)


def data(images=IMAGES, **more):
    def taken(indices, rng=None):
        return images[indices]

    class Data(SimpleNamespace):
        def __len__(self):
            return len(images)

    known = {"shape": images.shape[1:], "mean": (0.25, 0.5), "std": (0.5, 2.0), "noisy": False}
    return Data(images=taken, **known | more)


def made(images=IMAGES, published=None, **pixels):
    return inputs(Pixels(**pixels), data(images), CPU, published)


ONE = np.array([0])


def test_unit_is_the_pixel_over_255():
    x = made(transform="unit")(ONE)
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == pytest.approx([0, 1, 0.2, 0.4])


def test_standardise_subtracts_the_mean_and_divides_by_the_std_of_each_channel():
    expected = [(0 - 0.25) / 0.5, (1 - 0.25) / 0.5, (0.2 - 0.5) / 2, (0.4 - 0.5) / 2]
    assert made()(ONE).flatten().tolist() == pytest.approx(expected)


def test_published_constants_take_the_place_of_computed_ones():
    x = made(statistics="published", published=Statistics((0.0, 0.2), (1.0, 0.1)))(ONE)
    assert x.flatten().tolist() == pytest.approx([0, 1, 0, 2])


def test_unit_knows_no_statistics():
    constants = Statistics((0.0, 0.2), (1.0, 0.1))
    x = made(transform="unit", statistics="published", published=constants)(ONE)
    assert x.flatten().tolist() == pytest.approx([0, 1, 0.2, 0.4])


def test_points_are_no_255ths():
    points = np.array([[[[-1.5, 2]], [[0.5, 300]]]], dtype=np.float32)
    assert made(points, transform="unit")(ONE).flatten().tolist() == pytest.approx([-1.5, 2, 0.5, 300])
    assert made(points)(ONE).flatten().tolist() == pytest.approx([-3.5, 3.5, 0, 149.75])


def test_the_images_it_is_given_stay_as_they_are():
    for pixels in ({}, {"noise": 0.5}):
        before = IMAGES.copy()
        given = inputs(Pixels(**pixels), data(IMAGES), CPU)
        given(ONE)
        assert (before == IMAGES).all()


def test_images_kept_on_the_device_are_the_same_to_the_bit():
    images = np.random.default_rng(0).integers(0, 256, size=(7, 2, 3, 3), dtype=np.uint8)
    indices = np.array([6, 0, 3, 3])
    for pixels in ({}, {"noise": 0.25}, {"transform": "unit"}):
        read = inputs(Pixels(**pixels), data(images), CPU)
        kept = replace(read, resident=moved(read.data, CPU))
        assert torch.equal(read(indices), kept(indices))


def test_only_a_gpu_and_images_without_noise_can_be_kept_there():
    assert not fits(data(), CPU)
    assert not fits(data(noisy=True), torch.device("cuda"))


# ---- noise


def grey(n=2000, level=0.5):
    return torch.full((n, 1, 4, 4), level)


def keys(n=2000):
    return torch.arange(n)


def test_noise_is_uniform_within_its_amplitude():
    noise = (disturbed(grey(), keys(), 0.1) - 0.5).flatten().double()
    assert noise.abs().max() <= 0.1 + 1e-7  # one rounding in float32
    assert noise.mean().abs() < 4 * 0.1 / (3 * len(noise)) ** 0.5  # four standard errors of a uniform law
    assert noise.var() == pytest.approx(0.1**2 / 3, rel=0.03)
    below = torch.quantile(noise[:20_000], torch.tensor([0.25, 0.5, 0.75], dtype=torch.double))
    assert below.tolist() == pytest.approx([-0.05, 0, 0.05], abs=0.003)


def test_noise_is_reflected_at_black_and_white():
    """x' - 2 relu(x' - 1) + 2 relu(-x'), with the noise seen on a grey that no noise drives out of range."""
    noise = disturbed(grey(), keys(), 0.3) - 0.5
    for level in (0.0, 0.1, 0.9, 1.0):
        moved_ = level + noise
        expected = moved_ - 2 * torch.relu(moved_ - 1) + 2 * torch.relu(-moved_)
        found = disturbed(grey(level=level), keys(), 0.3)
        assert torch.allclose(found, expected, atol=1e-6)  # float32 sums in another order
        assert found.min() >= 0
        assert found.max() <= 1


def test_noise_belongs_to_an_image_wherever_it_is_drawn():
    images = np.full((50, 2, 3, 5), 128, np.uint8)
    noisy = inputs(Pixels(noise=0.2), data(images), CPU)
    every = noisy(np.arange(50))
    assert torch.equal(noisy(np.array([40, 7, 40])), every[[40, 7, 40]])
    assert len(torch.unique(every, dim=0)) == 50
    assert len(torch.unique(every[0])) == 30


def test_no_images_and_views_that_run_backwards_are_fine():
    images = np.full((5, 2, 3, 5), 128, np.uint8)
    noisy = inputs(Pixels(noise=0.2), data(images), CPU)
    assert noisy(np.array([], int)).shape == (0, 2, 3, 5)
    assert torch.equal(noisy(np.arange(5)[::-1]), noisy(np.arange(5)).flip(0))


def test_no_noise_is_no_change():
    assert torch.equal(made(noise=0.0)(ONE), made()(ONE))


def test_noise_comes_before_standardising():
    unit = made(noise=0.3, transform="unit")(ONE)
    mean, std = torch.tensor([0.25, 0.5]).reshape(1, 2, 1, 1), torch.tensor([0.5, 2.0]).reshape(1, 2, 1, 1)
    assert torch.allclose(made(noise=0.3)(ONE), (unit - mean) / std)
