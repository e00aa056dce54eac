"""How much of a score's variance is explained by the method, and by the method with its strength; the rest is the seed.

Locatello et al., ICML 2019, section 5.3: R2 = 1 - SS_within / SS_total of a regression on categories.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from disentune.analysis.scores import DATASET, METHOD, SETTING, metrics_of, with_settings
from disentune.errors import ConfigError

GROUPINGS = {"method": [METHOD], "method*strength": SETTING}
RESAMPLES = 1000


def explained(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """R2 and adjusted R2 of values (n,) by group number (n,); NaN if nothing varies."""
    n, counts = len(values), np.bincount(groups)
    moved = values - values.mean()
    total = float(moved @ moved)
    between = float((np.bincount(groups, moved) ** 2 / np.maximum(counts, 1)).sum())
    if total <= 0:
        return np.nan, np.nan
    kinds = np.count_nonzero(counts)
    share = min(1.0, between / total) if kinds > 1 else 0.0  # of one group, only rounding is left
    return share, 1 - (1 - share) * (n - 1) / (n - kinds) if n > kinds else np.nan


def variance_explained(frame: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """`dataset`, `metric`, `grouping`, `value` (R2), `adjusted`, `low`, `high`, `n`, one row each.

    If nothing is explained, adjusted R2 is 0 on average and plain R2 is (groups - 1) / (n - 1). The 95 % interval is
    for plain R2 with this number of seeds, over resamples of the trials of each setting, minus the bias of the
    resampling itself. So with few seeds it lies above the share that is explained in the population; for an interval
    of that share, adjust its ends as R2 is adjusted: 1 - (1 - end) (n - 1) / (n - groups).
    """
    frame, metrics = with_settings(frame), metrics_of(frame, metrics)
    rows = [row for name, trials in frame.groupby(DATASET) for row in _rows(name, trials, metrics)]
    return pd.DataFrame(rows)


def _rows(name: object, trials: pd.DataFrame, metrics: list[str]) -> list[dict[str, object]]:
    settings = trials.groupby(SETTING, sort=True).ngroup().to_numpy()
    if len(trials) == settings.max() + 1:
        raise ConfigError(
            f"dataset {name}: each setting has only one trial, so the variance between seeds is unknown; add seeds"
        )
    values, rows = trials[metrics].to_numpy(dtype=float), []
    sums, squares = _resampled(values, settings)
    for grouping, keys in GROUPINGS.items():
        groups = trials.groupby(keys, sort=True).ngroup().to_numpy()
        resampled = _resampled_shares(sums, squares, settings, groups)
        for column, metric in enumerate(metrics):
            value, adjusted = explained(values[:, column], groups)
            low, high = _interval(resampled[:, column], value)
            kind = {"dataset": name, "metric": metric, "grouping": grouping}
            rows.append({**kind, "value": value, "adjusted": adjusted, "low": low, "high": high, "n": len(trials)})
    return rows


def _resampled(values: np.ndarray, settings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of each setting, (settings, resamples, metrics), and sums of squares of all, (resamples, metrics).

    The trials of a setting are drawn with replacement. Sums are computed from how often each trial was drawn, without
    building the resamples.
    """
    rng, moved, sums, squares = np.random.default_rng(0), values - values.mean(axis=0), [], 0.0
    for setting in range(settings.max() + 1):
        rows = np.flatnonzero(settings == setting)
        drawn = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=RESAMPLES).astype(float)
        sums.append(drawn @ moved[rows])
        squares = squares + drawn @ moved[rows] ** 2
    return np.stack(sums), np.asarray(squares)


def _resampled_shares(sums: np.ndarray, squares: np.ndarray, settings: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """R2 of each resample by groups of settings, (resamples, metrics)."""
    if groups.max() == 0:
        return np.zeros(squares.shape)
    group_of = np.zeros(len(sums), np.int64)
    group_of[settings] = groups
    by_group = np.zeros((groups.max() + 1, *sums.shape[1:]))
    np.add.at(by_group, group_of, sums)
    centre = sums.sum(axis=0) ** 2 / len(groups)
    between = (by_group**2 / np.bincount(groups)[:, None, None]).sum(axis=0) - centre
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = between / (squares - centre)
    return found


def _interval(resampled: np.ndarray, value: float) -> tuple[float, float]:
    if not np.isfinite(resampled).all() or np.isnan(value):
        return np.nan, np.nan
    low, high = np.percentile(resampled, [2.5, 97.5]) - (resampled.mean() - value)
    return float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1))
