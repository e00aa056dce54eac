"""disentune.metrics.score for people, and the independence of metrics."""

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.maths.randomness import metric_rng
from disentune.metrics import METRICS, score
from disentune.metrics.table import table_of

FACTORS = np.random.default_rng(0).integers(0, 4, size=(600, 2))
CODES = FACTORS + 0.7 * np.random.default_rng(1).normal(size=(600, 2))


def test_duplicated_codes_have_no_gap():
    assert score("mig", np.hstack([FACTORS, FACTORS]) * 1.0, FACTORS) == {"mig": 0.0}


def test_the_stream_of_a_metric_depends_on_seed_and_name_only():
    metric = METRICS["mig"]
    params = metric.params(samples=100)
    expected = metric.score(table_of(CODES, FACTORS), metric_rng(3, "mig"), params)
    assert score("mig", CODES, FACTORS, seed=3, samples=100) == expected
    assert score("mig", CODES, FACTORS, seed=4, samples=100) != expected


def test_an_unknown_metric_is_a_config_error():
    with pytest.raises(ConfigError, match=r"unknown metric 'migg'\. Did you mean 'mig'\?"):
        score("migg", CODES, FACTORS)


def test_wrong_parameters_are_a_config_error():
    with pytest.raises(ConfigError, match="must be >= 2, got 1"):
        score("mig", CODES, FACTORS, bins=1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"size": "medium"}, "size must be one of full, fast, got 'medium'"), ({"seed": -1}, "seed must be a whole"),
     ({"seed": "a"}, "seed must be a whole number >= 0, got 'a'")],
)  # fmt: skip
def test_a_wrong_size_or_seed_is_a_config_error(wrong, words):
    with pytest.raises(ConfigError, match=words):
        score("mig", CODES, FACTORS, **wrong)


def test_factors_may_be_true_or_false():
    assert score("mig", CODES, FACTORS > 1) == score("mig", CODES, (FACTORS > 1).astype(int))


def test_codes_of_vectors_are_scored_by_their_first_components():
    """As papers on tokens do, whose codes are vectors."""
    rng = np.random.default_rng(0)
    vectors = CODES[:, :, None] * rng.normal(size=(1, 2, 16)) + 0.01 * rng.normal(size=(600, 2, 16))
    assert score("mig", vectors, FACTORS)["mig"] == pytest.approx(score("mig", CODES, FACTORS)["mig"], abs=0.02)
    assert score("mcc", vectors, FACTORS)["mcc"] == pytest.approx(score("mcc", CODES, FACTORS)["mcc"], abs=0.01)
