"""Trials in groups: which values of each key are shown, the axes, and sentences that captions share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter, NullLocator

from disentune.errors import did_you_mean
from disentune.report.canvas import GREY, LOG_SPAN, PALETTE, WIDTH, colours, log_ticks, log_where_wide, tidy, words
from disentune.report.design import Layout, filled
from disentune.report.kind import Caption
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import config_keys

MOST_SERIES = len(PALETTE)
"""Number of colours, so that no colour has two meanings."""
MOST_PLACES = 12
MOST_GROUPS = 48
"""Maximum number of groups in a figure, so that the count below each is legible."""
FEWEST = 8
"""Minimum number of trials for a density or quartiles; fewer are shown as dots with their mean."""
FEWEST_SPREAD = 3
"""Minimum number of trials for a standard deviation."""
MOST_TICKS = 10
"""Up to this many different numbers are used as ticks, as in log_where_wide."""
LONGEST = 28
LETTER = 0.085
"""Inches per letter of a label, slightly more than the average."""
MARGIN = 1.0
"""Inches next to the axes."""
TICK = 0.7
"""Inches for the label of a tick."""
IN_A_ROW = 3
"""Panels."""
PANEL_WIDTH, PANEL_HEIGHT = 3.2, 2.7

Numbers = np.ndarray
"""A one-dimensional array of floats."""


# ---- trials


def table(scores: RunScores, metric: str | None, keys: Iterable[str | None]) -> pd.DataFrame:
    """Trials with a number: `trial_id`, these keys, `cut`, `value`. Raises NothingToDraw for a key that no trial
    has."""
    scores.scored(metric)  # raises first if there are no numbers at all
    asked, known = [key for key in keys if key is not None], ["arm", "seed", *config_keys(scores.trials)]
    for key in asked:
        if key not in known:
            raise NothingToDraw(f"no trial has the key {key}.{did_you_mean(key, known)}")
    return scores.scored(metric, [*asked, "cut"])


def candidates(scores: RunScores, metric: str | None) -> pd.DataFrame:
    """Trials with a number, and all keys by which a figure may group them."""
    return scores.scored(metric, ["arm", *scores.varying, "cut"])


def whole(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials used for means: those that trained to the end, or all if none did."""
    ended = trials[~trials["cut"].astype(bool)]
    return trials if ended.empty else ended


def numbers_of(column: pd.Series) -> pd.Series:
    """Floats; NaN for values that are missing, infinite or not numbers. Booleans are not numbers."""
    is_truth = column.map(lambda value: isinstance(value, bool | np.bool_)).astype(bool)
    found = pd.to_numeric(column.astype(object).mask(is_truth | column.isna(), np.nan), errors="coerce").astype(float)
    return found.where(np.isfinite(found))


# ---- what is shown of keys


@dataclass(frozen=True)
class Shown:
    """The values of some keys that a figure shows, in order: plain values of one key, tuples of several. `total` is how
    many values exist."""

    keys: tuple[str, ...]
    values: list[Any]
    total: int

    @property
    def title(self) -> str:
        return titled(self.keys)

    @cached_property
    def labels(self) -> list[str]:
        """Short, unique labels of one line."""
        short = [value_label(self.keys, value) for value in self.values]
        before = [short[:i].count(text) for i, text in enumerate(short)]
        return [f"{text} ({count + 1})" if count else text for text, count in zip(short, before, strict=True)]

    @cached_property
    def colours(self) -> dict[Any, str]:
        return colours(self.values)

    @property
    def note(self) -> str:
        if not self.keys or len(self.values) == self.total:
            return ""
        return f"The {len(self.values)} of {self.total} values of {self.title} with the most trials are shown."


def titled(keys: Sequence[str]) -> str:
    return " · ".join(words(key) for key in keys)


def value_label(keys: Sequence[str], value: Any) -> str:
    """A single value as it is; for several, names as they are and other values with their key."""
    if len(keys) <= 1:
        return label(value) if keys else ""
    return " · ".join(
        brief_label(one) if key == "arm" or key.endswith(".name") else f"{words(key)} {brief_label(one)}"
        for key, one in zip(keys, value, strict=True)
    )


def brief_label(value: Any) -> str:
    """A number with three digits, for use among other values."""
    return f"{value:.3g}" if isinstance(value, float) else label(value)


