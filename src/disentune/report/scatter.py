"""One metric against another: trials, means of groups with their intervals, and the Pareto front."""

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t

from disentune.report.canvas import FAINT, GREY, INK, tidy, words
from disentune.report.design import Design
from disentune.report.groups import (
    FEWEST_SPREAD,
    MOST_SERIES,
    Shown,
    combined,
    draw_dots,
    legend,
    listed,
    shown,
    table,
    value_label,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Scatter

MOST_LABELS = 6
LEVEL = 0.95


def choose(scores: RunScores) -> list[Scatter]:
    """The objective against the first metric of something else, if there are at least three groups."""
    try:
        design = scores.scored_design(None)
        x, y = _metrics(scores, Scatter())
        enough = len(_trials(scores, x, y, None, None)) >= FEWEST_SPREAD and design.groups().nunique() >= FEWEST_SPREAD
    except NothingToDraw:
        return []
    return [Scatter(x=x, y=y)] if enough else []


def draw(figure: Figure, scores: RunScores, spec: Scatter) -> Caption:
    x, y = _metrics(scores, spec)
    trials = _trials(scores, x, y, spec.by, spec.label)
    design = scores.design.of(trials["trial_id"])
    by = [spec.by] if spec.by else _colour_key(design)
    trials = trials.assign(series=combined(trials, by), group=design.groups().to_numpy())
    series = shown(scores, by, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    points = group_means(trials)
    axes = figure.subplots()
    for value in series.values:
        own = trials[trials["series"] == value]
        draw_dots(axes, own["x"].to_numpy(), own, series.colours[value])
    _draw_means(axes, points, series)
    if spec.label:
        _join(axes, scores, trials, points, series, spec.label)
    front = _front(scores, x, y, points) if spec.pareto and len(points) > 1 else points[:0]
    _draw_front(axes, front)
    if (spec.label is not None or len(points) <= MOST_LABELS) if spec.labels is None else spec.labels:
        _draw_labels(axes, scores, trials, points, series, spec.label)
    for name, metric in (("x", x), ("y", y)):
        axes.set(**{f"{name}label": f"{words(metric)} ({scores.better(metric)})"})
    tidy(axes)
    axes.grid(axis="x", color=FAINT, linewidth=0.7)
    legend(figure, series, trials["series"])
    return Caption(f"{words(y)} against {words(x)}", _explained(scores, trials, points, len(front), spec.label))


def _colour_key(design: Design) -> list[str]:
    """The first key that can be shown by colours; groups are distinguished by their means, whatever the colour."""
    found = (key for key in design.keys if 1 < design.count([key]) <= MOST_SERIES and key not in design.sampled)
    return list(islice(found, 1))


# ---- numbers


def _metrics(scores: RunScores, spec: Scatter) -> tuple[str, str]:
    y = spec.y or scores.objective.metric
    scores.scored(y)
    x = spec.x or next(iter(scores.compared_with(y)), None)
    if x is None:
        raise NothingToDraw(f"a scatter needs two metrics, but the trials have {y} only")
    if x == y:
        raise NothingToDraw(f"a scatter needs two different metrics, but x and y are both {x}")
    return x, y


def _trials(scores: RunScores, x: str, y: str, by: str | None, label: str | None) -> pd.DataFrame:
    """Trials that have both numbers: `x` and `y`, which is also `value`."""
    frame = table(scores, y, ["arm", *scores.varying, by, label])
    other = scores.scored(x).set_index("trial_id")["value"]
    frame = frame.assign(x=frame["trial_id"].map(other), y=frame["value"]).dropna(subset="x").reset_index(drop=True)
    if frame.empty:
        raise NothingToDraw(f"no trial has both {x} and {y}")
    return frame


def group_means(trials: pd.DataFrame) -> pd.DataFrame:
    """For each group of trials that differ only by seed: the means `x` and `y`, half the widths `dx` and `dy` of their
    95 % intervals (Student's t; NaN below three trials), `n` and the series. Trials with less training than others
    count only if a group has no others."""
    ended = trials[~trials["cut"].astype(bool) | trials.groupby("group")["cut"].transform("all").astype(bool)]
    groups = ended.groupby("group", sort=True)
    found = groups.agg(x=("x", "mean"), y=("y", "mean"), n=("x", "size"), series=("series", "first"))
    for name in ("x", "y"):
        found[f"d{name}"] = [half_width(sd, n) for sd, n in zip(groups[name].std(), found["n"], strict=True)]
    return found.reset_index()


def half_width(sd: float, n: int) -> float:
    """Half the 95 % t interval of a mean; NaN below three trials, where it would be wider than any axis."""
    return float(t.ppf((1 + LEVEL) / 2, n - 1) * sd / math.sqrt(n)) if n >= FEWEST_SPREAD else math.nan


def pareto(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """Indices of the points that no other point beats, where larger is better in both; from left to right. Equal points
    are all kept."""
    best = -math.inf
    found: list[int] = []
    for i in sorted(range(len(x)), key=lambda i: (-x[i], -y[i])):
        twin = found and (x[i], y[i]) == (x[found[-1]], y[found[-1]])
        if y[i] > best or twin:
            found.append(i)
            best = max(best, y[i])
    return found[::-1]


def _front(scores: RunScores, x: str, y: str, points: pd.DataFrame) -> pd.DataFrame:
    signs = [-1 if scores.better(metric).startswith("lower") else 1 for metric in (x, y)]
    kept = pareto((signs[0] * points["x"]).tolist(), (signs[1] * points["y"]).tolist())
    return points.iloc[kept]


# ---- drawing


def _draw_means(axes: Axes, points: pd.DataFrame, series: Shown) -> None:
    for point in points[points["n"] > 1].itertuples():
        colour = series.colours[point.series]
        bars = {"xerr": point.dx, "yerr": point.dy} if np.isfinite(point.dx) else {}
        axes.errorbar(point.x, point.y, **bars, color=colour, marker="D", markersize=6, markeredgecolor=INK,
                      markeredgewidth=0.8, elinewidth=1, capsize=2, zorder=4)  # fmt: skip


def _draw_front(axes: Axes, front: pd.DataFrame) -> None:
    if len(front):
        axes.plot(front["x"], front["y"], color=GREY, linestyle="--", linewidth=1.2, zorder=2)
        axes.plot(front["x"], front["y"], "o", color=GREY, markerfacecolor="none", markersize=11, zorder=5)


def _join(axes: Axes, scores: RunScores, trials: pd.DataFrame, points: pd.DataFrame, series: Shown, key: str) -> None:
    """A line through the means of each colour, in the order of the key's values."""
    values = combined(trials, [key]).groupby(trials["group"]).first()
    ranks = {value: rank for rank, value in enumerate(scores.order(key, list(values)))}
    ordered = points.assign(at=points["group"].map(values).map(ranks)).sort_values("at", kind="stable")
    for value in series.values:
        own = ordered[ordered["series"] == value]
        axes.plot(own["x"], own["y"], color=series.colours[value], linewidth=1, alpha=0.6, zorder=2)


def _draw_labels(
    axes: Axes, scores: RunScores, trials: pd.DataFrame, points: pd.DataFrame, series: Shown, key: str | None
) -> None:
    keys = [key] if key else [one for one in scores.design.keys if one in trials] or ["arm"]
    names = combined(trials, keys).groupby(trials["group"]).first()
    for point in points.itertuples():
        text = value_label(keys, names[point.group]) + ("" if key else f" (n = {point.n})")
        axes.annotate(text, (point.x, point.y), (7, 5), textcoords="offset points", fontsize=7.5,
                      color=series.colours[point.series])  # fmt: skip


def _explained(
    scores: RunScores, trials: pd.DataFrame, points: pd.DataFrame, front: int, label: str | None = None
) -> str:
    total, cut = len(scores.results.trials), int(trials["cut"].sum())
    keys = listed(scores.design.keys) if scores.design.keys else "nothing"
    count = f"{len(trials)} of {total}" if len(trials) < total else f"{total}"
    means = (
        "Diamonds are means of trials that differ only by seed; crosses are 95 % intervals of the means (Student's t, "
        f"for at least {FEWEST_SPREAD} trials)."
    )
    parts = [
        f"Each dot is a trial (n = {count}); groups differ in {keys}.",
        means if (points["n"] > 1).any() else "",
        f"Numbers beside the means: {words(label)}; lines join the means of one colour in this order." if label else "",
        f"Circled and connected: the Pareto front, {front} of {len(points)} groups that no other beats in both metrics."
        if front else "",
        f"Hollow dots: {cut} trials that were stopped early or are still training." if cut else "",
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


KIND = Kind(
    name="scatter",
    question="Does one metric improve at the cost of the other?",
    choose=choose,
    draw=draw,
)
