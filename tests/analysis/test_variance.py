"""R2 by groups: against a least-squares regression, closed forms and ANOVA."""

import numpy as np
import pandas as pd
import pytest
import scipy

from disentune.analysis import variance_explained
from disentune.analysis.variance import explained
from disentune.errors import ConfigError
from study_examples import METRICS, study


def test_six_numbers_in_pairs():
    value, adjusted = explained(np.arange(1.0, 7), np.repeat([0, 1, 2], 2))
    assert (value, adjusted) == pytest.approx((0.914286, 0.857143), abs=1e-6)


def test_it_is_the_r2_of_a_regression_on_indicators():
    frame = study(setting=1.0, datasets=1)
    rows = variance_explained(frame).set_index(["grouping", "metric"])
    for grouping, keys in {"method": ["method"], "method*strength": ["method", "strength"]}.items():
        groups = frame.groupby(keys).ngroup()
        indicators = np.eye(groups.max() + 1)[groups]
        for metric in METRICS:
            y = frame[metric].to_numpy()
            residual = y - indicators @ np.linalg.lstsq(indicators, y, rcond=None)[0]
            expected = 1 - residual.var() / y.var()
            assert rows.loc[(grouping, metric), "value"] == pytest.approx(expected)


def test_it_agrees_with_the_f_test_of_an_analysis_of_variance():
    frame = study(datasets=1, method=1.0)
    samples = [group["mig"] for _, group in frame.groupby("method")]
    f, k, n = scipy.stats.f_oneway(*samples).statistic, len(samples), len(frame)
    row = variance_explained(frame, ["mig"]).query("grouping == 'method'").iloc[0]
    assert row["value"] == pytest.approx(f * (k - 1) / (f * (k - 1) + n - k))


def test_exact_tables():
    """Scores that are the method alone, or the setting alone."""
    frame = study(datasets=1, noise=0.0, method=1.0)
    assert variance_explained(frame)["value"].tolist() == pytest.approx([1.0] * 6)
    frame = study(datasets=1)
    frame["mig"] = frame["strength"]  # the same strengths in every method
    rows = variance_explained(frame, ["mig"])
    assert rows["value"].tolist() == pytest.approx([0, 1])


def test_a_single_method_explains_exactly_nothing():
    rows = variance_explained(study(datasets=1, methods=1, setting=1.0), ["mig"]).set_index("grouping")
    assert rows.loc["method", ["value", "adjusted", "low", "high"]].tolist() == [0, 0, 0, 0]
    assert rows.loc["method*strength", "value"] > 0


@pytest.mark.parametrize("seed", range(20))
def test_method_and_strength_explain_at_least_what_the_method_does(seed):
    rows = variance_explained(study(rng=seed, setting=seed / 10, method=0.5, seeds=2 + seed % 3), ["mig"])
    values = rows.pivot(index="dataset", columns="grouping", values="value")
    assert (values["method*strength"] >= values["method"]).all()
    assert rows["value"].between(0, 1).all()


def test_random_scores_have_the_expected_r2_and_an_adjusted_one_of_0():
    """E[R2] = (groups - 1) / (n - 1): 0.1955 of 36 groups of 5, and 0.0279 of 6 groups of 30."""
    frames = [study(datasets=1, methods=6, strengths=6, seeds=5, metrics=["mig"], rng=rng) for rng in range(100)]
    for keys, groups in ((["method", "strength"], 36), (["method"], 6)):
        shares = [explained(frame["mig"].to_numpy(), frame.groupby(keys).ngroup().to_numpy()) for frame in frames]
        value, adjusted = np.mean(shares, axis=0)
        assert value == pytest.approx((groups - 1) / 179, abs=0.015)
        assert adjusted == pytest.approx(0, abs=0.015)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "grouping"), [(20, "method"), (20, "method*strength"), (5, "method*strength")])
def test_the_adjusted_interval_covers_the_share_of_the_population(seeds, grouping):
    """Settings are fixed, so the truth is the variance of their own effects, over that and the noise's of 1."""
    adjusted, plain = [], []
    shape = {"datasets": 1, "setting": 0.5, "method": 0.5, "methods": 4, "strengths": 4, "metrics": ["mig"]}
    keys = grouping.split("*")
    for rng in range(40):
        scores = study(**shape, noise=0.0, seeds=1, rng=rng)
        truth = scores.groupby(keys)["mig"].transform("mean").var(ddof=0) / (scores["mig"].var(ddof=0) + 1)
        row = variance_explained(study(**shape, seeds=seeds, rng=rng)).query("grouping == @grouping").iloc[0]
        inflated = 1 - (1 - truth) * (row["n"] - 4 ** len(keys)) / (row["n"] - 1)
        adjusted.append(row["low"] <= inflated <= row["high"])
        plain.append(row["low"] <= truth <= row["high"])
    assert np.mean(adjusted) >= (0.9 if seeds == 20 else 0.8)
    assert seeds == 20 or np.mean(plain) < 0.7  # few seeds inflate plain R2


def test_rows_have_their_columns_and_count_trials():
    rows = variance_explained(study(datasets=2))
    assert list(rows) == ["dataset", "metric", "grouping", "value", "adjusted", "low", "high", "n"]
    assert set(rows["grouping"]) == {"method", "method*strength"}
    assert set(rows["n"]) == {60}
    assert (rows["low"] <= rows["high"]).all()


def test_a_constant_score_has_no_variance_to_explain():
    row = variance_explained(study(datasets=1).assign(mig=1.0), ["mig"]).iloc[0]
    assert np.isnan([row["value"], row["adjusted"], row["low"]]).all()


def test_one_seed_is_refused():
    with pytest.raises(ConfigError, match="each setting has only one trial"):
        variance_explained(study(seeds=1))


def test_repeated_rows_are_refused():
    frame = study()
    with pytest.raises(ConfigError, match="120 rows repeat the keys of an earlier row"):
        variance_explained(pd.concat([frame, frame]))
