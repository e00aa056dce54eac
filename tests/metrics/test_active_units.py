"""Active units are counted from the variances, not from their logarithms."""

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.metrics import score, scores
from disentune.metrics.table import table_of


def units(variances, **params):
    logvars = np.log(variances)
    return score("active_units", np.zeros(logvars.shape), logvars=logvars, **params)["active_units"]


def test_a_latent_is_active_when_its_mean_variance_is_below_point_eight():
    assert units(np.array([[0.1, 0.79, 0.81, 1.0], [0.1, 0.79, 0.81, 1.0]])) == 2


def test_it_is_the_variance_that_is_averaged():
    """(0.01 + 1.61) / 2 = 0.81, though the mean of the logarithms is that of 0.13; and 0.79 with 1.57."""
    assert units(np.array([[0.01, 0.01], [1.61, 1.57]])) == 1


def test_rows_are_averaged_not_added():
    assert units(np.full((1000, 3), 0.5)) == 3


def test_a_variance_at_the_threshold_is_not_below_it():
    logvars = np.log(np.full((4, 2), 0.5))
    at = np.exp(logvars[0, 0])
    assert score("active_units", logvars, logvars=logvars, threshold=at)["active_units"] == 0
    assert score("active_units", logvars, logvars=logvars, threshold=np.nextafter(at, 1))["active_units"] == 2


def test_variances_are_kept():
    logvars = np.random.default_rng(0).normal(size=(50, 4))
    found = scores("active_units", table_of(logvars, logvars=logvars), 0, "full", {})
    np.testing.assert_allclose(found.details["active_units_variance"], np.exp(logvars).mean(axis=0))


def test_unbounded_variances_are_inactive():
    logvars = np.tile([-1e38, 1e38, 700.0], (10_000, 1))
    assert score("active_units", logvars, logvars=logvars)["active_units"] == 1


def test_a_threshold_must_be_positive():
    with pytest.raises(ConfigError, match="threshold  must be > 0"):
        units(np.ones((2, 2)), threshold=0.0)
