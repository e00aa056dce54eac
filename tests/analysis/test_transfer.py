"""Settings ranked on two data sets."""

import pytest
import scipy

from disentune.analysis import transfer
from disentune.errors import ConfigError
from study_examples import METRICS, study


def test_it_is_spearmans_correlation_of_mean_scores():
    frame = study(datasets=3, setting=1.0)
    rows = transfer(frame)
    assert list(rows) == ["metric", "dataset", "other", "value", "n"]
    assert len(rows) == len(METRICS) * 3
    for row in rows.itertuples():
        means = [
            frame[frame["dataset"] == name].groupby(["method", "strength"])[row.metric].mean()
            for name in (row.dataset, row.other)
        ]
        assert row.value == pytest.approx(scipy.stats.spearmanr(*means).statistic)
        assert row.n == 12


def test_settings_that_both_data_sets_have_are_compared():
    frame = study(datasets=2, setting=1.0)
    frame = frame[~((frame["dataset"] == "data0") & (frame["strength"] == 1))]
    assert set(transfer(frame)["n"]) == {9}


def test_one_data_set_or_few_settings_are_refused():
    with pytest.raises(ConfigError, match="all trials have the same one: data0"):
        transfer(study(datasets=1))
    with pytest.raises(ConfigError, match="must have 4 settings or more in common, but have 3"):
        transfer(study(methods=1, strengths=3))
