"""Statistics of few seeds against scipy, closed forms and vectors that were computed elsewhere."""

from itertools import product

import numpy as np
import pytest
import scipy

from disentune.analysis import statistics
from study_examples import A, B

# ---- ten numbers, worked through with scipy, statsmodels and by full enumeration


def test_welch_of_the_ten_numbers():
    found = statistics.welch(A, B)
    assert (found.t, found.freedom, found.p) == pytest.approx((1.795663, 7.087088, 0.115093), abs=1e-6)
    assert (found.low, found.high) == pytest.approx((-0.011207, 0.082687), abs=1e-6)


def test_paired_t_of_the_ten_numbers():
    found = statistics.paired(A, B)
    assert (found.t, found.p) == pytest.approx((3.220962, 0.032251), abs=1e-6)
    assert (found.low, found.high) == pytest.approx((0.00493, 0.06655), abs=1e-5)


def test_exact_tests_of_the_ten_numbers():
    assert statistics.permutation_p(A, B) == 28 / 252
    assert statistics.sign_flip_p(A, B) == 4 / 32


def test_probability_of_improvement_of_the_ten_numbers():
    assert statistics.improvement(A, B) == pytest.approx(0.8)
    assert statistics.improvement_interval(A, B) == pytest.approx((0.44, 1))
    assert 2 * statistics.improvement(A, B) - 1 == pytest.approx(0.6)  # Cliff's delta


def test_intervals_of_a_mean_of_the_ten_numbers():
    assert statistics.mean_interval(A) == pytest.approx((0.65445, 0.74555), abs=1e-5)
    assert statistics.percentile_interval(A) == pytest.approx((0.66842, 0.72642), abs=1e-5)
    assert statistics.percentile_interval(A - B) == pytest.approx((0.01302, 0.05078), abs=1e-5)


def test_effects_of_the_ten_numbers():
    assert statistics.cohen_d(A, B) == pytest.approx(1.135677, abs=1e-6)
    assert statistics.paired_d(A, B) == pytest.approx(1.440458, abs=1e-6)
    assert statistics.hedges_g(A, B) == pytest.approx(1.025773, abs=1e-6)


def test_robust_summaries_of_the_ten_numbers():
    """The last two are of both samples as two tasks of five runs."""
    assert statistics.interquartile_mean(A) == pytest.approx(0.705033, abs=1e-6)
    assert statistics.interquartile_mean(A, fractional=True) == pytest.approx(0.704970, abs=1e-6)
    assert statistics.interquartile_mean(np.stack([A, B])) == pytest.approx(0.68043, abs=1e-5)
    assert statistics.optimality_gap(np.stack([A, B])) == pytest.approx(0.31787, abs=1e-5)


def test_bca_interval_of_the_ten_numbers():
    assert statistics.bca_interval(A - B) == pytest.approx((0.00562, 0.04884), abs=1e-5)


def test_interquartile_mean_ignores_outliers_and_is_one_number_where_quarters_are_whole():
    values = np.random.default_rng(0).normal(size=12)
    expected = np.sort(values)[3:9].mean()
    assert statistics.interquartile_mean(values) == pytest.approx(expected)
    assert statistics.interquartile_mean(values, fractional=True) == pytest.approx(expected)
    assert statistics.interquartile_mean(np.array([0, 1, 1, 1e9])) == 1


def test_scores_above_the_target_have_no_gap():
    assert statistics.optimality_gap([0.5, 2.0]) == 0.25


@pytest.mark.parametrize(
    ("correction", "expected"),
    [("bonferroni", [0.005, 0.06, 0.105, 0.2, 1]), ("benjamini_hochberg", [0.005, 0.03, 0.035, 0.05, 0.3])],
)
def test_other_corrections_of_five_p_values(correction, expected):
    correct = getattr(statistics, correction)
    p = np.array([0.001, 0.012, 0.021, 0.04, 0.3])
    assert correct(p) == pytest.approx(expected)
    assert correct(np.append(p, np.nan)) == pytest.approx([*expected, np.nan], nan_ok=True)


def test_holm_multiplies_the_smallest_most_and_never_falls():
    p = np.array([0.04, 0.001, 0.3, 0.021, 0.012])
    assert statistics.holm(p) == pytest.approx([0.08, 0.005, 0.3, 0.063, 0.048])


