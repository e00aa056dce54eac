"""The history of a search: the score of each suggested point by its number, and the best so far."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from disentune.report.canvas import INK, PALETTE
from disentune.report.groups import (
    EXCLUDED,
    budgets,
    captioned,
    counted,
    draw_dots,
    outer_labels_only,
    panelled,
    said,
    score_axis,
    table,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.points import point_numbers
from disentune.spec.figures import History

FEWEST = 3
"""Minimum number of points."""


def choose(scores: RunScores) -> list[History]:
    try:
        return [History()] if _trials(scores, None)["point"].nunique() >= FEWEST else []
    except NothingToDraw:
        return []


def draw(figure: Figure, scores: RunScores, spec: History) -> Caption:
    trials = _trials(scores, spec.metric)
    lower = scores.better(spec.metric).startswith("lower")
    several, seeds = trials["arm"].nunique() > 1, scores.results.trials["seed"].nunique()
    for axes, own in panelled(figure, scores, trials, ["arm"] if several else []):
        draw_dots(axes, own["point"].to_numpy(dtype=float), own, PALETTE[0], 5)
        _draw_best(axes, best_so_far(own, lower, seeds))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("number of the point" if several else f"number of the point (n = {len(own)} trials)")
        score_axis(axes, scores, spec.metric)
        outer_labels_only(axes)
    return captioned(
        f"{said(scores, spec.metric)} by point of the search", counted(scores, trials),
        "The line is the best mean over the seeds of a point so far, among points whose seeds all trained to the end.",
        budgets(trials).replace(f"means {EXCLUDED}", "the line excludes them"),
    )  # fmt: skip


def _trials(scores: RunScores, metric: str | None) -> pd.DataFrame:
    """Trials with their score and the number of their point."""
    trials, numbers = table(scores, metric, ["arm"]), point_numbers(scores.results)
    if not numbers:
        raise NothingToDraw("the run has no suggested points: its search is not optuna")
    trials = trials.assign(point=trials["trial_id"].map(numbers)).dropna(subset="point")
    if trials.empty:
        raise NothingToDraw("no trial with a score belongs to a suggested point")
    return trials


def best_so_far(trials: pd.DataFrame, lower: bool, seeds: int = 1) -> pd.Series:
    """The best mean so far, by point number, over points all of whose seeds trained to the end. A point with a seed
    that failed or has no score yet does not count: the mean of the others is no value of the search."""
    points = trials.groupby("point").agg(value=("value", "mean"), cut=("cut", "any"), scored=("value", "size"))
    ended = points["value"][~points["cut"] & (points["scored"] >= seeds)].sort_index()
    return ended.cummin() if lower else ended.cummax()


def _draw_best(axes: Axes, best: pd.Series) -> None:
    if len(best):
        axes.step(best.index.to_numpy(dtype=float), np.asarray(best), where="post", color=INK, linewidth=1.5)


KIND = Kind(
    name="history",
    question="Does the search still find better points?",
    choose=choose,
    draw=draw,
)
