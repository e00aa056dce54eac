"""InfoMEC against scikit-learn, the numbers of the released code and representations of known score."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mutual_info_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from disentune.metrics import METRICS, scored
from disentune.metrics.info_mec import active, explicitness, informative, preference, ranked
from disentune.metrics.information import entropies, equal_counts
from disentune.metrics.neighbours import nearest_information
from disentune.metrics.table import table_of
from metric_examples import GRID, factors_of, known_codes, noisy

NOISE = np.random.default_rng(0).normal(size=(600, 6))
MORE = {
    "noisy": GRID + 0.05 * np.random.default_rng(0).normal(size=GRID.shape),
    "noisy, and noise": np.column_stack([GRID + 0.05 * NOISE[:, :3], NOISE[:, 3:]]),
    "noise": np.random.default_rng(0).normal(size=GRID.shape),
    "exact, and ten random values": np.column_stack([GRID, np.random.default_rng(0).integers(0, 10, 600)]),
    "ten random values": np.random.default_rng(0).integers(0, 10, (600, 3)),
}
RELEASED = {
    "exact": (1, 1, 0.9997),
    "twice": (1, 0.4, 0.9998),
    "merged": (0.625, 1, 0.9994),
    "turned": (0.6014, 0.5, 0.9995),
    "halved": (1, 1, 0.8331),
    "noisy": (0.9976, 0.9976, 0.9999),
    "noisy, and noise": (0.8612, 0.9792, 0.9999),
    "noise": (1, 1, 0.0057),
    "exact, and ten random values": (0.8239, 0.9715, 0.9998),
    "ten random values": (0.1698, 0.1362, 0.0457),
}
"""Modularity, compactness and explicitness by the released code."""
CODES = {name: codes for name, codes in (known_codes() | MORE).items() if name in RELEASED}


def mec(table, factors=GRID, seed=0, **params):
    metric = METRICS["info_mec"]
    return list(scored(metric, table_of(table, factors), seed, metric.params(**params)).numbers.values())


def slow_mec(codes, factors, discrete):
    """As in the released code: scikit-learn's estimates, and all codes of at least a twentieth of the largest range."""
    shares = np.empty((factors.shape[1], codes.shape[1]))
    for row, factor in enumerate(factors.T):
        for column, code in enumerate(codes.T):
            if discrete:
                shares[row, column] = mutual_info_score(factor, code)
            else:
                unit = StandardScaler().fit_transform(code[:, None])
                shares[row, column] = mutual_info_classif(unit, factor, n_neighbors=10, random_state=0)[0]
        shares[row] /= mutual_info_score(factor, factor)
    shares = shares[:, np.ptp(codes, axis=0) > (0 if discrete else np.ptp(codes, axis=0).max() / 20)]
    k, d = shares.shape
    modularity = (np.mean(shares.max(axis=0) / shares.sum(axis=0)) - 1 / k) / (1 - 1 / k)
    compactness = (np.mean(shares.max(axis=1) / shares.sum(axis=1)) - 1 / d) / (1 - 1 / d)
    inputs = OneHotEncoder().fit_transform(codes) if discrete else StandardScaler().fit_transform(codes)
    return [modularity, compactness, np.mean([_saved(inputs, factor) for factor in factors.T]), d]


