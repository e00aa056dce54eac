"""One picture of a sweep: the outcome, and how it developed."""

import io
import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from disentune.files.storage import Place
from disentune.files.writing import write_atomically
from disentune.report.canvas import FAINT, GREY, PALETTE, style, tidy, words
from disentune.report.design import Design, Layout, lay_out
from disentune.report.groups import (
    FEWEST_SPREAD,
    MOST_PLACES,
    MOST_SERIES,
    MOST_TICKS,
    Groups,
    Shown,
    along,
    back,
    budgets,
    captioned,
    combined,
    counted,
    draw_dots,
    grouped,
    label,
    listed,
    mixture,
    name_axis,
    number_axis,
    shown,
    spread,
    table,
    titled,
    value_label,
    whole,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import Results
from disentune.spec.figures import Summary
from disentune.spec.settings import Objective

LINES = ("-", "--", ":", "-.")
MOST_LABELS = 14
MOST_INSIDE = 7
"""Maximum number of legend entries inside the picture."""
MOST_LINES = 300
"""Maximum number of lines of single trials; more would only clutter the figure."""
MOST_RANKED = 20
WIDTH, HEIGHT = 12.0, 6.0


# ---- layout


def position_key(scores: RunScores, design: Design) -> str | None:
    """The swept number on the x axis of the outcome: the one with the most values, if all other keys can be shown by
    colours; None if the axis has names, or if the groups are ranked."""
    numbers = [key for key in design.keys if key != "arm" and scores.is_number(key) and key not in design.sampled]
    fitting = [key for key in numbers if not lay_out(design, key, most_panels=1).mixed]
    return max(fitting, key=lambda key: design.count([key]), default=None)


def layout_of(scores: RunScores, design: Design) -> Layout | None:
    """Where each key goes; None if the groups are ranked."""
    key = position_key(scores, design)
    names = [key] if key else sorted(design.keys, key=lambda one: (one != "arm", -design.count([one])))
    for x in names or [*scores.asked, "arm"][:1]:
        found = lay_out(design, x, most_panels=1)
        if not found.mixed and (key or design.count([x]) <= MOST_PLACES):
            return found
    return None


@dataclass(frozen=True)
class Outcome:
    """What the left panel shows: the trials with columns `series` and `place`, and how both are drawn."""

    trials: pd.DataFrame
    series: Shown
    layout: Layout | None
    places: list[Any]
    has_course: bool = True
    """Whether any trial was scored at more than one step, so that there is a right panel."""
    ranked: int = 0
    """The total number of groups, of which the best are shown."""

    @property
    def is_single(self) -> bool:
        """Whether every group is one trial, so that there are no means."""
        return bool(self.trials.groupby(["series", "place"], sort=False).size().max() == 1)


# ---- as a kind of figure


def choose(scores: RunScores) -> list[Summary]:
    try:
        scores.scored(None)
    except NothingToDraw:
        return []
    return [Summary()]


def draw(figure: Figure, scores: RunScores, spec: Summary) -> Caption:
    found = _draw_both(figure, scores, spec.metric)
    metric = words(spec.metric or scores.objective.metric)
    course = _course_in_words(found)
    return captioned(f"{metric} of every group{', and how it developed' if course else ''}",
                     "Left: the outcome." if course else "", counted(scores, found.trials), _marks(found),
                     _mixture(scores, found), course, budgets(found.trials))  # fmt: skip


def _course_in_words(found: Outcome) -> str:
    """How to read the right panel; empty if there is none."""
    if not found.has_course:
        return ""
    text = "Right: the mean of each group over the training steps; thin lines are single trials."
    if found.is_single:
        text = "Right: each trial over the training steps."
    if found.layout is None or len(_curves(found)) <= MOST_LABELS:
        return text
    x = words(str(found.layout.x))
    meaning = f"the stronger a colour, the larger {x}" if _is_number_axis(found) else f"the line style tells {x}"
    return f"{text} {meaning[0].upper()}{meaning[1:]}."


def _marks(found: Outcome) -> str:
    if found.ranked:
        best = (
            f"the {len(found.places)} best of {found.ranked} groups" if len(found.places) < found.ranked else "groups"
        )
        return f"Rows are {best}, sorted by their means; groups with less training come last."
    if found.layout and found.layout.x and _is_number_axis(found) and len(found.places) > 1:
        if found.is_single:
            return "Lines connect single trials."
        return f"Lines connect means; bars are ± one standard deviation (for at least {FEWEST_SPREAD} trials)."
    bars = "single trials, with their value above" if found.is_single else "means, with their value above"
    return f"Bars are {bars} and the number of trials below."


def _mixture(scores: RunScores, found: Outcome) -> str:
    layout = found.layout or Layout(None, scores.design.keys)
    extra = scores.design.by_arm
    follow = [key for key in scores.design.within if key not in scores.design.keys]
    return " ".join(filter(None, [
        mixture(layout, found.trials),
        f"Arms also differ in {listed(extra)}." if extra and "arm" in layout.shown else "",
        f"{listed(follow)}: determined by the shown keys, so their effects cannot be separated." if follow else "",
    ]))  # fmt: skip


def summary_figure(results: Results, objective: Objective, path: Place) -> None:
    """Writes a PNG: on the left the outcome of every trial, on the right the objective over the steps."""
    with style():
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=150, layout="constrained")
        question = textwrap.fill(results.run.sweep().question or results.run.name, 90)
        figure.suptitle(question, x=0.01, ha="left", fontsize=14, fontweight="bold")
        try:
            _draw_both(figure, RunScores(results, objective), None)
        except NothingToDraw as reason:
            figure.clear()
            figure.suptitle(question, x=0.01, ha="left", fontsize=14, fontweight="bold")
            figure.text(0.5, 0.5, str(reason), ha="center", color=GREY)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, drawn.getvalue())


