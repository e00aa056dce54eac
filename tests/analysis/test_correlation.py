"""Rank correlations and their intervals, against scipy and resampling by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy

from disentune.analysis import agreement, downstream, unsupervised_selection
from disentune.analysis.correlation import RESAMPLES, _Ranked, least_spearman, spearman
from disentune.errors import ConfigError
from study_examples import study


def test_two_rankings_by_hand():
    assert spearman(np.array([1, 2, 3, 4, 5]), np.array([2, 1, 4, 3, 5])) == pytest.approx(0.8)
    assert spearman(np.array([1, 1, 2, 3]), np.array([1, 2, 2, 4])) == pytest.approx(0.8333, abs=1e-4)
    assert np.isnan(spearman(np.ones(4), np.arange(4)))


def test_it_is_scipys_over_the_trials_of_each_data_set():
    frame = study(setting=1.0)
    rows = agreement(frame)
    assert list(rows) == ["dataset", "metric", "other", "value", "low", "high", "n"]
    assert len(rows) == 2 * 3
    for row in rows.itertuples():
        some = frame[frame["dataset"] == row.dataset]
        assert row.value == pytest.approx(scipy.stats.spearmanr(some[row.metric], some[row.other]).statistic)
        assert row.n == 60
        assert row.low < row.value < row.high


def test_resampled_ranks_are_those_of_the_resample():
    """Against ranking a written-out resample, with ties."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 30), rng.integers(0, 6, 30)
    counts = rng.multinomial(30, np.full(30, 1 / 30), size=5)
    first, second = _Ranked(a).scaled(counts), _Ranked(b).scaled(counts)
    found = (first * second * counts).sum(axis=1)
    rows = [np.repeat(np.arange(30), count) for count in counts]
    expected = [scipy.stats.spearmanr(a[some], b[some]).statistic for some in rows]
    np.testing.assert_allclose(found, expected)


def test_the_interval_is_about_fishers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) @ np.array([[1, 0.6], [0, 0.8]])
    row = agreement(pd.DataFrame({"dataset": "d", "mig": x[:, 0], "sap": x[:, 1]})).iloc[0]
    half = 1.96 * 1.06 / np.sqrt(397)
    expected = np.tanh(np.arctanh(row["value"]) + np.array([-half, half]))
    np.testing.assert_allclose([row["low"], row["high"]], expected, atol=0.03)
    assert RESAMPLES >= 1000


@pytest.mark.parametrize("n", [4, 10, 61])
def test_full_agreement_of_few_trials_is_not_certain(n):
    """Every resample agrees too."""
    frame = pd.DataFrame({"dataset": "d", "mig": np.arange(n), "sap": -np.exp(np.arange(n)), "dci": np.arange(n) ** 3})
    rows = agreement(frame, ["mig", "sap", "dci"]).set_index(["metric", "other"])
    ordered = scipy.stats.binomtest(n // 2, n // 2).proportion_ci().low
    low = least_spearman(2 * ordered - 1)
    assert rows.loc[("mig", "dci"), ["value", "low", "high"]].tolist() == pytest.approx([1, low, 1])
    assert rows.loc[("mig", "sap"), ["value", "low", "high"]].tolist() == pytest.approx([-1, -1, -low])


@pytest.mark.slow
def test_intervals_of_four_trials_cover_a_strong_correlation():
    """The percentile interval alone covers it in 55 %, because four trials often agree in full."""
    rng, r = np.random.default_rng(0), 0.9
    covered = []
    for _ in range(100):
        mig, noise = rng.normal(size=(2, 4))
        frame = pd.DataFrame({"dataset": "d", "mig": mig, "sap": r * mig + np.sqrt(1 - r**2) * noise})
        row = agreement(frame).iloc[0]
        covered.append(row["low"] <= 6 / np.pi * np.arcsin(r / 2) <= row["high"])
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("r", [-0.99, -0.5, 0.0, 0.3, 0.9, 0.999])
def test_the_least_correlation_for_a_tau_is_below_that_of_normal_numbers(r):
    tau, rho = 2 / np.pi * np.arcsin(r), 6 / np.pi * np.arcsin(r / 2)
    assert least_spearman(tau) < rho


def test_the_least_correlation_for_a_tau_meets_both_ends_and_itself_at_0():
    assert [least_spearman(tau) for tau in (-1, 1)] == [-1, 1]
    assert least_spearman(-1e-12) == pytest.approx(least_spearman(0)) == pytest.approx(-0.5)


def test_within_settings_only_seeds_are_compared():
    """Settings make both metrics agree; seeds do not."""
    frame = study(setting=5.0, seeds=40, datasets=1)
    assert agreement(frame, ["mig", "sap"])["value"][0] > 0.8
    assert abs(agreement(frame, ["mig", "sap"], within=True)["value"][0]) < 0.2


def test_each_pair_counts_the_trials_that_have_both():
    frame = study(datasets=1).assign(recon_sum=1.0, kl_sum=np.arange(60.0))
    frame.loc[:9, "kl_sum"] = np.nan
    rows = unsupervised_selection(frame, ["mig"]).set_index("other")
    assert rows.loc["kl_sum", "n"] == rows.loc["elbo", "n"] == 50
    assert rows.loc["elbo", "value"] == pytest.approx(-rows.loc["kl_sum", "value"])
    assert np.isnan(rows.loc["recon_sum", "value"])


def test_downstream_has_mean_accuracies_and_their_correlations():
    frame = study(datasets=1)
    frame["downstream_gbt_100"] = frame["mig"].rank() / 100
    frame["downstream_gbt_100_max"] = 1.0
    rows = downstream(frame)
    assert set(rows["task"]) == {"downstream_gbt_100"}
    mean = rows[rows["metric"].isna()].iloc[0]
    assert (mean["value"], mean["n"]) == (pytest.approx(0.305), 60)
    low, high = scipy.stats.t.interval(0.95, 59, 0.305, scipy.stats.sem(frame["downstream_gbt_100"]))
    assert (mean["low"], mean["high"]) == pytest.approx((low, high))
    assert rows.set_index("metric").loc["mig", "value"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("analysis", "frame", "message"),
    [
        (agreement, study().drop(columns="dataset"), "no column 'dataset'; name the column"),
        (agreement, study(metrics=["mig"]), "compares metrics, but the table has only one: mig"),
        (agreement, study().assign(mig=np.nan), "mig: no row has a finite number"),
        (agreement, study(seeds=1, methods=1, strengths=3), "needs at least 4 trials"),
        (agreement, study(datasets=0), "has no rows"),
        (downstream, study(), "no column that begins with downstream_"),
        (downstream, study().assign(downstream_x="high"), "downstream_x: must be a numeric column"),
        (unsupervised_selection, study(), "none of the columns reconstruction"),
        (unsupervised_selection, study().assign(recon_sum="low", kl_sum=1.0), "recon_sum: must be a numeric column"),
    ],
)
def test_what_cannot_be_correlated_is_reported(analysis, frame, message):
    with pytest.raises(ConfigError, match=message):
        analysis(frame)


def test_four_trials_have_an_interval_without_a_warning():
    """Some resamples draw one trial four times; these have no correlation."""
    frame = study(setting=1.0).groupby("dataset").head(4)
    rows = agreement(frame)
    assert set(rows["n"]) == {4}
    assert rows[["low", "high"]].notna().all(axis=None)
