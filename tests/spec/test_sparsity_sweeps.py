"""The sweeps of sparse priors: settings of the paper and of its released code."""

from collections import Counter
from pathlib import Path

import pytest

from disentune.spec import space

SWEEPS = Path(__file__).parents[2] / "sweeps"


def trials(name):
    return [point.config for point in space.read(SWEEPS / name).points]


def test_celeba_has_the_settings_of_appendix_b():
    found = trials("mathieu/figure4_celeba.yaml")
    assert len(found) == 51
    for config in found:
        tree, training = config.tree(), config.training
        assert (config.dataset.name, config.setting().population, config.setting().shape) == (
            "celeba",
            202_599,
            (3, 64, 64),
        )
        assert tree["model"] == {"name": "dcgan", "latents": 50, "normalise_first": True}
        assert (training.batch_size, training.learning_rate) == (256, 2e-4)
        assert (training.optimiser.betas, training.optimiser.amsgrad) == ([0.5, 0.999], True)
        assert abs(training.steps * 256 / 202_599 - 60) < 0.01
        assert tree["framework"]["divergence"] == "mmd_imq"
        assert tree["framework"]["prior"]["spike"] == 0.05
        assert tree["recon"] == {"name": "laplace", "scale": 0.1}


def test_fashion_mnist_has_the_settings_of_the_released_code():
    found = trials("mathieu/figure4_fashion_mnist.yaml")
    values = Counter((c.framework.params.alpha, c.framework.params.prior.share) for c in found)
    assert values == dict.fromkeys([(0, 0), (0, 0.8), (100, 0), (100, 0.8)], 3)
    for config in found:
        assert (config.setting().shape, config.setting().population) == ((1, 32, 32), 60_000)
        assert config.training.steps * config.training.batch_size == 80 * 60_000
        assert (config.training.learning_rate, config.framework.params.beta, config.model.params.latents) == (
            5e-4,
            1,
            50,
        )
        assert config.training.optimiser.betas == [0.9, 0.999]


@pytest.mark.parametrize(("name", "seeds"), [("mathieu/figure4_celeba.yaml", 3), ("small/sparsity.yaml", 5)])
def test_every_gamma_meets_every_alpha(name, seeds):
    sparse = [config.framework.params for config in trials(name) if config.framework.params.beta == 1]
    assert {params.prior.share for params in sparse} == {0, 0.8, 0.9}
    counts = Counter((params.prior.share, params.alpha) for params in sparse)
    assert set(counts.values()) == {seeds}
    assert len(counts) == 3 * len({params.alpha for params in sparse})