def _draw_both(figure: Figure, scores: RunScores, metric: str | None) -> Outcome:
    design = scores.scored_design(metric)
    layout = layout_of(scores, design)
    figure.set_size_inches(WIDTH, HEIGHT)
    rows = scores.results.rows[["trial_id", "step", metric or scores.objective.metric]].dropna()
    if rows.groupby("trial_id")["step"].nunique().max() < 2:
        return replace(_draw_outcome(figure.subplots(), scores, metric, layout), has_course=False)
    outcome, course = figure.subplots(1, 2, sharey=scores.objective.at == "last" and layout is not None)
    found = _draw_outcome(outcome, scores, metric, layout)
    _draw_course(course, rows, found)
    return found


# ---- outcome


def _draw_outcome(axes: Axes, scores: RunScores, metric: str | None, layout: Layout | None) -> Outcome:
    when = "at the last step" if scores.objective.at == "last" else "at its best step"
    scale = f"{words(metric or scores.objective.metric)} ({scores.better(metric)})"
    if layout is None:
        found = _draw_ranking(axes, scores, metric)
        axes.set_xlabel(scale)
        axes.set_title(f"Outcome {when}, best first", loc="left", fontsize=10, color=GREY)
        return found
    is_number = layout.x in scores.design.keys and layout.x != "arm" and scores.is_number(str(layout.x))
    found = (
        _draw_against_number(axes, scores, metric, layout) if is_number else _draw_names(axes, scores, metric, layout)
    )
    axes.set_ylabel(scale)
    meaning = "" if found.is_single else ", lines are means" if is_number else ", bars are means"
    axes.set_title(f"Outcome {when}: one dot per trial{meaning}", loc="left", fontsize=10, color=GREY)
    _draw_legend(axes, found)
    tidy(axes)
    axes.yaxis.set_tick_params(labelleft=True)
    return found


def _is_number_axis(found: Outcome) -> bool:
    return all(isinstance(place, int | float | np.number) and not isinstance(place, bool) for place in found.places)


def _draw_legend(axes: Axes, found: Outcome) -> None:
    """A legend inside the picture if it is small, else below it."""
    if len(found.series.values) > MOST_INSIDE:
        axes.get_figure().legend(frameon=False, loc="outside lower left", ncols=5)  # type: ignore[union-attr]
    elif len(found.series.values) > 1:
        axes.legend(frameon=False, title=found.series.title, alignment="left")


def _draw_names(axes: Axes, scores: RunScores, metric: str | None, layout: Layout) -> Outcome:
    """One place per value, with the series side by side."""
    groups = grouped(scores, metric, layout)
    unnamed = set(groups.series.values) if layout.series else set()
    positions = [_draw_group(axes, groups, *group, unnamed) for group in groups if len(group[2])]
    name_axis(axes, groups, positions, WIDTH / 2 - 1)
    axes.set_xlabel(groups.places.title)
    return Outcome(groups.trials, groups.series, layout, groups.places.values)


