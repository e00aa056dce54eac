"""Does the best setting on one data set and metric also win on others? Locatello et al., ICML 2019, section 5.4.

Draw a metric, a data set and one of its seeds, and take the setting with the best score there (of equal ones, the
first). Train it with another seed and compare it with a model drawn at random, by the same or another metric, on the
same or another data set: how often does it win? A tie counts one half; the random model may have the same setting.
Nothing is sampled here: every such comparison is counted, so the value has no sampling noise.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
import scipy

from disentune.analysis.scores import DATASET, METHOD, SEED, STRENGTH, metrics_of, with_settings
from disentune.analysis.statistics import half_width
from disentune.errors import ConfigError

By = Literal["seed", "mean"]


def selection(frame: pd.DataFrame, metrics: Sequence[str] | None = None, by: By = "seed") -> pd.DataFrame:
    """`same_metric`, `same_dataset`, `value`, `low`, `high`, `n`: four rows, or two if there is one data set or one
    metric; `value` is how often the chosen setting wins, `n` the number of trials.

    `by` sets whether the scores of one seed choose a setting, as published, or the means over all seeds except the one
    that is then compared. The interval is a t interval by a jackknife over seeds: it covers variation over seeds, not
    over data sets or metrics; it is unknown (NaN) below three seeds. Higher scores count as better.
    """
    frame, metrics = with_settings(frame, SEED), metrics_of(frame, metrics)
    scores = _array(frame, metrics)
    seeds = scores.shape[-1]
    if seeds < 2:
        raise ConfigError("selection compares a setting with itself at another seed, but the table has only one seed")
    whole = _table(scores, by)
    others = [_table(np.delete(scores, seed, axis=-1), by) for seed in range(seeds)] if seeds > 2 else []
    rows = []
    for kind, value in whole.items():
        half = _jackknife(np.array([other.get(kind, np.nan) for other in others]))
        low, high = np.clip([value - half, value + half], 0, 1)
        found = {"value": value, "low": low, "high": high, "n": len(frame)}
        rows.append({"same_metric": kind[0], "same_dataset": kind[1], **found})
    return pd.DataFrame(rows)


def _array(frame: pd.DataFrame, metrics: list[str]) -> np.ndarray:
    """Scores (data sets, metrics, settings, seeds); NaN if there is no trial."""
    settings = pd.MultiIndex.from_frame(frame[[METHOD, STRENGTH]].astype(str))
    places = [pd.factorize(column, sort=True)[0] for column in (frame[DATASET], settings, frame[SEED])]
    sizes = [place.max() + 1 for place in places]
    found = np.full((sizes[0], len(metrics), *sizes[1:]), np.nan)
    found[places[0], :, places[1], places[2]] = frame[metrics].to_numpy(dtype=float)
    return found


def _table(scores: np.ndarray, by: By) -> dict[tuple[bool, bool], float]:
    """How often the chosen setting wins, by whether metric and data set are the same."""
    datasets, metrics, _, seeds = scores.shape
    (chosen, is_chosen), wins = _chosen(scores, by), _winning(scores)
    here = wins[:, :, chosen, np.arange(seeds)]  # (target data set, its metric, source data set, its metric, seed)
    if by == "mean":
        won, counted = np.nan_to_num(here), np.isfinite(here)
    else:  # every other seed of the chosen setting
        won = np.nansum(wins, axis=-1)[:, :, chosen] - np.nan_to_num(here)
        counted = np.isfinite(wins).sum(axis=-1)[:, :, chosen] - np.isfinite(here)
    won, counted = (won * is_chosen).sum(axis=-1), (counted * is_chosen).sum(axis=-1)
    found = {}
    for metric, dataset in product((True, False), repeat=2):
        same_metric = np.eye(metrics, dtype=bool)[None, :, None, :] == metric
        same_dataset = np.eye(datasets, dtype=bool)[:, None, :, None] == dataset
        if (count := counted[same_metric & same_dataset].sum()) > 0:
            found[metric, dataset] = float(won[same_metric & same_dataset].sum() / count)
    return found


def _chosen(scores: np.ndarray, by: By) -> tuple[np.ndarray, np.ndarray]:
    """The best setting by each seed, or by the mean of all others, and whether there was any score to choose by; both
    (data sets, metrics, seeds)."""
    if by == "mean":
        counts = np.isfinite(scores).sum(axis=-1, keepdims=True) - np.isfinite(scores)
        sums = np.nansum(scores, axis=-1, keepdims=True) - np.nan_to_num(scores)
        scores = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    best = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=2)
    return best, np.isfinite(scores).any(axis=2)


def _winning(scores: np.ndarray) -> np.ndarray:
    """How often each model beats a random model of its data set in a metric: its average rank, scaled to [0, 1]."""
    flat = scores.reshape(*scores.shape[:2], -1)
    missing = np.isnan(flat)
    ranks = scipy.stats.rankdata(np.where(missing, np.inf, flat), axis=-1)  # missing scores rank last
    counts = (~missing).sum(axis=-1, keepdims=True)
    return np.where(missing, np.nan, (ranks - 0.5) / np.maximum(counts, 1)).reshape(scores.shape)


def _jackknife(values: np.ndarray) -> float:
    """Half a 95 % interval from the values without each of the seeds; NaN below three seeds."""
    n = len(values)
    if n < 3:
        return float("nan")
    deviation = (n - 1) * values.std(ddof=1)  # of the pseudo-values
    return float(half_width(deviation, np.array(n)))
