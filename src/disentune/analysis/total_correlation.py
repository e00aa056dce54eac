"""Does regularisation make codes independent? Locatello et al., ICML 2019, section 5.1.

Total correlation of a Gaussian fitted to the codes, of posterior means and of samples, against the strength.
"""

import numpy as np
import pandas as pd

from disentune.analysis.correlation import spearman
from disentune.analysis.scores import (
    DATASET,
    METHOD,
    SETTING,
    STRENGTH,
    TOTAL_CORRELATIONS,
    is_number,
    present,
    with_settings,
)
from disentune.analysis.statistics import mean_interval
from disentune.errors import ConfigError


def total_correlation(frame: pd.DataFrame) -> pd.DataFrame:
    """`dataset`, `method`, `strength`, `codes`, `value`, `low`, `high`, `n`, `trend`: mean and its 95 % t interval.

    `trend` is Spearman's correlation of the total correlation with the strength over all trials of the method; NaN if
    strengths are text, which has no order.
    """
    frame = with_settings(frame)
    codes = {kind: key for kind, key in TOTAL_CORRELATIONS.items() if present(frame, [key])}
    if not codes:
        raise ConfigError(f"the table has none of the columns {', '.join(TOTAL_CORRELATIONS.values())}")
    rows = [
        {
            "dataset": dataset,
            "method": method,
            "strength": strength,
            "codes": kind,
            **_mean(trials[key].to_numpy(float)),
        }
        for (dataset, method, strength), trials in frame.groupby([DATASET, *SETTING])
        for kind, key in codes.items()
    ]
    trends = {
        (dataset, method, kind): _trend(trials, key)
        for (dataset, method), trials in frame.groupby([DATASET, METHOD])
        for kind, key in codes.items()
    }
    return pd.DataFrame([{**row, "trend": trends[row["dataset"], row["method"], row["codes"]]} for row in rows])


def _trend(trials: pd.DataFrame, key: str) -> float:
    if not is_number(trials[STRENGTH]):
        return np.nan
    return spearman(trials[STRENGTH].to_numpy(), trials[key].to_numpy(float))


def _mean(values: np.ndarray) -> dict[str, float]:
    values = values[np.isfinite(values)]
    low, high = mean_interval(values)
    return {"value": float(values.mean()) if len(values) else np.nan, "low": low, "high": high, "n": len(values)}
