"""What every metric of the catalogue must do, on small tables."""

import math
from functools import cache

import numpy as np
import pytest

from disentune.errors import DataError
from disentune.metrics import METRICS, score

pytestmark = pytest.mark.parametrize("name", METRICS.names())


def factors_of(n=450, sizes=(4, 3, 5)):
    return np.random.default_rng(0).integers(0, sizes, size=(n, len(sizes)))


def noisy(factors):
    """Codes that mix factors a little, no two values equal."""
    rng = np.random.default_rng(1)
    k = factors.shape[1]
    return factors @ (np.eye(k) + 0.3 * rng.random((k, k))) + 0.2 * rng.normal(size=factors.shape)


@cache
def baseline(name):
    return score(name, noisy(factors_of()), factors_of())


def structure(scores):
    """Without keys that only tell how well factors are predicted."""
    return {key: value for key, value in scores.items() if "informativeness" not in key}


def test_keys_are_those_promised_and_values_plain_floats(name):
    scores = baseline(name)
    assert tuple(scores) == METRICS[name].keys
    assert all(type(value) is float for value in scores.values())


def test_identity_scores_one(name):
    scores = score(name, factors_of() * 1.0, factors_of())
    assert all(0.9 <= value <= 1 for value in scores.values())


def test_zeros_score_zero(name):
    scores = score(name, np.zeros((450, 4)), factors_of())
    assert all(value == 0 for value in structure(scores).values())


def test_noise_scores_near_zero(name):
    scores = score(name, np.random.default_rng(2).normal(size=(450, 4)), factors_of())
    assert all(value < 0.2 for value in structure(scores).values())


def test_order_and_sign_of_codes_do_not_matter(name):
    codes = noisy(factors_of())
    for other in (codes[:, ::-1], -codes):
        assert score(name, other, factors_of()) == pytest.approx(baseline(name), abs=0.02)  # ties are broken at random


def test_shift_and_scale_of_codes_do_not_matter(name):
    codes = 8 * noisy(factors_of()) + 16
    assert score(name, codes, factors_of()) == pytest.approx(baseline(name), abs=0.02)  # rounding moves a few splits


def test_names_of_factor_values_do_not_matter(name):
    assert score(name, noisy(factors_of()), 10 * factors_of() - 7) == baseline(name)


def test_single_precision_codes_agree(name):
    codes = noisy(factors_of()).astype(np.float32)
    assert score(name, codes, factors_of()) == pytest.approx(baseline(name), abs=0.01)  # rounding moves a few splits


def test_equal_seeds_give_equal_scores(name):
    assert score(name, noisy(factors_of()), factors_of(), seed=0) == baseline(name)


@pytest.mark.parametrize(
    ("codes", "factors"),
    [
        (np.zeros((30, 3)), factors_of(30)),
        (factors_of(30)[:, :1] * 1.0, factors_of(30)),
        (noisy(factors_of(30)), np.zeros((30, 2), int)),
        (noisy(factors_of(30)), np.column_stack([factors_of(30), np.zeros(30, int)])),
        (np.zeros((3, 1)), np.zeros((3, 1), int)),
        (noisy(factors_of(30)), np.arange(30)[:, None]),
        (np.where(np.arange(30)[:, None] == 0, 3e38, 0.0), factors_of(30)),
        (np.where(factors_of(30) > 1, 1e-300, 0.0), factors_of(30)),
    ],
    ids=["constant", "one code", "one value", "one value of many", "three rows", "all values once", "huge", "tiny"],
)
def test_odd_tables_have_a_defined_score(name, codes, factors):
    scores = score(name, codes, factors)
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in scores.values())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_codes_that_are_not_numbers_are_refused(name, wrong):
    codes = noisy(factors_of())
    codes[7, 1] = wrong
    with pytest.raises(DataError, match="codes must be finite, but row 7, column 1"):
        score(name, codes, factors_of())


def test_the_table_stays_as_it_was(name):
    codes, factors = noisy(factors_of()), factors_of()
    score(name, codes, factors)
    np.testing.assert_array_equal(codes, noisy(factors_of()))
    np.testing.assert_array_equal(factors, factors_of())