def _draw_group(
    axes: Axes, groups: Groups, place: int, number: int, trials: pd.DataFrame, unnamed: set[Any]
) -> tuple[float, int]:
    """Draws a bar with its trials, and returns the position of its count."""
    series, centre, width = groups.series.values[number], groups.centre(place, number), groups.width
    colour, mean = groups.series.colours[series], whole(trials)["value"].mean()
    name = f" {groups.series.labels[number]}" if series in unnamed else None  # matplotlib hides names that begin with _
    unnamed.discard(series)
    axes.bar(centre, mean, 0.85 * width, color=colour, alpha=0.25, linewidth=0, label=name)
    axes.hlines(mean, centre - 0.425 * width, centre + 0.425 * width, color=colour, linewidth=2)
    draw_dots(axes, centre + 0.5 * width * spread(len(trials)), trials, colour, 5)
    highest = max(mean, trials["value"].max())
    axes.annotate(f"{mean:.2g}", (centre, highest), (0, 6), textcoords="offset points", ha="center", color=colour)
    return centre, len(trials)


def _draw_against_number(axes: Axes, scores: RunScores, metric: str | None, layout: Layout) -> Outcome:
    assert layout.x is not None
    trials = table(scores, metric, [layout.x, *layout.series]).dropna(subset=[layout.x])
    trials = trials.assign(place=trials[layout.x].astype(float), series=combined(trials, layout.series))
    series = shown(scores, layout.series, trials["series"], MOST_SERIES)
    number_axis(axes, trials["place"], WIDTH / 2 - 1)
    places = along(axes, np.unique(trials["place"]))
    step = 0.012 * (np.ptp(places) or 1.0)
    for number, (value, text) in enumerate(zip(series.values, series.labels, strict=True)):
        own = trials[trials["series"] == value]
        aside = (number - (len(series.values) - 1) / 2) * step
        at = back(axes, along(axes, own["place"].to_numpy()) + aside)
        draw_dots(axes, at, own, series.colours[value])
        _draw_means(axes, whole(own), aside, series.colours[value], f"{text} (n = {len(own)})")
    axes.set_xlabel(words(layout.x) if layout.series else f"{words(layout.x)} (n = {len(trials)})")
    return Outcome(trials, series, layout, sorted(set(trials["place"])))


def _draw_means(axes: Axes, trials: pd.DataFrame, aside: float, colour: str, text: str) -> None:
    """Draws a line only through replicates or few places: a line from trial to trial would show only noise."""
    points = trials.groupby("place")["value"].agg(["mean", "std", "size"])
    is_noise = points["size"].max() == 1 and len(points) > MOST_TICKS
    sd = points["std"].where(points["size"] >= FEWEST_SPREAD).fillna(0)
    at = back(axes, along(axes, points.index.to_numpy(dtype=float)) + aside)
    line = "none" if is_noise else "-"
    axes.errorbar(at, points["mean"], sd, color=colour, capsize=3, marker="_", linestyle=line, label=text)


def _draw_ranking(axes: Axes, scores: RunScores, metric: str | None) -> Outcome:
    """The best groups from the top."""
    keys = list(scores.scored_design(metric).keys)
    trials = table(scores, metric, keys)
    trials = trials.assign(place=combined(trials, keys), series=combined(trials, ()))
    groups = trials.groupby("place", sort=False).agg(mean=("value", "mean"), cut=("cut", "any"))
    order = groups.sort_values(["cut", "mean"], ascending=[True, scores.better(metric).startswith("lower")])
    best = list(order.index[:MOST_RANKED])
    for row, place in enumerate(best):
        own, colour = trials[trials["place"] == place], _rank_colour(row)
        swapped = own.assign(value=float(row))
        draw_dots(axes, own["value"].to_numpy(), swapped, colour, 5)
        axes.plot([order.loc[[place], "mean"].iloc[0]] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2)
    texts = [f"{value_label(keys, place)}  n {int((trials['place'] == place).sum())}" for place in best]
    axes.set_yticks(range(len(best)), [text if len(text) < 70 else f"{text[:69]}…" for text in texts], fontsize=7)
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_ylabel(titled(keys) if len(keys) == 1 else "")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=FAINT, linewidth=0.7)
    return Outcome(trials, Shown((), [""], 1), None, best, ranked=len(order))


def _rank_colour(row: int) -> str:
    return PALETTE[row] if row < len(PALETTE) - 1 else GREY


# ---- development


@dataclass(frozen=True)
class Curve:
    """Trials that differ only by seed, and how they are drawn."""

    label: str
    trials: set[str]
    colour: Any
    line: str = "-"


def _curves(found: Outcome) -> list[Curve]:
    if found.layout is None:
        ranks = {place: rank for rank, place in enumerate(found.places)}
        return [Curve(f"#{ranks[place] + 1}" if ranks.get(place, 99) < MOST_INSIDE - 1 else "", set(some["trial_id"]),
                      _rank_colour(ranks.get(place, 99)))
                for place, some in found.trials.groupby("place", sort=False)]  # fmt: skip
    return [_curve(found, series, place, some)
            for (series, place), some in found.trials.groupby(["series", "place"], sort=False)]  # fmt: skip