def _saved(inputs, factor):
    losses = []
    for one in (np.zeros(inputs.shape), inputs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            probe = LogisticRegression(C=np.inf, class_weight="balanced").fit(one, factor)
        losses.append(log_loss(factor, probe.predict_proba(one)))
    return 1 - losses[1] / losses[0]


# ---- as published


@pytest.mark.parametrize("name", RELEASED)
def test_without_the_guard_scores_are_those_of_the_released_code(name):
    assert mec(CODES[name], shuffles=0)[:3] == pytest.approx(RELEASED[name], abs=6e-5)


@pytest.mark.parametrize("discrete", [True, False])
def test_without_the_guard_scores_are_those_of_the_definition(discrete):
    factors = factors_of()
    codes = np.column_stack([noisy(factors), 0.01 * noisy(factors)[:, 0], np.random.default_rng(2).normal(size=480)])
    codes = np.round(2 * codes) if discrete else codes
    assert mec(codes, factors, shuffles=0) == pytest.approx(slow_mec(codes, factors, discrete), abs=1e-6)


def test_equal_codes_share_their_factor():
    """Six codes of which a factor has two: (1/2 - 1/6) / (5/6)."""
    assert mec(CODES["twice"])[1] == pytest.approx((1 / 2 - 1 / 6) / (5 / 6))


def test_a_code_of_two_factors_is_half_of_each():
    assert mec(CODES["merged"])[0] == pytest.approx(((1 / 2 + 1) / 2 - 1 / 3) / (2 / 3))


@pytest.mark.parametrize(
    ("rows", "seed", "modularity"),
    [(1000, 0, 0.434), (1000, 1, 0.661), (1000, 2, 0.452), (10_000, 0, 0.643), (10_000, 1, 0.527), (10_000, 2, 0.426)],
)
def test_ten_codes_of_noise_score_anything_as_published(rows, seed, modularity):
    """Factor sizes of 3D Shapes. A code of which all estimates are 0 is NaN as published, and was left out there."""
    rng = np.random.default_rng(seed)
    factors = np.stack([rng.integers(0, size, rows) for size in (10, 10, 10, 8, 4, 15)], axis=1)
    information = nearest_information(rng.normal(size=(rows, 10)), factors, 10, rng) / entropies(factors)
    known = information.any(axis=1)
    assert preference(information)[known].mean() == pytest.approx(modularity, abs=6e-4)
    assert known.sum() == (9 if (rows, seed) == (10_000, 2) else 10)


# ---- the guard


@pytest.mark.parametrize("name", ["exact", "twice", "merged", "turned", "halved", "noisy"])
def test_the_guard_leaves_codes_alone_that_know_something(name):
    assert mec(CODES[name]) == mec(CODES[name], shuffles=0)


@pytest.mark.parametrize("name", ["noise", "ten random values"])
@pytest.mark.parametrize("seed", range(3))
def test_noise_has_no_active_code_and_scores_nothing(name, seed):
    assert mec(CODES[name], seed=seed)[:2] == [0, 0]
    assert mec(CODES[name], seed=seed)[3] == 0


@pytest.mark.parametrize("name", ["noisy, and noise", "exact, and ten random values"])
def test_codes_of_noise_are_left_out(name):
    modularity, compactness, _, count = mec(CODES[name])
    assert min(modularity, compactness) > 0.997
    assert count == 3


def test_a_factor_that_no_active_code_knows_is_not_compact():
    """As published it would be: its ratio is one of tiny numbers, and undefined for a single active code."""
    known = np.column_stack([GRID[:, 0] + 0.05 * NOISE[:, 0], 2 * NOISE[:, 1]])
    assert mec(known)[1::2] == pytest.approx([1 / 3, 1])
    assert mec(known, shuffles=0)[1] > 0.5
    assert mec(GRID[:, :2])[1] == pytest.approx(2 / 3)


def test_noise_passes_the_guard_once_in_twenty_tables_of_nineteen_shuffles():
    passed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        factors, codes = rng.integers(0, (2, 3, 20), size=(80, 3)), rng.normal(size=(80, 4))
        codes[:, 0] = codes[:, 0] > 1
        bins = np.stack([equal_counts(code, 20) for code in codes.T], axis=1)
        passed += informative(bins, factors, 19, rng).any()
    assert 0 <= passed <= 12  # 5 on average, with a deviation of 2.2


def test_weak_information_passes_the_guard_in_a_large_table():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 4, size=(10_000, 2))
    codes = rng.normal(size=(10_000, 2)) + 0.1 * factors
    bins = np.stack([equal_counts(code, 20) for code in codes.T], axis=1)
    assert informative(bins, factors, 99, rng).tolist() == [[True, False], [False, True]]


