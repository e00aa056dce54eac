"""The table that analyses read: columns by any name, and scores that are numbers."""

import numpy as np
import pandas as pd
import pytest

from disentune.analysis.scores import metrics_of, renamed
from disentune.errors import ConfigError
from study_examples import study


def test_columns_have_any_name():
    table = pd.DataFrame({"data": ["d"], "dataset": ["theirs"], "mig": [1.0]})
    assert renamed(table, {"dataset": "data"}).to_dict("list") == {"dataset": ["d"], "mig": [1.0]}


def test_unknown_keys_and_columns_are_refused():
    with pytest.raises(ConfigError, match=r"unknown key 'datset'\. Did you mean 'dataset'"):
        renamed(study(), {"datset": "mig"})
    with pytest.raises(ConfigError, match="unknown column 'data'"):
        renamed(study(), {"dataset": "data"})


def test_the_scores_of_the_study_are_taken_before_others():
    assert metrics_of(study().assign(other=1.0)) == ["mig", "modularity", "sap"]
    assert metrics_of(study(metrics=["their score", "kl_sum", "downstream_x", "x_max"])) == ["their score"]
    assert metrics_of(study(), ["sap"]) == ["sap"]


@pytest.mark.parametrize(
    ("frame", "asked", "message"),
    [
        (study(), ["mag"], "unknown metric 'mag'. Did you mean 'mig'"),
        (study().assign(mig="high"), ["mig"], "must be a numeric column"),
        (study().assign(mig=[np.nan] + [1.0] * 119), None, "1 of 120 rows are not finite"),
        (study(metrics=[]), None, "no column of scores"),
    ],
)
def test_columns_that_are_not_scores_are_refused(frame, asked, message):
    with pytest.raises(ConfigError, match=message):
        metrics_of(frame, asked)
