"""Rank correlations over the trials of each data set: between metrics, and of other numbers with metrics.

Spearman's correlation with average ranks. Its 95 % interval is the percentile interval over resamples of the trials; of
full agreement, where every resample agrees, it goes down to `lowest_of_agreement`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

import numpy as np
import pandas as pd
import scipy

from disentune.analysis.scores import DATASET, DOWNSTREAM, LABEL_FREE, SETTING, metrics_of, present, with_keys
from disentune.analysis.statistics import CONFIDENCE, ROUNDING, mean_interval
from disentune.errors import ConfigError

FEWEST = 4
"""With three, two rankings agree fully by chance in one case out of six."""
RESAMPLES = 1000
CHUNK = 100
"""Resamples computed at a time, to limit memory."""


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of average ranks; NaN if one of them is constant."""
    first, second = scipy.stats.rankdata(a), scipy.stats.rankdata(b)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def lowest_of_agreement(n: int) -> float:
    """The lower end of the interval of a correlation of 1 over n trials.

    All n // 2 disjoint pairs of trials are in the same order. The bound of Clopper and Pearson for the probability of
    that is one for Kendall's tau, and so for Spearman's correlation.
    """
    return least_spearman(2 * ((1 - CONFIDENCE) / 2) ** (1 / (n // 2)) - 1)


def least_spearman(tau: float) -> float:
    """The smallest correlation of any two continuous quantities with this tau (Nelsen, An Introduction to Copulas,
    section 5.1.3)."""
    return (3 * tau - 1) / 2 if tau >= 0 else (tau**2 + 2 * tau - 1) / 2


def agreement(frame: pd.DataFrame, metrics: Sequence[str] | None = None, within: bool = False) -> pd.DataFrame:
    """`dataset`, `metric`, `other`, `value`, `low`, `high`, `n`: how similarly two metrics rank the trials of a data
    set.

    Over all trials it mixes the effects of methods and seeds. With `within`, the mean of each setting is subtracted
    from its scores, so that only the effect of seeds is left.
    """
    frame, metrics = with_keys(frame, (DATASET,)), metrics_of(frame, metrics)
    if len(metrics) < 2:
        raise ConfigError(f"agreement compares metrics, but the table has only one: {metrics[0]}")
    if within:
        frame = frame.assign(**_from_settings(frame, metrics))
    return _correlated(frame, combinations(metrics, 2))


def _from_settings(frame: pd.DataFrame, metrics: list[str]) -> dict[str, pd.Series]:
    means = with_keys(frame, SETTING).groupby([DATASET, *SETTING])[metrics].transform("mean")
    return {metric: frame[metric] - means[metric] for metric in metrics}


def downstream(frame: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """`dataset`, `task`, `metric`, `value`, `low`, `high`, `n`: a task's mean accuracy with its t interval if `metric`
    is empty; else the rank correlation of its accuracy with that metric."""
    frame, metrics = with_keys(frame, (DATASET,)), metrics_of(frame, metrics)
    tasks = [key for key in present(frame, frame.columns[frame.columns.str.startswith(DOWNSTREAM)]) if _kept(key)]
    if not tasks:
        raise ConfigError(f"the table has no column that begins with {DOWNSTREAM}; add the metric 'downstream'")
    means = pd.DataFrame([_mean(name, task, trials[task]) for name, trials in frame.groupby(DATASET) for task in tasks])
    related = _correlated(frame, product(metrics, tasks)).rename(columns={"other": "task"})
    columns = ["dataset", "task", "metric", "value", "low", "high", "n"]
    return pd.concat([means[columns], related[columns]], ignore_index=True)


def _kept(key: str) -> bool:
    return not key.endswith(("_max", "_sampled", "_normal", "_inside", "_outside"))


def _mean(name: object, task: str, values: pd.Series) -> dict[str, object]:
    numbers = values.dropna().to_numpy(dtype=float)
    low, high = mean_interval(numbers)
    found = {"value": numbers.mean() if len(numbers) else np.nan, "low": low, "high": high, "n": len(numbers)}
    return {"dataset": name, "task": task, "metric": None, **found}


def unsupervised_selection(frame: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """`dataset`, `metric`, `other`, `value`, `low`, `high`, `n`: the rank correlation of each metric with numbers that
    need no labels: reconstruction, KL, ELBO, total correlation, UDR."""
    frame, metrics = with_keys(frame, (DATASET,)), metrics_of(frame, metrics)
    if "elbo" not in frame and len(present(frame, ("recon_sum", "kl_sum"))) == 2:
        frame = frame.assign(elbo=-(frame["recon_sum"] + frame["kl_sum"]))
    others = present(frame, LABEL_FREE)
    if not others:
        raise ConfigError(f"the table has none of the columns {', '.join(LABEL_FREE)}")
    return _correlated(frame, product(metrics, others))


# ---- many pairs


def _correlated(frame: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    pairs = list(pairs)
    rows = [row for name, trials in frame.groupby(DATASET) for row in _rows(name, trials, pairs)]
    if not any(row["n"] for row in rows):
        raise ConfigError(f"a rank correlation needs at least {FEWEST} trials of a data set that have both numbers")
    return pd.DataFrame(rows)


def _rows(name: object, trials: pd.DataFrame, pairs: list[tuple[str, str]]) -> Iterator[dict[str, object]]:
    """Pairs that are available for the same trials are resampled together."""
    keys = list(dict.fromkeys(key for pair in pairs for key in pair))
    values = {key: trials[key].to_numpy(dtype=float) for key in keys}
    kinds: dict[bytes, list[tuple[str, str]]] = {}
    for pair in pairs:
        both = np.isfinite(values[pair[0]]) & np.isfinite(values[pair[1]])
        kinds.setdefault(both.tobytes(), []).append(pair)
    found: dict[tuple[str, str], tuple[float, float, float, int]] = {}
    for which, some in kinds.items():
        rows = np.flatnonzero(np.frombuffer(which, bool))
        found |= _intervals(
            {key: values[key][rows] for key in dict.fromkeys(key for pair in some for key in pair)}, some
        )
    for metric, other in pairs:
        value, low, high, n = found[metric, other]
        yield {"dataset": name, "metric": metric, "other": other, "value": value, "low": low, "high": high, "n": n}


def _intervals(
    values: dict[str, np.ndarray], pairs: list[tuple[str, str]]
) -> dict[tuple[str, str], tuple[float, float, float, int]]:
    n = len(next(iter(values.values())))
    if n < FEWEST:
        return dict.fromkeys(pairs, (np.nan, np.nan, np.nan, 0))
    resampled = np.concatenate([*_resampled(values, pairs, n)])
    ends = np.full((2, len(pairs)), np.nan)
    known = np.isfinite(resampled).sum(axis=0) > RESAMPLES / 2
    ends[:, known] = np.nanpercentile(resampled[:, known], [2.5, 97.5], axis=0)
    points = [spearman(values[a], values[b]) for a, b in pairs]
    found = zip(pairs, points, ends.T.tolist(), strict=True)
    return {pair: (point, *_widened(point, low, high, n), n) for pair, point, (low, high) in found}


def _widened(value: float, low: float, high: float, n: int) -> tuple[float, float]:
    """The interval, which a bootstrap gives no width where the correlation is 1 or -1."""
    if abs(value) < 1 - ROUNDING or np.isnan(value):
        return low, high
    low, high = lowest_of_agreement(n), 1.0
    return (low, high) if value > 0 else (-high, -low)


def _resampled(values: dict[str, np.ndarray], pairs: list[tuple[str, str]], n: int) -> Iterator[np.ndarray]:
    """Correlations (resamples, pairs), a chunk at a time."""
    rng, ranked = np.random.default_rng(0), {key: _Ranked(column) for key, column in values.items()}
    sides = [list(dict.fromkeys(keys)) for keys in zip(*pairs, strict=True)]
    places = [[side.index(key) for key in keys] for side, keys in zip(sides, zip(*pairs, strict=True), strict=True)]
    for _ in range(RESAMPLES // CHUNK):
        counts = rng.multinomial(n, np.full(n, 1 / n), size=CHUNK)
        with np.errstate(divide="ignore", invalid="ignore"):  # a resample of one value only has no correlation: NaN
            first = np.stack([ranked[key].scaled(counts) * counts for key in sides[0]], axis=1)
            second = np.stack([ranked[key].scaled(counts) for key in sides[1]], axis=2)
            found = (first @ second)[:, places[0], places[1]]
        yield found


class _Ranked:
    """A column that is sorted once; the average ranks of a resample follow from how often each row was drawn."""

    def __init__(self, column: np.ndarray):
        self.order = np.argsort(column, kind="stable")
        ordered = column[self.order]
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        sizes = np.diff(np.r_[self.starts, len(column)])
        self.tie = np.empty(len(column), np.int64)
        self.tie[self.order] = np.repeat(np.arange(len(self.starts)), sizes)

    def scaled(self, counts: np.ndarray) -> np.ndarray:
        """Ranks of the drawn rows, (resamples, n), centred and of unit length when each is counted as often as
        drawn."""
        drawn = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        ranks = (np.cumsum(drawn, axis=1) - (drawn - 1) / 2)[:, self.tie]
        ranks -= ((ranks * counts).sum(axis=1) / counts.sum(axis=1))[:, None]
        found: np.ndarray = ranks / np.sqrt((ranks**2 * counts).sum(axis=1))[:, None]
        return found