# ---- which codes


def test_codes_of_a_small_range_are_not_active_unless_they_are_discrete():
    codes = np.array([[0, 0, 0, 0], [1, 0.04, 0.06, 0]])
    assert active(codes, False, 0.05).tolist() == [True, False, True, False]
    assert active(codes, True, 0.05).tolist() == [True, True, True, False]
    assert active(3e38 * np.array([[-1.0], [1.0]]), False, 0.05).tolist() == [True]


def test_codes_are_discrete_if_every_one_repeats_its_values():
    metric = METRICS["info_mec"]
    half = np.column_stack([GRID[:, 0], NOISE[:, 0]])
    for codes, kind in ((GRID, "discrete"), (half, "continuous"), (MORE["noisy"], "continuous")):
        table = table_of(codes, GRID)
        numbers = scored(metric, table, 0, metric.params()).numbers
        assert numbers == scored(metric, table, 0, metric.params(kind=kind)).numbers
    assert mec(GRID, kind="continuous") == pytest.approx([1, 1, 1, 3], abs=0.02)


def test_codes_are_discrete_if_the_framework_says_so():
    metric, table = METRICS["info_mec"], table_of(MORE["noisy"], GRID)
    said = scored(metric, replace(table, discrete=True), 0, metric.params()).numbers
    assert said == scored(metric, table, 0, metric.params(kind="discrete")).numbers
    assert said != scored(metric, table, 0, metric.params()).numbers


def test_values_of_a_discrete_code_that_only_rounding_separates_are_equal():
    rounded = GRID / 3 + np.random.default_rng(0).choice([0, 1e-16], size=GRID.shape)
    assert mec(rounded) == pytest.approx(mec(GRID))
    assert ranked(np.array([[0.3, 0.1, 0.1 + 2**-56, 0.2], [1, 1, 1, 1]]).T).T.tolist() == [[2, 0, 0, 1], [0] * 4]


def test_what_each_code_knows_and_which_are_active_is_kept():
    metric = METRICS["info_mec"]
    codes = np.column_stack([GRID[:, [2, 0]], np.ones(600)])
    found = scored(metric, table_of(codes, GRID), 0, metric.params()).details
    np.testing.assert_allclose(found["info_mec_information"], [[0, 0, 1], [1, 0, 0], [0, 0, 0]], atol=1e-12)
    assert found["info_mec_kept"].tolist() == [True, True, False]


# ---- parts


def test_preference_is_one_for_a_single_column_and_nothing_without_information():
    np.testing.assert_allclose(preference(np.array([[1.0, 1, 1], [2, 0, 0], [1, 3, 0], [0, 0, 0]])), [0, 1, 0.625, 0])
    assert preference(np.array([[0.5], [0.0]])).tolist() == [1, 0]


def test_a_probe_without_codes_loses_the_log_of_the_number_of_values():
    """With equal weights for values, also if nine in ten rows have one value: .6931 and not .3083."""
    rare = (np.arange(500) % 10 == 0).astype(int)[:, None]
    assert explicitness(np.zeros((500, 2)), rare, False, 100) == pytest.approx(0, abs=1e-9)
    assert explicitness(rare * 1.0, rare, True, 100) == pytest.approx(1, abs=1e-3)


def test_constant_codes_score_nothing():
    assert mec(np.ones((600, 3))) == [0, 0, pytest.approx(0, abs=1e-9), 0]


def test_factors_with_one_value_are_left_out():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert mec(GRID, constant) == mec(GRID, GRID)
    assert mec(GRID, constant[:, -1:]) == [0, 0, 0, 0]
    assert mec(GRID[:, :2], GRID[:, :1])[:2] == pytest.approx([1, 1])
