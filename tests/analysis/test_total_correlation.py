"""Total correlation against the strength."""

import numpy as np
import pytest

from disentune.analysis import total_correlation
from disentune.errors import ConfigError
from study_examples import study


def test_means_and_trends_of_both_kinds_of_codes():
    frame = study(datasets=1)
    frame["gaussian_total_correlation"] = np.log2(frame["strength"]) + frame["seed"] / 10
    frame["gaussian_total_correlation_sampled"] = -frame["strength"]
    rows = total_correlation(frame)
    assert list(rows) == ["dataset", "method", "strength", "codes", "value", "low", "high", "n", "trend"]
    assert len(rows) == 12 * 2
    row = rows.query("method == 'method1' and strength == 4 and codes == 'mean'").iloc[0]
    assert (row["value"], row["n"]) == (pytest.approx(2.2), 5)
    assert (row["low"] + row["high"]) / 2 == pytest.approx(2.2)
    assert rows.query("codes == 'sampled'")["trend"].unique() == pytest.approx([-1])
    assert (rows.query("codes == 'mean'")["trend"] > 0.9).all()


def test_strengths_in_words_have_no_trend():
    """In the order of letters, 16 comes before 2."""
    frame = study(datasets=1).assign(gaussian_total_correlation=1.0)
    frame["strength"] = "beta " + frame["strength"].astype(str)
    rows = total_correlation(frame)
    assert rows["trend"].isna().all()
    assert (rows["value"] == 1).all()


def test_a_table_without_it_is_refused():
    with pytest.raises(ConfigError, match="none of the columns gaussian_total_correlation"):
        total_correlation(study())