def _curve(found: Outcome, series: Any, place: Any, trials: pd.DataFrame) -> Curve:
    assert found.layout is not None
    rank, colour, ids = found.places.index(place), found.series.colours[series], set(trials["trial_id"])
    if _is_number_axis(found):
        text = f"{words(str(found.layout.x))} {place:g}"
        return Curve(text, ids, _paled(colour, 1 - (rank + 1) / len(found.places)))
    return Curve(label(place), ids, colour, LINES[rank % len(LINES)])


def _paled(colour: str, share: float) -> tuple[float, ...]:
    """A lighter colour that is still visible on white."""
    return tuple(part + (1 - part) * 0.55 * share for part in to_rgb(colour))


def _draw_course(axes: Axes, rows: pd.DataFrame, found: Outcome) -> None:
    each = len(found.trials) <= MOST_LINES
    ends = [end for curve in _curves(found)
            for end in _draw_curve(axes, rows[rows["trial_id"].isin(curve.trials)], curve, each)]  # fmt: skip
    named = [end for end in ends if end[2].label]
    if len(ends) > 1 and len(named) <= MOST_LABELS:
        _label_ends(axes, named)
    axes.set_xlabel("training step")
    meaning = "one line per trial" if found.is_single else "mean of each group, thin lines are trials"
    axes.set_title(f"Development: {meaning}", loc="left", fontsize=10, color=GREY)
    tidy(axes)
    axes.yaxis.set_tick_params(labelleft=True)


def _draw_curve(axes: Axes, rows: pd.DataFrame, curve: Curve, each: bool) -> list[tuple[float, float, Curve]]:
    """The end of the curve; None if it has no rows."""
    if rows.empty:
        return []
    metric: Hashable = rows.columns[-1]
    mean = _shared_mean(rows, metric)
    single, is_cut = rows["trial_id"].nunique() == 1, mean.empty or rows["step"].max() > mean.index[-1]
    for _, trial in rows.groupby("trial_id") if (each or is_cut) and not single else ():
        axes.plot(trial["step"], trial[metric], color=curve.colour, alpha=0.45, linewidth=0.8)
    if mean.empty:
        return []
    marker = "o" if len(mean) == 1 else None
    faint: dict[str, Any] = {} if curve.label else {"alpha": 0.5, "zorder": 1}
    width = 2 if curve.label else 1
    axes.plot(mean.index, mean, curve.line, color=curve.colour, linewidth=width, marker=marker, **faint)
    return [(float(mean.index[-1]), float(mean.iloc[-1]), curve)]


def _shared_mean(rows: pd.DataFrame, metric: Hashable) -> pd.Series:
    """The mean at each step that all trials have; otherwise it would jump where one trial ends."""
    found = rows.groupby("step")[metric].agg(["mean", "size"])
    return found["mean"][found["size"] == rows["trial_id"].nunique()]


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, Curve]]) -> None:
    """Writes each curve's name next to its end; names that would overlap are moved apart."""
    last = max(step for step, _, _ in ends)
    for step, value, curve in ends:
        if step < 0.95 * last:
            axes.annotate(
                curve.label, (step, value), (3, 3), textcoords="offset points", color=curve.colour, fontsize=8
            )
    ends = sorted((end for end in ends if end[0] >= 0.95 * last), key=lambda end: end[1])
    low, high = axes.get_ylim()
    heights = _apart([end[1] for end in ends], 0.042 * (high - low), low, high)
    for (step, value, curve), height in zip(ends, heights, strict=True):
        axes.annotate(
            curve.label, (step, value), (1.03, height), xycoords="data",
            textcoords=axes.get_yaxis_transform(), color=curve.colour, va="center", fontsize=9,
            arrowprops={"arrowstyle": "-", "color": curve.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _apart(heights: list[float], gap: float, low: float, high: float) -> np.ndarray:
    """Sorted heights at least a gap apart, moved as little as possible (least squares), between low and high."""
    steps = gap * np.arange(len(heights))
    nearest = isotonic_regression(np.array(heights) - steps).x
    found: np.ndarray = np.clip(nearest, low, max(low, high - steps[-1])) + steps
    return found


KIND = Kind(
    name="summary",
    question="Which setting is best, by how much compared with the spread over seeds, and when does it get there?",
    choose=choose,
    draw=draw,
)
