"""Scores against a swept number with a smooth trend: Michlo et al., IJCAI 2023, Fig. 9."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.interpolate import PchipInterpolator

from disentune.report.canvas import words
from disentune.report.design import Design, Layout, lay_out, varies
from disentune.report.groups import (
    FEWEST_SPREAD,
    MOST_SERIES,
    Numbers,
    Shown,
    along,
    back,
    budgets,
    candidates,
    captioned,
    combined,
    counted,
    draw_dots,
    first_of,
    legend,
    mixture,
    number_axis,
    numbers_of,
    outer_labels_only,
    panel_inches,
    panelled,
    said,
    score_axis,
    shown,
    spread,
    table,
    titled,
    whole,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.strength import strength_keys
from disentune.report.summary import position_key
from disentune.spec.figures import Trend

CLASSIC = "dataset.spacing"
FEWEST_PLACES = 4
"""Minimum number of places for a smooth line; with fewer, a line connects the means."""
FEWEST_VALUES = 3
"""Minimum number of values for which the figure is chosen."""
MOST_CHOSEN = 3
POINTS = 120
"""Points of a drawn line."""
FINEST = 400
"""Maximum number of places at which a line is computed."""


def choose(scores: RunScores) -> list[Trend]:
    """One for the swept number with the most values that is neither a framework's strength nor the axis of the summary;
    for randomly drawn numbers, one for each of the first few."""
    try:
        design = scores.scored_design(None)
    except NothingToDraw:
        return []
    taken = {position_key(scores, design), *strength_keys(scores, None).values()}
    found = [key for key in _numbers(scores, design) if key not in taken and design.count([key]) >= FEWEST_VALUES]
    drawn = [key for key in found if key in design.sampled]
    clear = [key for key in found if key not in drawn and not lay_out(design, key).mixed]
    return [Trend(x=key) for key in (drawn[:MOST_CHOSEN] or clear[:1])]


def draw(figure: Figure, scores: RunScores, spec: Trend) -> Caption:
    x = spec.x or _default(scores, spec)
    trials = table(scores, spec.metric, [x, spec.by, "arm", *scores.varying])
    trials = trials.assign(x=numbers_of(trials[x])).dropna(subset="x")
    if trials.empty:
        raise NothingToDraw(f"no trial with a score has a number for {x}")
    if spec.x and trials["x"].nunique() == 1:
        raise NothingToDraw(f"{x} is {trials['x'].iloc[0]:g} in every trial")
    layout = lay_out(scores.design.of(trials["trial_id"]), x, spec.by)
    trials = trials.assign(series=combined(trials, layout.series))
    series = shown(scores, layout.series, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    drawn: list[str] = []
    for axes, own in panelled(figure, scores, trials, layout.panels):
        number_axis(axes, trials["x"], panel_inches(figure, axes))
        drawn += _draw_all(axes, own, series, layout)
        axes.set_xlabel(words(x) if layout.series or layout.panels else f"{words(x)} (n = {len(trials)})")
        score_axis(axes, scores, spec.metric)
        outer_labels_only(axes)
    legend(figure, series, trials["series"])
    return _caption(scores, spec, trials, layout, series, drawn, axes.get_xscale() != "linear")


# ---- keys


def _numbers(scores: RunScores, design: Design) -> list[str]:
    """Swept numbers, those with the most values first."""
    found = [key for key in design.keys if key != "arm" and scores.is_number(key) and varies(design.trials, key)]
    return sorted(found, key=lambda key: (-design.count([key]), key != CLASSIC))


def _default(scores: RunScores, spec: Trend) -> str:
    design, frame = scores.scored_design(spec.metric), candidates(scores, spec.metric)
    strengths = set(strength_keys(scores, None).values())
    numbers = sorted(_numbers(scores, design), key=lambda key: key in strengths)
    found = first_of([*numbers, *scores.numbers], lambda key: key != spec.by and varies(frame, key))
    if found is None:
        raise NothingToDraw("no number differs between the trials, so there is no trend to show")
    return found


# ---- smoothing


@dataclass(frozen=True)
class Line:
    """The trend and the spread around it at each place; all arrays have the same shape."""

    at: Numbers
    height: Numbers
    sd: Numbers


def joined(x: Numbers, y: Numbers) -> Line:
    """The mean at each place, and the sample standard deviation; NaN if there are too few trials."""
    groups = pd.Series(y).groupby(x)
    sd = groups.std().where(groups.size() >= FEWEST_SPREAD)
    return Line(np.unique(x), groups.mean().to_numpy(), sd.to_numpy())


def smoothable(x: Numbers, bandwidth: float) -> bool:
    """Whether a smooth line is based on at least three trials everywhere. The effective number of trials is the
    reciprocal of the sum of squared weights."""
    places = np.unique(_rounded(x))
    if len(places) < FEWEST_PLACES:
        return False
    return bool((1 / (_kernel(places, x, bandwidth) ** 2).sum(axis=1)).min() >= FEWEST_SPREAD)


def smoothed(x: Numbers, y: Numbers, bandwidth: float) -> Line:
    """Local linear regression with Gaussian weights at each place that has trials, and monotone interpolation between
    places, because regression would extrapolate a slope far into a gap. The spread is that of the trials around the
    line, with the same kernel; squared residuals are divided by their expectation for trials of variance 1, because
    each trial pulls the line towards itself."""
    places, of = np.unique(_rounded(x), return_inverse=True)
    weights = local_weights(places, x, bandwidth)
    height = weights @ y
    expected = 1 - 2 * weights[of, np.arange(len(x))] + (weights**2).sum(axis=1)[of]
    squares = (y - height[of]) ** 2 / np.maximum(expected, 1e-9)
    sd = np.sqrt(_kernel(places, x, bandwidth) @ squares)
    at = np.linspace(places[0], places[-1], POINTS)
    return Line(at, PchipInterpolator(places, height)(at), PchipInterpolator(places, sd)(at))


def _rounded(x: Numbers) -> Numbers:
    """Rounds very many places to a grid too fine to see, because the time grows with their number."""
    if len(np.unique(x)) <= FINEST:
        return x
    low, step = x.min(), np.ptp(x) / FINEST
    found: Numbers = low + step * np.round((x - low) / step)
    return found


def bandwidth_for(places: Numbers) -> float:
    """A tenth of the range, but wide enough to include neighbours on a coarse grid."""
    distinct = np.unique(places)
    found: float = max(0.1 * (distinct[-1] - distinct[0]), 0.7 * float(np.median(np.diff(distinct))))
    return found


def local_weights(at: Numbers, x: Numbers, bandwidth: float) -> Numbers:
    """Weight of each trial in the line at each place, (places, trials); rows sum to 1."""
    kernel, away = _kernel(at, x, bandwidth), x[None, :] - at[:, None]
    centre = (kernel * away).sum(axis=1, keepdims=True)
    moment = (kernel * (away - centre) ** 2).sum(axis=1, keepdims=True)
    # if all weight is on one place there is no slope; the ridge gives the mean
    found: Numbers = kernel * (1 - centre * (away - centre) / (moment + 1e-6 * bandwidth**2))
    return found


def _kernel(at: Numbers, x: Numbers, bandwidth: float) -> Numbers:
    """Gaussian weights; rows sum to 1."""
    weights = np.exp(-0.5 * ((x[None, :] - at[:, None]) / bandwidth) ** 2)
    found: Numbers = weights / weights.sum(axis=1, keepdims=True)
    return found


# ---- drawing


def _draw_all(axes: Axes, trials: pd.DataFrame, series: Shown, layout: Layout) -> list[str]:
    """Draws every series, and returns how each line was computed."""
    places, made = along(axes, trials["x"].to_numpy()), []
    for value in series.values:
        own = trials[trials["series"] == value]
        if own.empty:
            continue
        colour = series.colours[value]
        draw_dots(axes, back(axes, jittered(along(axes, own["x"].to_numpy()), places)), own, colour)
        ended = whole(own)
        x, y = along(axes, ended["x"].to_numpy()), ended["value"].to_numpy()
        if len(np.unique(x)) > 1 and not layout.mixed:
            bandwidth = bandwidth_for(x)
            made.append("smooth" if smoothable(x, bandwidth) else "joined")
            _draw_line(axes, smoothed(x, y, bandwidth) if made[-1] == "smooth" else joined(x, y), y, colour)
    return made


def jittered(x: Numbers, places: Numbers) -> Numbers:
    """Spreads the trials of a place slightly, by much less than the distance between places."""
    distinct = np.unique(places)
    width = min(0.3 * np.diff(distinct).min(), 0.02 * (distinct[-1] - distinct[0])) if len(distinct) > 1 else 0.05
    moved = x.copy()
    for place in np.unique(x):
        here = x == place
        moved[here] += width * spread(int(here.sum()))
    return moved


def _draw_line(axes: Axes, line: Line, y: Numbers, colour: str) -> None:
    """Clips line and band to the range of the trials, so that they never show values that no trial had."""
    at, has_sd = back(axes, line.at), np.isfinite(line.sd)
    height, low, high = (
        np.clip(line.height + sign * np.nan_to_num(line.sd), y.min(), y.max()) for sign in (0, -1, 1)
    )  # fmt: skip
    if has_sd.all():
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(at, height, color=colour, linewidth=2)


# ---- words


def _caption(
    scores: RunScores, spec: Trend, trials: pd.DataFrame, layout: Layout, series: Shown, drawn: list[str], log: bool
) -> Caption:
    assert layout.x is not None
    by = titled([*layout.series, *layout.panels])
    title = f"{said(scores, spec.metric)} against {words(layout.x)}" + (f", by {by}" if by else "")
    return captioned(title, counted(scores, trials), _lines(trials, drawn, log), mixture(layout, trials),
                     budgets(trials, not layout.mixed), series.note)  # fmt: skip


def _lines(trials: pd.DataFrame, drawn: list[str], log: bool) -> str:
    scale = " on the logarithmic axis" if log else ""
    ended = whole(trials)
    most: Any = ended.groupby(["series", "x"], sort=False).size().max()
    smooth = f"Lines are local linear regressions with Gaussian weights{scale}" if "smooth" in drawn else ""
    means = "connect the means" if most > 1 else "connect single trials"
    parts = [smooth, f"{'others' if smooth else 'Lines'} {means}" if "joined" in drawn else ""]
    lines = "; ".join(filter(None, parts))
    few = f", for series with at least {FEWEST_SPREAD} trials at each place"
    bands = f"Bands are ± one standard deviation of the trials{few}." if most >= FEWEST_SPREAD else ""
    return f"{lines}. {bands}".strip() if lines else ""


KIND = Kind(
    name="trend",
    question="How does the score change with this number?",
    choose=choose,
    draw=draw,
)
