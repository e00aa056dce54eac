"""Scores against a swept number with a smooth trend: Michlo et al., IJCAI 2023, Fig. 9."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.interpolate import PchipInterpolator

from disentune.report.canvas import WIDTH, words
from disentune.report.groups import (
    MARGIN,
    MOST_SERIES,
    Numbers,
    Shown,
    along,
    back,
    candidates,
    captioned,
    counted,
    crossed,
    filled,
    first_of,
    inside,
    legend,
    number_axis,
    numbers_of,
    said,
    score_axis,
    shown,
    spread,
    swept,
    table,
    varies,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.strength import strength_keys
from disentune.spec.figures import Trend

CLASSIC = "dataset.spacing"
FEWEST_PLACES = 4
"""That a smooth line is drawn through; fewer are joined at their means."""
POINTS = 120
"""Of a drawn line."""
FINEST = 400
"""Places at which a line is computed."""


def choose(scores: RunScores) -> list[Trend]:
    """For the number with the most values that is no framework's strength. Two values that only differ between arms
    are told by the arms."""
    try:
        frame = candidates(scores, None)
    except NothingToDraw:
        return []
    found = [key for key in _numbers(scores, frame) if frame[key].nunique() >= 3 or crossed(frame, key, "arm")]
    return [Trend(x=found[0], by=_by(Trend(), frame, found[0]))] if found else []


def draw(figure: Figure, scores: RunScores, spec: Trend) -> Caption:
    frame = candidates(scores, spec.metric)
    x = spec.x or _default(scores, spec, frame)
    trials = table(scores, spec.metric, [x, spec.by, *frame.columns.drop(["trial_id", "value"])])
    by = _by(spec, trials, x)
    trials = trials.assign(x=numbers_of(trials[x]), series="" if by is None else filled(trials[by])).dropna(subset="x")
    if trials.empty:
        raise NothingToDraw(f"no trial with a score has a number as {x}")
    if spec.x and trials["x"].nunique() == 1:
        raise NothingToDraw(f"{x} is {trials['x'].iloc[0]:g} in every trial")
    series = shown(scores, by, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    axes = figure.subplots()
    number_axis(axes, trials["x"], WIDTH - MARGIN)
    smooth = _draw_all(axes, trials, series)
    axes.set_xlabel(words(x) if by else f"{words(x)} (n = {len(trials)})")
    score_axis(axes, scores, spec.metric)
    legend(figure, series, trials["series"])
    return _caption(scores, spec, trials, x, series, smooth, axes.get_xscale() != "linear")


# ---- keys


def _numbers(scores: RunScores, frame: pd.DataFrame) -> list[str]:
    """Swept numbers that are no framework's strength, those with the most values first."""
    strengths = set(strength_keys(scores, None).values())
    found = [key for key in scores.numbers if key not in strengths and swept(frame, key)]
    return sorted(found, key=lambda key: (-frame[key].nunique(), key != CLASSIC))


def _default(scores: RunScores, spec: Trend, frame: pd.DataFrame) -> str:
    found = first_of([*_numbers(scores, frame), *scores.numbers], lambda key: key != spec.by and varies(frame, key))
    if found is None:
        raise NothingToDraw("no number differs between the trials, so there is no trend to show")
    return found


def _by(spec: Trend, frame: pd.DataFrame, x: str) -> str | None:
    if spec.by is not None:
        return spec.by if spec.by != x else None
    if x != "framework.name" and varies(frame, "framework.name"):
        return "framework.name"
    return "arm" if crossed(frame, "arm", x) else None


# ---- smoothing


@dataclass(frozen=True)
class Line:
    """The trend and the spread about it at each place; all have one shape."""

    at: Numbers
    height: Numbers
    sd: Numbers


def joined(x: Numbers, y: Numbers) -> Line:
    """The mean and the deviation (of a sample, 0 for one trial) at each place."""
    groups = pd.Series(y).groupby(x)
    return Line(np.unique(x), groups.mean().to_numpy(), groups.std().fillna(0).to_numpy())


def smoothed(x: Numbers, y: Numbers, bandwidth: float) -> Line:
    """Local linear regression with Gaussian weights at each place that has trials, and between places a curve that
    turns only at them: regression itself would follow a slope far into a gap. The spread is that of the trials about
    the line, under the same kernel; a squared residual is divided by its expectation for trials of variance 1, since
    each trial draws the line to itself."""
    places, of = np.unique(_rounded(x), return_inverse=True)
    weights = local_weights(places, x, bandwidth)
    height = weights @ y
    expected = 1 - 2 * weights[of, np.arange(len(x))] + (weights**2).sum(axis=1)[of]
    squares = (y - height[of]) ** 2 / np.maximum(expected, 1e-9)
    sd = np.sqrt(_kernel(places, x, bandwidth) @ squares)
    at = np.linspace(places[0], places[-1], POINTS)
    return Line(at, PchipInterpolator(places, height)(at), PchipInterpolator(places, sd)(at))


