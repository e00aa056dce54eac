"""disentune.data.load for people."""

import pytest

from disentune.data import load
from disentune.errors import ConfigError


def test_an_unknown_data_set_is_a_config_error():
    with pytest.raises(ConfigError, match=r"unknown data set 'xysquare'\. Did you mean 'xysquares'\?"):
        load("xysquare")


def test_every_wrong_parameter_is_named():
    with pytest.raises(ConfigError) as raised:
        load("xysquares", gridsize=3, squares=4, grid_size=9)
    assert [problem.where for problem in raised.value.problems] == ["grid_size", "gridsize", "squares"]


def test_parameters_reach_the_data():
    assert load("xysquares", image_size=24, square_size=4).factor_sizes == (6,) * 6