def combined(frame: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """One value per trial: a constant for no key, a tuple for several."""
    if not keys:
        return pd.Series("", index=frame.index, dtype=object)
    columns = [filled(frame[key]) for key in keys]
    found = columns[0] if len(keys) == 1 else pd.Series(list(zip(*columns, strict=True)), index=frame.index)
    return found.astype(object)


def shown(scores: RunScores, keys: Sequence[str], column: pd.Series, most: int) -> Shown:
    """The values with the most trials, of a column made by `combined`."""
    if not keys:
        return Shown((), [""], 1)
    counts = column.value_counts().to_dict()
    order = _ordered(scores, keys, list(counts))
    kept = set(sorted(order, key=lambda value: -counts[value])[:most])
    return Shown(tuple(keys), [value for value in order if value in kept], len(order))


def _ordered(scores: RunScores, keys: Sequence[str], values: list[Any]) -> list[Any]:
    if len(keys) == 1:
        return scores.order(keys[0], values)
    ranks = [{one: rank for rank, one in enumerate(scores.order(key, [value[i] for value in values]))}
             for i, key in enumerate(keys)]  # fmt: skip
    return sorted(values, key=lambda value: [rank[one] for rank, one in zip(ranks, value, strict=True)])


def label(value: Any) -> str:
    """A value as an axis label; the middle of a long name is left out, because names differ least often there."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if not isinstance(value, str):
        return f"{value:g}"
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split()) or '""'
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[: half - 1]}…{text[-half:]}"


# ---- panels


def panelled(figure: Figure, scores: RunScores, trials: pd.DataFrame, keys: Sequence[str]) -> Iterator[Any]:
    """Axes and their trials: one panel per value of the keys, with its name and n above it."""
    column = combined(trials, keys)
    found = shown(scores, keys, column, len(column))
    grid = axes_grid(figure, len(found.values))
    for axes, value, text in zip(grid, found.values, found.labels, strict=True):
        own = trials[column == value] if keys else trials
        if keys:
            title_panel(axes, keys, value, text, len(own))
        yield axes, own


def title_panel(axes: Axes, keys: Sequence[str], value: Any, text: str, count: int) -> None:
    """The label of the panel's value, with the key of a number, and how many trials it has."""
    name = f"{words(keys[0])} {text}" if len(keys) == 1 and not isinstance(value, str) else text
    axes.set_title(f"{name} (n = {count})", fontsize=9, loc="left")


def axes_grid(figure: Figure, count: int) -> list[Axes]:
    """Axes in rows of three with a common score axis; the figure grows with them."""
    if count == 1:
        return [figure.subplots()]
    columns, rows = min(IN_A_ROW, count), ceil(count / IN_A_ROW)
    figure.set_size_inches(max(WIDTH, PANEL_WIDTH * columns), 0.8 + PANEL_HEIGHT * rows)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    return list(grid[:count])


def panel_inches(figure: Figure, axes: Axes) -> float:
    """The approximate width of the axes."""
    spec = axes.get_subplotspec()
    columns = spec.get_gridspec().ncols if spec is not None else 1
    width: float = (figure.get_size_inches()[0] - MARGIN) / columns
    return width


def outer_labels_only(axes: Axes) -> None:
    spec = axes.get_subplotspec()
    if spec is not None and not spec.is_first_col():
        axes.set_ylabel("")


# ---- groups on an axis of names


@dataclass(frozen=True)
class Groups:
    """Trials by place on the axis and by series, drawn side by side at a place: `place`, `series`, `value`."""

    trials: pd.DataFrame
    places: Shown
    series: Shown
    has_means: bool = True
    """Whether the trials of a group are replicates or a full crossing; any other mean would mix settings."""

    @property
    def width(self) -> float:
        """The width of one group, where places are 1 apart."""
        return 0.8 / len(self.series.values)

    def centre(self, place: int, series: int) -> float:
        return place + (series - (len(self.series.values) - 1) / 2) * self.width

    @property
    def sizes(self) -> list[int]:
        return [size for _, _, own in self if (size := len(own))]

    def inside(self, trials: pd.DataFrame) -> "Groups":
        """The same places and series over some of the trials."""
        return replace(self, trials=trials)

    def __iter__(self) -> Iterator[tuple[int, int, pd.DataFrame]]:
        """Place, series, and their trials sorted by id, possibly none."""
        found = dict(iter(self.trials.groupby(["place", "series"], sort=False)))  # numbers and labels may be mixed
        for i, place in enumerate(self.places.values):
            for j, series in enumerate(self.series.values):
                yield i, j, found.get((place, series), self.trials[:0])


def grouped(scores: RunScores, metric: str | None, layout: Layout) -> Groups:
    assert layout.x is not None
    trials = table(scores, metric, [layout.x, *layout.series, *layout.panels])
    trials = trials.assign(place=combined(trials, [layout.x]), series=combined(trials, layout.series))
    series = shown(scores, layout.series, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    most = min(MOST_PLACES, MOST_GROUPS // len(series.values))
    places = shown(scores, [layout.x], trials["place"], most)
    return Groups(trials[trials["place"].isin(places.values)], places, series, not layout.mixed)


def draw_groups(
    figure: Figure,
    scores: RunScores,
    metric: str | None,
    layout: Layout,
    groups: Groups,
    draw_group: Callable[..., Any],
) -> None:
    """Draws each group at its name; `draw_group` draws one and returns its position."""
    widen(figure, groups)
    for axes, trials in panelled(figure, scores, groups.trials, layout.panels):
        own = groups.inside(trials)
        name_axis(axes, own, [draw_group(axes, own, *group) for group in own], panel_inches(figure, axes))
        axes.set_xlabel(groups.places.title)
        score_axis(axes, scores, metric)
        outer_labels_only(axes)
    legend(figure, groups.series)


def name_axis(axes: Axes, groups: Groups, positions: Sequence[tuple[float, int]], inches: float) -> None:
    """Labels of the places, tilted if they would overlap, and above them the number of trials at each position."""
    figure, labels = axes.figure.get_figure(root=True), groups.places.labels
    tilted = _longest(labels) > inches / len(labels)
    tilt = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axes.set_xticks(range(len(labels)), labels, **tilt)  # type: ignore[arg-type]
    heighten(figure, 0.5 * _longest(labels) if tilted else 0)  # 0.5 is the sine of the tilt
    axes.tick_params(axis="x", length=0, pad=15)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    below: dict[str, Any] = {"va": "top", "fontsize": 7.5, "color": GREY}
    for centre, count in positions:
        axes.text(centre, -0.015, str(count), ha="center", transform=axes.get_xaxis_transform(), **below)
    axes.text(-0.01, -0.015, "n", ha="right", transform=axes.transAxes, **below)


def draw_dots(axes: Axes, at: Numbers, trials: pd.DataFrame, colour: str, size: float = 5.0) -> None:
    """One dot per trial; hollow if the trial trained less than others."""
    cut = trials["cut"].to_numpy(dtype=bool)
    opacity = 0.85 if len(trials) <= 50 else 0.5
    plain: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": size, "zorder": 3}
    for some, face in ((~cut, colour), (cut, "none")):
        if some.any():
            axes.plot(at[some], trials["value"].to_numpy()[some], color=colour, markerfacecolor=face,
                      markeredgewidth=0 if face == colour else 1, alpha=opacity, **plain)  # fmt: skip


def _longest(labels: Sequence[str]) -> float:
    """Inches."""
    return LETTER * max(len(text) for text in labels)


def heighten(figure: Figure, inches: float) -> None:
    """Makes the figure higher, so that text around the axes does not shrink them."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)


def widen(figure: Figure, groups: Groups) -> None:
    """Makes the figure wider for many groups, so that the counts below them do not overlap."""
    inches = MARGIN + 0.28 * len(groups.places.values) * len(groups.series.values)
    figure.set_size_inches(max(WIDTH, inches), figure.get_size_inches()[1])


def spread(count: int) -> Numbers:
    """Offsets in (-0.5, 0.5) for dots that would hide each other: evenly spread, without a pattern, deterministic."""
    golden = (5**0.5 - 1) / 2
    return (golden * np.arange(1, count + 1)) % 1 - 0.5 if count > 1 else np.zeros(count)


# ---- axes of numbers, legends


def number_axis(axes: Axes, places: Iterable[float], inches: float) -> None:
    """Sets a logarithmic axis for geometric grids and for numbers over several orders of magnitude, even if 0 is among
    them; call it before drawing."""
    distinct = sorted(set(places))
    log_where_wide(axes, distinct)
    positive = [place for place in distinct if place > 0]
    if distinct[0] == 0 and positive and positive[-1] / positive[0] > LOG_SPAN:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=1)
    if len(distinct) <= MOST_TICKS:
        axes.set_xticks(distinct, _thinned(axes, distinct, inches))
        axes.set_xticks([], minor=True)
    elif axes.get_xscale() == "log":
        ticks = log_ticks(distinct[0], distinct[-1], max(2, int(inches / TICK)))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    else:  # matplotlib writes powers as formulas, which are disabled because names may contain a dollar sign
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())


def _thinned(axes: Axes, distinct: Sequence[float], inches: float) -> list[str]:
    """Labels, empty if they would overlap the previous one."""
    at = along(axes, np.array(distinct, dtype=float))
    at = (at - at[0]) / max(at[-1] - at[0], 1e-300) * inches
    labels, end = [], -1.0
    for place, text in zip(at, (f"{number:g}" for number in distinct), strict=True):
        half = LETTER * (len(text) + 1) / 2
        labels.append(text if place - half >= end else "")
        end = place + half if labels[-1] else end
    return labels


def along(axes: Axes, numbers: Numbers) -> Numbers:
    """Positions of numbers on the x axis: their logarithms if it is logarithmic."""
    return np.asarray(axes.xaxis.get_transform().transform(numbers), dtype=float)


def back(axes: Axes, lengths: Numbers) -> Numbers:
    """The inverse of `along`."""
    return np.asarray(axes.xaxis.get_transform().inverted().transform(lengths), dtype=float)


def score_axis(axes: Axes, scores: RunScores, metric: str | None) -> None:
    axes.set_ylabel(f"{words(metric or scores.objective.metric)} ({scores.better(metric)})")
    tidy(axes)


def legend(figure: Figure, series: Shown, column: pd.Series | None = None) -> None:
    """A legend above the axes, where it hides no trial; with the number of trials if it is not shown elsewhere."""
    if not series.keys:
        return
    texts = [f" {text}" if text.startswith("_") else text for text in series.labels]  # matplotlib hides such names
    if column is not None:
        counts = column.value_counts()
        texts = [f"{text} (n = {counts.get(value, 0)})" for text, value in zip(texts, series.values, strict=True)]
    handles = [Patch(color=series.colours[value], alpha=0.8, label=text)
               for value, text in zip(series.values, texts, strict=True)]  # fmt: skip
    columns = max(1, min(int(figure.get_size_inches()[0] / (_longest(texts) + 0.6)), len(texts)))
    heighten(figure, 0.18 * (ceil(len(texts) / columns) - 1))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                  fontsize=9, title=series.title, alignment="left", handlelength=1.2)  # fmt: skip


# ---- captions


def captioned(title: str, *sentences: str) -> Caption:
    return Caption(title, " ".join(filter(None, sentences)))


def said(scores: RunScores, metric: str | None) -> str:
    return words(metric or scores.objective.metric)


def counted(scores: RunScores, trials: pd.DataFrame) -> str:
    """How many trials are drawn, and at which step their score was measured."""
    total, drawn = len(scores.results.trials), len(trials)
    when = "at its last step" if scores.objective.at == "last" else "at its best step"
    if drawn == total:
        return f"Each dot is a trial {when} (n = {drawn})."
    return (
        f"Each dot is a trial {when} (n = {drawn} of {total}; the others failed, have no score yet, or are not shown)."
    )


def mixture(layout: Layout, trials: pd.DataFrame) -> str:
    """The keys in which the trials of a group differ, so that readers know what the spread means."""
    if layout.mixed:
        return f"Trials of one colour also differ in {listed(layout.mixed)}, so no mean of them is drawn."
    if layout.averaged:
        return (
            f"Each group averages over {listed([*layout.averaged, 'seed'])}: a full crossing, in which every group has "
            "each combination equally often."
        )
    return "Trials of one group differ only by seed." if has_replicates(trials, layout) else ""


def has_replicates(trials: pd.DataFrame, layout: Layout) -> bool:
    keys = [key for key in layout.shown if key in trials]
    return bool(trials.groupby(keys, dropna=False, sort=False).size().max() > 1) if keys else len(trials) > 1


EXCLUDED = "exclude them if others of the same group trained to the end"


def budgets(trials: pd.DataFrame, has_means: bool = True) -> str:
    """A sentence about trials that were stopped early or are still training."""
    cut = int(trials["cut"].sum())
    if not cut:
        return ""
    if cut == len(trials):
        return f"Hollow dots: none of the {cut} trials has trained to the end, so their budgets may differ."
    are = "1 trial that was stopped early or is" if cut == 1 else f"{cut} trials that were stopped early or are"
    return f"Hollow dots: {are} still training{f'; means {EXCLUDED}' if has_means else ''}."


def listed(keys: Sequence[str], most: int = 6) -> str:
    named = [words(key) for key in keys]
    *first, last = named if len(named) <= most else [*named[: most - 1], f"{len(named) - most + 1} more keys"]
    return f"{', '.join(first)}{' and ' if first else ''}{last}"


def first_of(keys: Iterable[str], suits: Callable[[str], bool]) -> str | None:
    return next(filter(suits, keys), None)
