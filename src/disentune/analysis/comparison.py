"""Is one value of a key better than another, or is the difference due to the seeds?

Seeds are the replicates: if a value has several trials with the same seed, for example with other strengths or data
sets, their mean is the score of that seed.
"""

import html
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from disentune.analysis import statistics
from disentune.errors import ConfigError, unknown

FEWEST = 3
"""With fewer seeds there is no verdict."""
JSON_KEYS = (
    "a", "b", "n_a", "n_b", "paired", "correlation", "difference", "low", "high", "p", "p_holm",
    "probability_of_improvement", "improvement_low", "improvement_high", "seeds_needed",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Value `a` of the key against value `b`; `difference` is mean(a) - mean(b), with its 95 % interval."""

    a: Any
    b: Any
    n_a: int
    n_b: int
    paired: bool
    correlation: float
    """Correlation of the two values' scores over shared seeds; pairing helps only if they correlate."""
    difference: float
    low: float
    high: float
    p: float
    """Exact: by permutation, or by flipping signs of paired differences. NaN below three seeds."""
    smallest_p: float
    """The smallest p-value that the test can give with this many seeds."""
    probability_of_improvement: float
    improvement_low: float
    improvement_high: float
    seeds_needed: int | None
    """Seeds per value needed to detect the observed difference in 80 % of repetitions of a t test at 5 %, and for the
    exact test to be able to reach 5 % after Holm's correction."""
    p_holm: float = math.nan
    smallest_p_holm: float = 0.0
    """The smallest value that `p_holm` can have with this many pairs and seeds."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        fewest = min(self.n_a, self.n_b)
        if fewest < FEWEST:
            return f"no verdict with only {fewest} seed{'s'[: fewest > 1]}"
        if self.p_holm < statistics.ALPHA:
            return "resolved"
        seeds = f"{fewest} {'pairs' if self.paired else 'seeds each'}"
        if self.smallest_p > statistics.ALPHA:
            return f"cannot reach 5 % with {seeds} (smallest p {self.smallest_p:.3g})"
        if self.smallest_p_holm > statistics.ALPHA:
            return f"cannot reach 5 % with {seeds} (smallest p holm {self.smallest_p_holm:.3g})"
        return "not resolved"


@dataclass(frozen=True, repr=False)
class Comparison:
    """All pairs of one key's values, p-values corrected over them by Holm's method."""

    metric: str
    by: str
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """One row per pair, in words."""
        return pd.DataFrame([line(pair) for pair in self.pairs])

    @property
    def title(self) -> str:
        return f"{self.metric} by {self.by}, difference of means (a - b) with its 95 % interval"

    def __repr__(self) -> str:
        return "\n".join(
            [f"{self.title}:", self.table.to_string(index=False), *(f"note: {note}" for note in self.notes)]
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>note: {html.escape(note)}</p>" for note in self.notes)
        return f"<p>{html.escape(self.title)}:</p>{self.table.to_html(index=False)}{notes}"

    def as_json(self) -> dict[str, Any]:
        return {"metric": self.metric, "by": self.by, "pairs": [_pair_json(pair) for pair in self.pairs]}


def _pair_json(pair: Pair) -> dict[str, Any]:
    whole = asdict(pair)
    return {key: _plain(whole[key]) for key in JSON_KEYS}


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def line(pair: Pair) -> dict[str, str]:
    """The columns of a pair in the table."""
    seeds = f"{pair.n_a}" if pair.n_a == pair.n_b else f"{pair.n_a}, {pair.n_b}"
    few = min(pair.n_a, pair.n_b) < FEWEST
    needed = "" if few else f"over {statistics.MOST_SEEDS}"
    improved = "" if few else f"{pair.probability_of_improvement:.2f} {_brackets(pair)}".strip()
    return {
        "a": _text(pair.a),
        "b": _text(pair.b),
        "n": f"{seeds} paired (r {_text(pair.correlation) or 'unknown'})" if pair.paired else seeds,
        "a - b": _text(pair.difference),
        "95 % interval": statistics.between(pair.low, pair.high),
        "p": _text(pair.p),
        "p holm": _text(pair.p_holm),
        "P(better)": improved,
        "seeds needed": needed if pair.seeds_needed is None else str(pair.seeds_needed),
        "verdict": pair.verdict,
    }


def _brackets(pair: Pair) -> str:
    if math.isnan(pair.improvement_low):
        return ""
    return f"({pair.improvement_low:.2f} to {pair.improvement_high:.2f})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value != value else f"{value:.3g}"


def compare(
    trials: pd.DataFrame,
    by: str,
    metric: str,
    baseline: Any = None,
    mode: Literal["max", "min"] = "max",
    best: Iterable[str] = (),
) -> Comparison:
    """Compares the values of column `by` in column `metric`, over the seeds of column `seed`.

    Pairs are sorted by their means, the better value first; with `baseline`, every other value is compared with it.
    `best` names columns of other settings: for each value of `by`, only their best combination is compared.
    """
    frame, notes = _scores(trials, by, metric), list[str]()
    if best := [key for key in best if key != by]:
        frame, points = _best_points(frame, by, best, metric, mode)
        notes += _selection_note(points)
    samples = _samples(frame, by, metric)
    notes += _mean_note(frame, by)
    order = sorted(samples, key=lambda value: _rank(samples[value], mode))
    found = [_pair(a, b, samples, mode) for a, b in _pairs_of(order, by, baseline)]
    notes += _unshared_note(found, samples)
    return Comparison(metric, by, tuple(_corrected(found)), tuple(notes))


def _corrected(pairs: list[Pair]) -> list[Pair]:
    """The pairs with Holm's correction, which multiplies the smallest p by the number of tests and never falls after
    it."""
    tested = [pair.smallest_p for pair in pairs if not math.isnan(pair.p)]
    least = min(1.0, len(tested) * min(tested, default=0.0))
    corrected = statistics.holm(np.array([pair.p for pair in pairs]))
    return [
        replace(
            pair,
            p_holm=float(p),
            smallest_p_holm=max(least, pair.smallest_p),
            seeds_needed=_reachable(pair, len(tested)),
        )
        for pair, p in zip(pairs, corrected, strict=True)
    ]


def _reachable(pair: Pair, tests: int) -> int | None:
    """The seeds needed, but never so few that no outcome could reach 5 % in this many tests."""
    if pair.seeds_needed is None:
        return None
    return max(pair.seeds_needed, statistics.fewest_seeds(pair.paired, statistics.ALPHA / tests))


# ---- which scores


def _scores(trials: pd.DataFrame, by: str, metric: str) -> pd.DataFrame:
    for kind, name in (("key", by), ("metric", metric), ("column", "seed")):
        if name not in trials:
            raise ConfigError(unknown(kind, name, map(str, trials.columns)))
    if by == "seed":
        raise ConfigError("--by seed: seeds are the replicates of a comparison; choose another key")
    missing = ~np.isfinite(trials[metric].to_numpy(dtype=float))
    if missing.all():
        raise ConfigError(f"{metric}: no trial has a number")
    if missing.any():
        count = f"{missing.sum()} of {len(trials)} trials have no finite number"
        raise ConfigError(f"{metric}: {count}; exclude these trials with --only, or score them again")
    if trials[by].nunique(dropna=False) < 2:
        raise ConfigError(f"{by}: has the same value in all {len(trials)} trials; choose a key that varies")
    return trials.assign(**{by: trials[by].astype(object).where(trials[by].notna(), "(none)")})


def _best_points(
    frame: pd.DataFrame, by: str, keys: list[str], metric: str, mode: str
) -> tuple[pd.DataFrame, dict[Any, int]]:
    """The trials of each value's best point, and how many points each value had."""
    keys = [key for key in keys if frame[key].nunique(dropna=False) > 1]
    sign, kept, points = (1 if mode == "max" else -1), [], {}
    for value, trials in frame.groupby(by, sort=False):
        grouped = trials.groupby(keys, dropna=False, sort=False) if keys else trials.groupby(by)
        numbers = grouped.ngroup()
        means = (sign * trials[metric]).groupby(numbers).mean()
        kept.append(trials[numbers == means.idxmax()])
        points[value] = len(means)
    return pd.concat(kept), points


def _selection_note(points: Mapping[Any, int]) -> list[str]:
    most = max(points.values())
    if most == 1:
        return []
    return [
        f"each value is taken at the best of up to {most} points, chosen by the same scores; this makes every p too "
        "small and every difference too large; choose on some seeds and compare on others"
    ]


def _samples(frame: pd.DataFrame, by: str, metric: str) -> dict[Any, pd.Series]:
    """The mean score of each seed, for each value."""
    means = frame.groupby([by, "seed"], sort=True)[metric].mean()
    samples = {value: means.xs(value, level=by) for value in dict.fromkeys(frame[by])}
    if all(len(sample) < 2 for sample in samples.values()):
        raise ConfigError(
            f"{by}: every value has only one seed, so a difference cannot be distinguished from chance; add seeds"
        )
    return samples


def _mean_note(frame: pd.DataFrame, by: str) -> list[str]:
    counts = frame.groupby([by, "seed"]).size()
    if counts.max() == 1:
        return []
    count = f"{counts.max()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    uneven = (
        ""
        if counts.min() == counts.max()
        else "; the values do not have the same number of trials, so compare with care"
    )
    return [f"the score of a seed is the mean of its {count} trials{uneven}"]


