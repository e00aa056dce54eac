"""What every metric of the catalogue must do, on small tables."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from disentune.errors import DataError
from disentune.metrics import FROM, METRICS, scored
from disentune.metrics.table import table_of
from metric_examples import (
    ARTIFICIAL_SCALE,
    CENTRED,
    DRAWN,
    MOVED,
    SMALLER,
    UNBOUNDED,
    factors_of,
    images_of,
    logvars_of,
    noisy,
    with_decoder,
)

pytestmark = pytest.mark.parametrize("name", METRICS.names())


def scores_of(name, codes=None, factors=None, seed=0, order=slice(None)):
    """With everything that a table can have, in the fast size; `order` is that of the latents."""
    factors = factors_of() if factors is None else factors
    codes = noisy(factors) if codes is None else codes
    table = table_of(codes[:, order], factors, logvars_of(np.asarray(codes))[:, order], images_of(factors))
    table = with_decoder(table)
    metric = METRICS[name]
    return scored(metric, table, seed, params_of(metric))


def params_of(metric):
    return metric.params(**{**metric.fast, **SMALLER.get(metric.name, {})})


@cache
def baseline(name):
    return scores_of(name).numbers


def test_numbers_and_arrays_are_those_promised(name):
    scores = scores_of(name)
    assert tuple(scores.numbers) == METRICS[name].keys
    assert all(type(value) is float and math.isfinite(value) for value in scores.numbers.values())
    assert tuple(scores.details) == METRICS[name].details
    assert all(array.ndim > 0 for array in scores.details.values())
    assert all(array.dtype.kind == "U" or np.isfinite(array).all() for array in scores.details.values())


def test_keys_begin_with_the_name_so_that_no_two_metrics_share_one(name):
    assert all(key.startswith(name) for key in (*METRICS[name].keys, *METRICS[name].details))


def test_published_sizes_are_the_defaults_and_no_smaller_than_the_fast_ones(name):
    full, fast = METRICS[name].params(), METRICS[name].fast
    assert all(getattr(full, key) >= value for key, value in fast.items() if isinstance(value, int | float))
    with pytest.raises(ValidationError):
        METRICS[name].params(no_such_parameter=1)


def test_scores_lie_where_a_score_can(name):
    if name in UNBOUNDED:
        pytest.skip("its scores may be below -1 or above 1")
    assert all(-1 <= value <= 1 for value in baseline(name).values())


def test_order_and_sign_of_codes_do_not_matter(name):
    """Up to ties and the edges of bins."""
    codes, moved = noisy(factors_of()), DRAWN.get(name, 0.03)
    assert scores_of(name, codes, order=[1, 2, 0]).numbers == pytest.approx(baseline(name), abs=moved)
    assert scores_of(name, -codes).numbers == pytest.approx(baseline(name), abs=moved)


def test_shift_and_scale_of_codes_do_not_matter(name):
    if name in ARTIFICIAL_SCALE:
        pytest.skip("its scores depend on both")
    codes = 8 * noisy(factors_of()) + (0 if name in CENTRED else 16)
    moved = MOVED.get(name, 0.03)  # rounding moves a few splits
    assert scores_of(name, codes).numbers == pytest.approx(baseline(name), abs=moved)


def test_names_of_factor_values_do_not_matter(name):
    """In their order: some metrics look at it."""
    factors = factors_of()
    images, codes = images_of(factors), noisy(factors)
    metric, table = METRICS[name], table_of(codes, 10 * factors - 7, logvars_of(codes), images)
    table = with_decoder(table)
    assert scored(metric, table, 0, params_of(metric)).numbers == baseline(name)


def test_single_precision_codes_agree(name):
    codes = noisy(factors_of()).astype(np.float32)
    assert scores_of(name, codes).numbers == pytest.approx(baseline(name), abs=0.05)  # rounding moves a few splits


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_seeds_give_equal_scores_whatever_the_threads(name, threads):
    with threadpool_limits(threads):
        assert scores_of(name).numbers == baseline(name)


THIRTY = factors_of(repeats=1)[:30]
ODD = {
    "constant": (np.zeros((30, 3)), THIRTY),
    "one code": (THIRTY[:, :1] * 1.0, THIRTY),
    "one constant code": (np.column_stack([noisy(THIRTY), np.ones(30)]), THIRTY),
    "one value": (noisy(THIRTY), np.zeros((30, 2), int)),
    "one value of many": (noisy(THIRTY), np.column_stack([THIRTY, np.zeros(30, int)])),
    "one factor": (noisy(THIRTY), THIRTY[:, :1]),
    "three rows": (np.zeros((3, 1)), np.zeros((3, 1), int)),
    "one row": (np.ones((1, 2)), np.zeros((1, 1), int)),
    "two rows": (np.eye(2), np.arange(2)[:, None]),
    "all values once": (noisy(THIRTY), np.arange(30)[:, None]),
    "a rare value": (noisy(THIRTY), np.column_stack([np.arange(30) == 7, THIRTY]).astype(int)),
    "huge": (np.where(np.arange(30)[:, None] == 0, 3e38, 0.0), THIRTY),
    "tiny": (np.where(THIRTY > 1, 1e-300, 0.0), THIRTY),
    "more codes than rows": (np.random.default_rng(0).normal(size=(12, 20)), factors_of(1)[:12]),
    "equal codes": (np.repeat(noisy(THIRTY)[:, :1], 4, axis=1), THIRTY),
}


def numbers_or_reason(name, codes, factors):
    try:
        return scores_of(name, codes, factors).numbers, ""
    except DataError as error:
        return {}, str(error)


@pytest.mark.parametrize("table", ODD)
def test_odd_tables_have_a_defined_score_or_a_reason_that_names_the_metric(name, table):
    numbers, reason = numbers_or_reason(name, *ODD[table])
    assert numbers or name in reason
    assert all(math.isfinite(value) for value in numbers.values())
    assert name in UNBOUNDED or all(-1 <= value <= 1 for value in numbers.values())


def test_what_the_table_lacks_is_named(name):
    metric, codes, factors = METRICS[name], noisy(factors_of()), factors_of()
    if not metric.needs:
        pytest.skip("it needs only codes")
    whole = with_decoder(table_of(codes, factors, logvars_of(codes), images_of(factors)))
    without = dict.fromkeys(FROM) | {"factors": np.zeros((len(codes), 0), int)}
    for need in metric.needs:
        with pytest.raises(DataError, match=f"{name} needs {FROM[need]}"):
            scored(metric, replace(whole, **{need: without[need]}), 0, metric.params())


def test_the_table_stays_as_it_was(name):
    codes, factors = noisy(factors_of()), factors_of()
    scores_of(name, codes, factors)
    np.testing.assert_array_equal(codes, noisy(factors_of()))
    np.testing.assert_array_equal(factors, factors_of())
