"""Which factor is learnt first, beside its perceived distance: Michlo et al., IJCAI 2023, section 4.3."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from disentune.analysis.correlation import spearman
from disentune.analysis.statistics import mean_interval
from disentune.report.canvas import tidy
from disentune.report.factors import COLUMNS, draw_factors, explained, factors_of, per_factor
from disentune.report.groups import FEWEST_SPREAD, captioned, combined, outer_labels_only, panelled, shown
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import LearningOrder

METRIC, IMPORTANCE = "factor_information", "factor_importance"
MOST_PANELS = 6
SIGNIFICANT = 4
"""Decimals of distances, as shares of the largest one, that count."""
FEWEST_FACTORS = 3
"""Two factors agree with any order in one case out of two."""


def choose(scores: RunScores) -> list[LearningOrder]:
    try:
        found = _informed(scores)
    except NothingToDraw:
        return []
    return [LearningOrder()] if found.groupby("trial_id")["x"].nunique().max() > 1 else []


def draw(figure: Figure, scores: RunScores, spec: LearningOrder) -> Caption:
    found, importance = _informed(scores), _importance(scores)
    trials = scores.trials[scores.trials["trial_id"].isin(found["trial_id"])]
    keys = [key for key in scores.design.keys if trials[key].nunique(dropna=False) > 1]
    column = combined(trials, keys)
    groups = shown(scores, keys, column, MOST_PANELS)
    trials = trials[column.isin(groups.values)]
    for axes, own in panelled(figure, scores, trials, keys):
        ids = own["trial_id"]
        told = found[found["trial_id"].isin(ids)]
        factors = factors_of(told)
        distances = importance[importance["trial_id"].isin(ids)].groupby("factor")["y"].mean()
        notes = {name: f" ({_short(distances[name])})" for name in factors if name in distances}
        draw_factors(axes, told, _by_importance(factors, distances), notes)
        axes.set(xlabel="step", ylabel="share of the factor that one latent tells")
        axes.legend(frameon=False, fontsize=8)
        tidy(axes)
        outer_labels_only(axes)
    numbers = "In brackets: the factor's mean perceived distance, which is computed from the images." if notes else ""
    agreed = _agreement(found, importance, set(trials["trial_id"]))
    return captioned("Order of learning", explained(len(trials)), numbers, agreed, groups.note)


def _short(distance: float) -> str:
    return f"{distance:,.0f}" if distance >= 100 else f"{distance:.3g}"


# ---- rows


def _informed(scores: RunScores) -> pd.DataFrame:
    """`COLUMNS`: the share of each factor that one latent tells, at each evaluation; x is the step."""
    found = _details(scores, METRIC)
    if found.empty:
        raise NothingToDraw(f"no trial has reported {METRIC} yet: evaluate {METRIC}, and {IMPORTANCE} beside it")
    return found


def _importance(scores: RunScores) -> pd.DataFrame:
    """`COLUMNS`: the mean perceived distance of each factor; empty if it was not evaluated."""
    return _details(scores, IMPORTANCE)


def _details(scores: RunScores, metric: str) -> pd.DataFrame:
    whole = set(scores.trials["trial_id"])
    rows = [row for record in scores.results.records if record.trial_id in whole for row in _of(record, metric)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _of(record: Any, metric: str) -> Iterator[tuple[str, float, str, float]]:
    for row in record.rows:
        for name, value in per_factor(row, metric):
            yield record.trial_id, float(row["step"]), name, value


# ---- order


def _by_importance(factors: list[str], distances: pd.Series) -> list[str]:
    """The largest distance first; factors whose distance is unknown keep their place at the end."""
    return sorted(factors, key=lambda name: -distances.get(name, -np.inf))


def rank_agreement(found: pd.DataFrame, importance: pd.DataFrame) -> float:
    """Rank correlation, over the factors of one trial, of the perceived distance with the share told, averaged over
    the trial's evaluations: a factor that is learnt early has a large mean. NaN if it cannot be computed."""
    told, distance = (frame.groupby("factor")["y"].mean() for frame in (found, importance))
    both = pd.concat([told, distance], axis=1, join="inner").to_numpy()
    return spearman(both[:, 0], _without_rounding(both[:, 1])) if len(both) >= FEWEST_FACTORS else float("nan")


def _without_rounding(distances: np.ndarray) -> np.ndarray:
    """Distances that differ only by the rounding of float32 sums become equal."""
    found: np.ndarray = np.round(distances / (np.abs(distances).max() or 1.0), SIGNIFICANT)
    return found


def _agreement(found: pd.DataFrame, importance: pd.DataFrame, trials: set[str]) -> str:
    """Mean over trials, as a sentence; empty if distances or factors are missing."""
    by_trial = dict(list(importance.groupby("trial_id")))
    values = [
        rank_agreement(own, by_trial[trial])
        for trial, own in found.groupby("trial_id")
        if trial in trials & by_trial.keys()
    ]
    values = [value for value in values if np.isfinite(value)]
    if not values:
        return ""
    low, high = mean_interval(np.array(values))
    interval = f", 95 % t interval {low:.2f} to {high:.2f}" if len(values) >= FEWEST_SPREAD else ""
    return (
        f"Rank correlation of a factor's distance with the share told, averaged over training: {np.mean(values):.2f} "
        f"(mean over {len(values)} trials{interval}); 1 if larger distances are learnt first."
    )


KIND = Kind(
    name="learning_order",
    question="Which factor is learnt first, and is it the one with the largest perceived distance?",
    choose=choose,
    draw=draw,
)