def test_holm_ignores_what_was_not_tested():
    assert statistics.holm(np.array([0.04, np.nan, 0.01])) == pytest.approx([0.04, np.nan, 0.02], nan_ok=True)
    assert np.isnan(statistics.holm(np.array([np.nan]))).all()


# ---- scipy


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 6), (7, 5), (2, 9)])
def test_t_tests_agree_with_scipy(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.gamma(2, size=n), rng.gamma(3, size=m)
    theirs = scipy.stats.ttest_ind(a, b, equal_var=False)
    ours = statistics.welch(a, b)
    assert (ours.t, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval()))
    size = min(n, m)
    theirs = scipy.stats.ttest_rel(a[:size], b[:size])
    assert statistics.paired(a[:size], b[:size]).p == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 6), (7, 5)])
def test_exact_tests_agree_with_scipy(n, m):
    rng = np.random.default_rng(m)
    a, b = rng.gamma(2, size=n), rng.gamma(3, size=m)

    def gap(x, y, axis=-1):
        return x.mean(axis=axis) - y.mean(axis=axis)

    theirs = scipy.stats.permutation_test((a, b), gap, n_resamples=np.inf)
    assert statistics.permutation_p(a, b) == pytest.approx(theirs.pvalue)
    size = min(n, m)
    theirs = scipy.stats.permutation_test(
        (a[:size] - b[:size],), lambda x, axis=-1: x.mean(axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert statistics.sign_flip_p(a[:size], b[:size]) == pytest.approx(theirs.pvalue)


def test_improvement_is_the_mann_whitney_statistic():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 8) / 4, rng.integers(0, 5, 6) / 4  # with ties
    assert statistics.improvement(a, b) == pytest.approx(scipy.stats.mannwhitneyu(a, b).statistic / 48)
    assert statistics.improvement(a, a) == 0.5


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 7), (10, 10)])
def test_improvement_of_separate_samples_is_bounded_by_as_many_wins_in_a_row(n, m):
    """Every resample agrees, so a bootstrap would give an interval without width."""
    wins = min(n, m)
    exact = scipy.stats.binomtest(wins, wins).proportion_ci(method="exact")
    high, low = np.arange(n) + 100.0, np.arange(m) * 1.0
    assert statistics.improvement_interval(high, low) == pytest.approx((exact.low, exact.high))
    assert statistics.improvement_interval(low, high) == pytest.approx((1 - exact.high, 1 - exact.low))


def test_enumerated_resamples_are_all_of_them():
    """Against the plain enumeration of n**n draws with replacement."""
    x = np.array([1.0, 4.0, 9.0, 16.0])
    means = np.sort([np.mean(draw) for draw in product(x, repeat=4)])
    low, high = (means[np.ceil(share * len(means)).astype(int) - 1] for share in (0.025, 0.975))
    assert statistics.percentile_interval(x) == pytest.approx((low, high))


