"""Ada-ML-VAE's average; the whole loss is tested in test_adaptive.py."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from disentune.frameworks.ada_ml_vae import product
from disentune.plugin import Posterior


def of(mean, variance):
    return Posterior(torch.tensor([[mean]]).double(), torch.tensor([[variance]]).double().log())


def test_it_is_the_product_of_both_densities_with_twice_its_variance():
    """By numerical integration of N(z; 1, 0.5) N(z; -0.4, 2)."""

    def density(z):
        return norm.pdf(z, 1.0, np.sqrt(0.5)) * norm.pdf(z, -0.4, np.sqrt(2.0))

    total, mean = quad(density, -20, 20)[0], quad(lambda z: z * density(z), -20, 20)[0]
    variance = quad(lambda z: (z - mean / total) ** 2 * density(z), -20, 20)[0] / total
    ours = product(of(1.0, 0.5), of(-0.4, 2.0))
    assert ours.mean.item() == pytest.approx(mean / total)
    assert ours.logvar.exp().item() == pytest.approx(2 * variance)


def test_equal_variances_are_kept_and_their_means_averaged():
    ours = product(of(1.0, 3.0), of(5.0, 3.0))
    assert (ours.mean.item(), ours.logvar.exp().item()) == pytest.approx((3, 3))


@pytest.mark.parametrize(
    ("first", "second", "mean", "logvar"),
    [
        (-80.0, 80.0, 1.0, -80 + np.log(2)),  # the sharper one counts alone, and its variance doubles
        (80.0, -80.0, -3.0, -80 + np.log(2)),
        (80.0, 80.0, -1.0, 80.0),
        (-80.0, -80.0, -1.0, -80.0),
    ],
)
def test_values_and_gradients_are_finite_in_single_precision_for_any_variances(first, second, mean, logvar):
    """exp(80)^2 and exp(-80)^2 do not exist in single precision."""
    leaves = [torch.tensor([[value]], requires_grad=True) for value in (1.0, first, -3.0, second)]
    ours = product(Posterior(*leaves[:2]), Posterior(*leaves[2:]))
    assert ours.mean.item() == pytest.approx(mean)
    assert ours.logvar.item() == pytest.approx(logvar)
    (ours.mean + ours.logvar).sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