def _rounded(x: Numbers) -> Numbers:
    """Very many places to the nearest of some, which no eye can tell apart, since time grows with their number."""
    if len(np.unique(x)) <= FINEST:
        return x
    low, step = x.min(), np.ptp(x) / FINEST
    found: Numbers = low + step * np.round((x - low) / step)
    return found


def bandwidth_for(places: Numbers) -> float:
    """A tenth of the range, but wide enough that neighbours on a coarse grid see each other."""
    distinct = np.unique(places)
    found: float = max(0.1 * (distinct[-1] - distinct[0]), 0.7 * float(np.median(np.diff(distinct))))
    return found


def local_weights(at: Numbers, x: Numbers, bandwidth: float) -> Numbers:
    """How much each trial counts in the line at each place, (places, trials); rows sum to 1."""
    kernel, away = _kernel(at, x, bandwidth), x[None, :] - at[:, None]
    centre = (kernel * away).sum(axis=1, keepdims=True)
    moment = (kernel * (away - centre) ** 2).sum(axis=1, keepdims=True)
    # where all weight is on one place there is no slope to follow: the ridge leaves the mean
    found: Numbers = kernel * (1 - centre * (away - centre) / (moment + 1e-6 * bandwidth**2))
    return found


def _kernel(at: Numbers, x: Numbers, bandwidth: float) -> Numbers:
    """Gaussian weights, rows of sum 1."""
    weights = np.exp(-0.5 * ((x[None, :] - at[:, None]) / bandwidth) ** 2)
    found: Numbers = weights / weights.sum(axis=1, keepdims=True)
    return found


# ---- drawing


def _draw_all(axes: Axes, trials: pd.DataFrame, series: Shown) -> bool:
    """Draws every series, and gives whether lines are smooth."""
    places = along(axes, trials["x"].to_numpy())
    smooth = len(np.unique(places)) >= FEWEST_PLACES
    bandwidth = bandwidth_for(places) if smooth else 0.0
    for value in series.values:
        own = (trials["series"] == value).to_numpy()
        x, y, colour = places[own], trials["value"].to_numpy()[own], series.colours[value]
        axes.plot(back(axes, jittered(x, places)), y, "o", color=colour, markersize=4, alpha=0.5, markeredgewidth=0)
        if len(np.unique(x)) > 1:
            _draw_line(axes, smoothed(x, y, bandwidth) if smooth else joined(x, y), y, colour)
    return smooth


def jittered(x: Numbers, places: Numbers) -> Numbers:
    """Trials of one place beside each other, by much less than places are apart."""
    distinct = np.unique(places)
    width = min(0.3 * np.diff(distinct).min(), 0.02 * (distinct[-1] - distinct[0])) if len(distinct) > 1 else 0.05
    moved = x.copy()
    for place in np.unique(x):
        here = x == place
        moved[here] += width * spread(int(here.sum()))
    return moved


def _draw_line(axes: Axes, line: Line, y: Numbers, colour: str) -> None:
    """Neither line nor band leaves the range of the trials: a score below 0 was never seen."""
    at = back(axes, line.at)
    height, low, high = (
        np.clip(line.height + sign * line.sd, y.min(), y.max()) for sign in (0, -1, 1)
    )  # fmt: skip
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, height, color=colour, linewidth=2)


# ---- words


def _caption(
    scores: RunScores, spec: Trend, trials: pd.DataFrame, x: str, series: Shown, smooth: bool, log: bool
) -> Caption:
    title = f"{said(scores, spec.metric)} against {words(x)}" + (f", by {words(series.key)}" if series.key else "")
    aside = "Dots of one place stand beside each other." if trials.duplicated(["x", "series"]).any() else ""
    return captioned(title, counted(scores, trials), aside, _lines(trials, smooth, log),
                     inside(scores, trials, ["x", "series"]), series.note)  # fmt: skip


def _lines(trials: pd.DataFrame, smooth: bool, log: bool) -> str:
    if trials.groupby("series", sort=False)["x"].nunique().max() < 2:
        return ""
    scale = " on the logarithmic axis" if log else ""
    smoothing = f"Lines are local linear regressions with Gaussian weights{scale}, joined smoothly"
    line = smoothing if smooth else "Lines join the means"
    return f"{line}; bands are one standard deviation of the trials to each side, cut at the range of the scores."


KIND = Kind(name="trend", choose=choose, draw=draw)