def _unshared_note(pairs: list[Pair], samples: Mapping[Any, pd.Series]) -> list[str]:
    used = [(value, n) for pair in pairs if pair.paired for value, n in ((pair.a, pair.n_a), (pair.b, pair.n_b))]
    most = max((len(samples[value]) - n for value, n in used), default=0)
    if most == 0:
        return []
    left_out = f"up to {most} seeds of a value are" if most > 1 else "one seed of a value is"
    return [f"a paired difference uses only the seeds that both values have; {left_out} left out"]


def _rank(sample: pd.Series, mode: str) -> float:
    return float(-sample.mean() if mode == "max" else sample.mean())


def _pairs_of(order: list[Any], by: str, baseline: Any) -> list[tuple[Any, Any]]:
    if baseline is None:
        return [*combinations(order, 2)]
    named = next((value for value in order if value == baseline or str(value) == str(baseline)), None)
    named = named if named is not None else _same_number(order, baseline)
    if named is None:
        raise ConfigError(f"--baseline: {unknown(f'value of {by}', str(baseline), map(_text, order))}")
    return [(value, named) for value in order if value is not named]


def _same_number(order: list[Any], text: Any) -> Any:
    """The value that equals this text as a number: 4.0 for `4`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return next((value for value in order if not isinstance(value, str) and value == number), None)


# ---- one pair


def _pair(a: Any, b: Any, samples: Mapping[Any, pd.Series], mode: str) -> Pair:
    first, second, is_paired = _matched(samples[a], samples[b])
    n, m = len(first), len(second)
    difference, low, high = _difference(first, second, is_paired)
    better, worse = (first, second) if mode == "max" else (second, first)
    decided = min(n, m) >= FEWEST
    effect = statistics.paired_d if is_paired else statistics.cohen_d
    improved = statistics.improvement_interval(better, worse) if decided else statistics.UNKNOWN
    return Pair(
        a=a, b=b, n_a=n, n_b=m, paired=is_paired,
        correlation=_correlation(first, second) if is_paired else math.nan,
        difference=difference, low=low, high=high,
        p=_p(first, second, is_paired) if decided else math.nan,
        smallest_p=statistics.smallest_p(n, m, is_paired),
        probability_of_improvement=statistics.improvement(better, worse),
        improvement_low=improved.low, improvement_high=improved.high,
        seeds_needed=statistics.seeds_needed(effect(first, second), is_paired) if decided else None,
    )  # fmt: skip


def _matched(a: pd.Series, b: pd.Series) -> tuple[np.ndarray, np.ndarray, bool]:
    """Scores of the shared seeds in the same order, if all or at least three are shared; else all scores."""
    shared = a.index.intersection(b.index)
    if len(shared) >= FEWEST or (len(shared) == len(a) == len(b) and len(shared) > 1):
        return a[shared].to_numpy(), b[shared].to_numpy(), True
    return a.to_numpy(), b.to_numpy(), False


def _difference(a: np.ndarray, b: np.ndarray, is_paired: bool) -> tuple[float, float, float]:
    if min(len(a), len(b)) < 2:
        return float(a.mean() - b.mean()), math.nan, math.nan
    found = statistics.paired(a, b) if is_paired else statistics.welch(a, b)
    return found.value, found.low, found.high


def _p(a: np.ndarray, b: np.ndarray, is_paired: bool) -> float:
    return statistics.sign_flip_p(a, b) if is_paired else statistics.permutation_p(a, b)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])
