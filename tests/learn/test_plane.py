"""Codes and points of the plane are shown as they are, and their densities are densities."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import erf

from conftest import trial_config
from disentune.errors import DataError
from disentune.frameworks.priors import Mixture
from disentune.learn import plane
from disentune.learn.pictures import drawn, from_bytes, sheets, to_bytes
from disentune.learn.plane import REACH, SIDE, aggregate_density, axis, refuse_misshapen
from disentune.learn.training import Training
from disentune.spec.config import TrialConfig

CELL = (2 * REACH / (SIDE - 1)) ** 2


def pinwheel(latents=2, **framework):
    chosen = framework or {"name": "decomposition_vae", "beta": 0.5, "prior": "mixture"}
    return TrialConfig.parse(
        {
            "dataset": {"name": "pinwheel", "points": 5, "transform": "standardise"},
            "model": {"name": "pinwheel_mlp", "latents": latents, "width": 8},
            "framework": chosen,
            "recon": {"name": "normal", "std": "learned"},
            "training": {"steps": 3, "batch_size": 20, "learning_rate": 1e-2},
            "loss_scale": "sum",
            "seed": 0,
        }
    )


def shown(config):
    training = Training(config)
    for _ in training.run():
        pass
    return training, drawn(training.trained_model())


def made_up(n=5, seed=0, spread=0.3):
    rng = np.random.default_rng(seed)
    means = rng.uniform(-0.5, 0.5, (n, 2)).astype(np.float32)
    logvars = np.log(rng.uniform(0.02, spread, (n, 2))).astype(np.float32)
    return replace(
        plane.empty(),
        labels=np.arange(n) % 3,
        means=means,
        logvars=logvars,
        prior=np.zeros((SIDE, SIDE), np.float16),
    )


# ---- densities


def test_the_aggregate_density_is_the_mean_of_the_posteriors():
    made = made_up()
    found = aggregate_density(made)
    for row, column in ((0, 0), (150, 150), (100, 180), (200, 90)):
        point = [axis()[column], axis()[row]]
        laws = zip(made.means.astype(float), np.exp(made.logvars.astype(float)), strict=True)
        expected = np.mean([stats.multivariate_normal(m, np.diag(v)).pdf(point) for m, v in laws])
        assert found[row, column] == pytest.approx(expected, rel=1e-9)
    assert found.shape == (300, 300)


def test_the_aggregate_density_integrates_to_one():
    assert aggregate_density(made_up(spread=0.06)).sum() * CELL == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("framework", "mass"), [({}, 1.0), ({"name": "beta_vae", "beta": 1}, erf(np.sqrt(2)) ** 2)])
def test_the_prior_integrates_to_its_mass_in_the_square(framework, mass):
    """All of the mixture; of N(0, 1) in two latents what lies within two deviations. In float16."""
    prior = shown(pinwheel(**framework))[1].plane.prior.astype(np.float64)
    assert prior.sum() * CELL == pytest.approx(mass, abs=2e-3)
    point = torch.tensor([[axis()[200], axis()[40]]])
    if not framework:
        assert prior[40, 200] == pytest.approx(Mixture().log_density(point).exp().item(), rel=2e-3)


def test_posteriors_narrower_than_the_grid_stay_finite():
    narrow = replace(made_up(), logvars=np.full((5, 2), -1e4, np.float32))
    assert np.isfinite(aggregate_density(narrow)).all()


# ---- what is kept


def test_points_codes_and_reconstructions_are_those_of_the_data():
    training, pictures = shown(pinwheel())
    found, data = pictures.plane, training.data.images(np.arange(20)).reshape(20, 2)
    np.testing.assert_allclose(found.points, data, rtol=1e-5, atol=1e-6)
    assert found.labels.tolist() == np.repeat(np.arange(4), 5).tolist()
    with torch.no_grad():
        q = training.model.encode(training.inputs(np.arange(20)))
        outputs = training.model.decode(q.mean)[:, :2].reshape(20, 2)
    np.testing.assert_allclose(found.means, q.mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.logvars, q.logvar.numpy(), rtol=1e-5)
    mean, std = np.array(training.data.mean), np.array(training.data.std)
    np.testing.assert_allclose(found.decoded, outputs.numpy() * std + mean, rtol=1e-4, atol=1e-5)


def test_other_numbers_of_latents_leave_the_points_only():
    found = shown(pinwheel(latents=3, name="beta_vae", beta=1))[1].plane
    assert (len(found.points), len(found.decoded), len(found.means), found.prior.size) == (20, 20, 0, 0)
    refuse_misshapen(found)


def test_images_with_two_latents_show_their_codes():
    small = {"dataset__image_size": 8, "dataset__square_size": 2, "dataset__grid_size": 3, "model__latents": 2}
    found = drawn(Training(trial_config(**small)).trained_model())
    assert (len(found.plane.points), len(found.plane.means)) == (0, min(1000, 3**6))
    assert "plane" in sheets(found)
    other = drawn(Training(trial_config(**small | {"model__latents": 3})).trained_model())
    assert len(other.plane) == 0
    assert b"plane" not in to_bytes(other)


def test_they_come_back_from_bytes():
    pictures = shown(pinwheel())[1]
    back = from_bytes(to_bytes(pictures)).plane
    for name in plane.NAMES:
        np.testing.assert_array_equal(getattr(back, name), getattr(pictures.plane, name))
    assert set(sheets(from_bytes(to_bytes(pictures)))) == {"distances", "plane"}


@pytest.mark.parametrize(
    "changes",
    [{"labels": np.zeros(4, np.int64)}, {"labels": np.zeros(5)}, {"means": np.zeros((5, 3), np.float32)},
     {"means": np.full((5, 2), np.nan, np.float32)}, {"logvars": np.zeros((5, 2))},
     {"points": np.zeros((5, 2), np.float32)}, {"prior": np.zeros((2, 2), np.float16)},
     {"labels": np.zeros(2000, np.int64), "means": np.zeros((2000, 2), np.float32),
      "logvars": np.zeros((2000, 2), np.float32)}],
    ids=range(8),
)  # fmt: skip
def test_arrays_that_do_not_go_together_are_refused(changes):
    refuse_misshapen(made_up())
    with pytest.raises(DataError, match="plane"):
        refuse_misshapen(replace(made_up(), **changes))