def test_many_outcomes_are_drawn_instead():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=30), rng.normal(0.5, size=30)
    assert statistics.permutation_p(a, b) == pytest.approx(scipy.stats.ttest_ind(a, b).pvalue, abs=0.02)
    assert statistics.sign_flip_p(a, b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert statistics.permutation_p(a, b) == statistics.permutation_p(a, b)


# ---- what holds over many samples


@pytest.mark.parametrize("n", [3, 5, 10])
def test_t_interval_covers_the_mean_of_normal_scores_in_95_percent(n):
    """2,000 samples: the share has a deviation of 0.5 points."""
    values = np.random.default_rng(n).normal(size=(2000, n))
    half = statistics.half_width(values.std(axis=1, ddof=1), np.full(2000, n))
    assert 0.93 < np.mean(np.abs(values.mean(axis=1)) <= half) < 0.97


@pytest.mark.parametrize(("n", "covered"), [(3, 0.88), (5, 0.88), (10, 0.90)])
def test_t_interval_of_exponential_scores_covers_less(n, covered):
    """What the documentation says of skewed scores."""
    values = np.random.default_rng(n).exponential(size=(20_000, n))
    half = statistics.half_width(values.std(axis=1, ddof=1), np.full(len(values), n))
    assert np.mean(np.abs(values.mean(axis=1) - 1) <= half) == pytest.approx(covered, abs=0.01)


def test_percentile_bootstrap_of_three_covers_only_three_quarters():
    """Why it is not used: of three normal values 95 % percentile intervals cover 76 %."""
    rng = np.random.default_rng(0)
    intervals = np.array([statistics.percentile_interval(rng.normal(size=3)) for _ in range(2000)])
    assert np.mean((intervals[:, 0] <= 0) & (intervals[:, 1] >= 0)) == pytest.approx(0.758, abs=0.03)


@pytest.mark.parametrize("test", [statistics.permutation_p, statistics.sign_flip_p])
def test_p_values_are_uniform_without_a_difference(test):
    """An exact test rejects at each of its levels with just that probability; 7 seeds have many levels."""
    rng = np.random.default_rng(0)
    p = np.array([test(*rng.exponential(size=(2, 7))) for _ in range(1000)])
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        possible = np.floor(level * 64) / 64 if test is statistics.sign_flip_p else level
        assert np.mean(p <= level + 1e-9) == pytest.approx(possible, abs=0.045)


@pytest.mark.parametrize(("n", "unpaired", "pairs"), [(3, 0.1, 0.25), (4, 0.0286, 0.125), (6, 0.0022, 0.0313)])
def test_smallest_p_is_that_of_the_most_extreme_outcome(n, unpaired, pairs):
    assert statistics.smallest_p(n, n, False) == pytest.approx(unpaired, abs=1e-4)
    assert statistics.smallest_p(n, n, True) == pytest.approx(pairs, abs=1e-4)
    high, low = np.arange(n) + 100.0, np.arange(n)
    assert statistics.permutation_p(high, low) == statistics.smallest_p(n, n, False)
    assert statistics.sign_flip_p(high, low) == statistics.smallest_p(n, n, True)


# ---- sizes


@pytest.mark.parametrize(("effect", "seeds"), [(0.5, 64), (0.8, 26), (1, 17), (1.5, 9), (2, 6), (3, 4)])
def test_needed_seeds_are_those_of_the_power_tables(effect, seeds):
    assert statistics.seeds_needed(effect, is_paired=False) == seeds
    assert statistics.seeds_needed(-effect, is_paired=False) == seeds


def test_needed_pairs_reach_80_percent_power_in_a_simulation():
    pairs = statistics.seeds_needed(1.0, is_paired=True)
    gaps = np.random.default_rng(0).normal(1, size=(4000, pairs))
    half = statistics.half_width(gaps.std(axis=1, ddof=1), np.full(4000, pairs))
    assert 0.79 < np.mean(np.abs(gaps.mean(axis=1)) > half) < 0.88
    half = statistics.half_width(gaps[:, 1:].std(axis=1, ddof=1), np.full(4000, pairs - 1))
    assert np.mean(np.abs(gaps[:, 1:].mean(axis=1)) > half) < 0.81


def test_no_number_of_seeds_resolves_nothing():
    assert statistics.seeds_needed(0.0, is_paired=True) is None
    assert statistics.seeds_needed(float("nan"), is_paired=True) is None
    assert statistics.seeds_needed(0.01, is_paired=False) is None
    assert statistics.seeds_needed(1000.0, is_paired=False) == 2


def test_one_value_has_no_interval():
    assert np.isnan(statistics.mean_interval(np.ones(1))).all()
    assert np.isnan(statistics.half_width(np.array([np.nan, 1.0]), np.array([1, 2]))).tolist() == [True, False]


def test_equal_samples_differ_by_nothing():
    assert statistics.welch(np.ones(3), np.ones(3)) == (0, 0, 0, 0, 4, 1)
    assert statistics.permutation_p(np.ones(3), np.ones(4)) == 1
    assert np.isnan(statistics.cohen_d(np.ones(3), np.ones(3)))
    assert np.isnan(statistics.paired_d(np.arange(3), np.arange(3)))


def test_samples_that_differ_by_the_same_in_every_seed_have_an_infinite_effect():
    assert statistics.cohen_d(np.zeros(3), np.ones(3)) == -np.inf
    assert statistics.paired_d(np.arange(3) + 1.0, np.arange(3)) == np.inf
    assert statistics.seeds_needed(-np.inf, is_paired=True) == 2
