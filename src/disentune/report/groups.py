"""Trials in groups: which keys divide them, what stands on the axes, and what a caption owes its reader."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from disentune.errors import did_you_mean
from disentune.report.canvas import GREY, LOG_SPAN, MISSING, PALETTE, WIDTH, colours, log_where_wide, tidy, words
from disentune.report.kind import Caption
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import config_keys

MOST_SERIES = len(PALETTE)
"""So that no colour means two things."""
MOST_PLACES = 12
MOST_GROUPS = 48
"""Violins or boxes in a figure: a count is still legible below each."""
FEWEST = 3
"""Trials that have a shape; fewer are shown as they are."""
MOST_TICKS = 10
"""As in log_where_wide: so many numbers are ticks themselves."""
LONGEST = 28
LETTER = 0.085
"""Inches, a little more than an average letter of a label has."""
MARGIN = 1.0
"""Inches beside the axes."""

Numbers = np.ndarray
"""Of floats, in one dimension."""


# ---- trials and the keys that divide them


def table(scores: RunScores, metric: str | None, keys: Iterable[str | None]) -> pd.DataFrame:
    """Trials with a number: `trial_id`, these keys, `value`. A key that no trial has is told as such."""
    scores.scored(metric)  # that there are no numbers at all is said first
    asked, known = [key for key in keys if key is not None], ["arm", "seed", *config_keys(scores.trials)]
    for key in asked:
        if key not in known:
            raise NothingToDraw(f"no trial has the key {key}.{did_you_mean(key, known)}")
    return scores.scored(metric, asked)


def candidates(scores: RunScores, metric: str | None) -> pd.DataFrame:
    """Trials with a number and all keys that a figure may choose to divide them by."""
    return scores.scored(metric, ["arm", *scores.varying])


def names_by_variety(scores: RunScores, frame: pd.DataFrame) -> list[str]:
    """Keys of names that differ between these trials, the most varied first."""
    found = [key for key in scores.names if swept(frame, key)]
    return sorted(found, key=lambda key: -frame[key].nunique(dropna=False))


def swept(frame: pd.DataFrame, key: str) -> bool:
    """Whether it differs, and not only because each plug-in of its section has its own value."""
    name = f"{key.split('.')[0]}.name"
    return varies(frame, key) and (key == name or not varies(frame, name) or crossed(frame, key, name))


def swept_keys(scores: RunScores, frame: pd.DataFrame) -> list[str]:
    """Those that tell these trials apart."""
    return [key for key in scores.varying if swept(frame, key)]


def varies(frame: pd.DataFrame, key: str) -> bool:
    return key in frame and frame[key].nunique(dropna=False) > 1


def crossed(frame: pd.DataFrame, key: str, other: str) -> bool:
    """Whether `key` differs where `other` does not. If not, it would say the same as `other` in other words."""
    if key not in frame or other not in frame:
        return False
    return bool(frame[key].groupby(filled(frame[other]), sort=False).nunique(dropna=False).max() > 1)


def alike(frame: pd.DataFrame, keys: Iterable[str], others: Iterable[str]) -> bool:
    """Whether both divide the trials into the same groups."""
    first, second = _group_numbers(frame, list(keys)), _group_numbers(frame, list(others))
    pairs = set(zip(first, second, strict=True))
    return len(pairs) == len(set(first)) == len(set(second))


def _group_numbers(frame: pd.DataFrame, keys: list[str]) -> list[int]:
    found: list[int] = frame.groupby(keys, dropna=False, sort=False).ngroup().tolist()
    return found


def filled(column: pd.Series) -> pd.Series:
    """Values as they are, those that are missing by a word."""
    return column.astype(object).where(column.notna(), MISSING)


def numbers_of(column: pd.Series) -> pd.Series:
    """Floats; NaN for what is missing, infinite, or no number. A truth value is no number."""
    is_truth = column.map(lambda value: isinstance(value, bool | np.bool_)).astype(bool)
    found = pd.to_numeric(column.astype(object).mask(is_truth | column.isna(), np.nan), errors="coerce").astype(float)
    return found.where(np.isfinite(found))


# ---- what is shown of a key


@dataclass(frozen=True)
class Shown:
    """The values of a key that a figure shows, in their order; `total` counts those that are there."""

    key: str | None
    values: list[Any]
    total: int

    @cached_property
    def labels(self) -> list[str]:
        """Short, in one line, and no two alike."""
        short = [label(value) for value in self.values]
        before = [short[:i].count(text) for i, text in enumerate(short)]
        return [f"{text} ({count + 1})" if count else text for text, count in zip(short, before, strict=True)]

    @cached_property
    def colours(self) -> dict[Any, str]:
        return colours(self.values)

    @property
    def note(self) -> str:
        if self.key is None or len(self.values) == self.total:
            return ""
        return f"Of {self.total} values of {words(self.key)}, the {len(self.values)} with the most trials are shown."


def shown(scores: RunScores, key: str | None, column: pd.Series, most: int) -> Shown:
    """The most populated values of a column that `filled` has completed; one for all where there is no key."""
    if key is None:
        return Shown(None, [""], 1)
    counts = column.value_counts().to_dict()
    order = scores.order(key, list(counts))
    kept = set(sorted(order, key=lambda value: -counts[value])[:most])
    return Shown(key, [value for value in order if value in kept], len(order))


def label(value: Any) -> str:
    """A value as it is written below an axis: a long name without its middle, where names differ least often."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if not isinstance(value, str):
        return f"{value:g}"
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split()) or '""'
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[: half - 1]}…{text[-half:]}"


# ---- groups on an axis of names


@dataclass(frozen=True)
class Groups:
    """Trials by place on the axis and by series, which stand side by side in a place: `place`, `series`, `value`."""

    trials: pd.DataFrame
    places: Shown
    series: Shown

    @property
    def width(self) -> float:
        """Of one group, where places are 1 apart."""
        return 0.8 / len(self.series.values)

    def centre(self, place: int, series: int) -> float:
        return place + (series - (len(self.series.values) - 1) / 2) * self.width

    @property
    def _grouped(self) -> Any:
        return self.trials.groupby(["place", "series"], sort=False)  # unsorted: numbers may stand beside a word

    @property
    def sizes(self) -> list[int]:
        found: list[int] = self._grouped.size().tolist()
        return found

    def __iter__(self) -> Iterator[tuple[int, int, Numbers]]:
        """Place, series, and the values that are there, in the order of trial ids; maybe none."""
        found = {pair: group.to_numpy() for pair, group in self._grouped["value"]}
        for i, place in enumerate(self.places.values):
            for j, series in enumerate(self.series.values):
                yield i, j, found.get((place, series), np.zeros(0))


def grouped(scores: RunScores, metric: str | None, x: str, by: str | None) -> Groups:
    by = None if by == x else by
    frame = table(scores, metric, [x, by])
    frame = frame.assign(place=filled(frame[x]), series="" if by is None else filled(frame[by]))
    series = shown(scores, by, frame["series"], MOST_SERIES)
    frame = frame[frame["series"].isin(series.values)]
    places = shown(scores, x, frame["place"], min(MOST_PLACES, MOST_GROUPS // len(series.values)))
    return Groups(frame[frame["place"].isin(places.values)], places, series)


def draw_groups(
    figure: Figure, scores: RunScores, metric: str | None, x: str, groups: Groups, draw_group: Callable[..., Any]
) -> None:
    """Each group where its name stands; `draw_group` draws one and says where."""
    widen(figure, groups)
    axes = figure.subplots()
    name_axis(axes, groups, [draw_group(axes, groups, *group) for group in groups])
    axes.set_xlabel(words(x))
    score_axis(axes, scores, metric)
    legend(figure, groups.series)


def name_axis(axes: Axes, groups: Groups, positions: Sequence[tuple[float, int]]) -> None:
    """The places' names, tilted where they would meet, and above them how many trials are at each position."""
    figure, labels = axes.figure.get_figure(root=True), groups.places.labels
    tilted = _longest(labels) > (figure.get_size_inches()[0] - MARGIN) / len(labels)
    tilt = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axes.set_xticks(range(len(labels)), labels, **tilt)  # type: ignore[arg-type]
    heighten(figure, 0.5 * _longest(labels) if tilted else 0)  # 0.5 is the sine of the tilt
    axes.tick_params(axis="x", length=0, pad=15)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    below: dict[str, Any] = {"va": "top", "fontsize": 7.5, "color": GREY}
    for centre, count in positions:
        axes.text(centre, -0.015, str(count), ha="center", transform=axes.get_xaxis_transform(), **below)
    axes.text(-0.01, -0.015, "n", ha="right", transform=axes.transAxes, **below)


def _longest(labels: Sequence[str]) -> float:
    """Inches."""
    return LETTER * max(len(text) for text in labels)


def heighten(figure: Figure, inches: float) -> None:
    """What is written around the axes takes nothing from them."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)


def widen(figure: Figure, groups: Groups) -> None:
    """Many groups get a wider figure, so that counts below them do not meet."""
    inches = MARGIN + 0.28 * len(groups.places.values) * len(groups.series.values)
    figure.set_size_inches(max(WIDTH, inches), figure.get_size_inches()[1])


def spread(count: int) -> Numbers:
    """Places in (-0.5, 0.5) for dots that would hide each other: even, without pattern, the same at each drawing."""
    golden = (5**0.5 - 1) / 2
    return (golden * np.arange(1, count + 1)) % 1 - 0.5 if count > 1 else np.zeros(count)


# ---- axes of numbers, legends


def number_axis(axes: Axes, places: Iterable[float], inches: float) -> None:
    """Logarithmic for numbers over several magnitudes, also where 0 is among them; to be called before drawing."""
    distinct = sorted(set(places))
    log_where_wide(axes, distinct)
    positive = [place for place in distinct if place > 0]
    if distinct[0] == 0 and positive and positive[-1] / positive[0] > LOG_SPAN:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=1)
    if len(distinct) <= MOST_TICKS:
        axes.set_xticks(distinct, _thinned(axes, distinct, inches))
        axes.set_xticks([], minor=True)
    else:  # matplotlib writes powers as formulas, which figures do not read because of names with a dollar
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())


def _thinned(axes: Axes, distinct: Sequence[float], inches: float) -> list[str]:
    """Labels, empty where they would run into the one before."""
    at = along(axes, np.array(distinct, dtype=float))
    at = (at - at[0]) / max(at[-1] - at[0], 1e-300) * inches
    labels, end = [], -1.0
    for place, text in zip(at, (f"{number:g}" for number in distinct), strict=True):
        half = LETTER * (len(text) + 1) / 2
        labels.append(text if place - half >= end else "")
        end = place + half if labels[-1] else end
    return labels


def along(axes: Axes, numbers: Numbers) -> Numbers:
    """Numbers as lengths on the x axis: their logarithms where it is logarithmic."""
    return np.asarray(axes.xaxis.get_transform().transform(numbers), dtype=float)


def back(axes: Axes, lengths: Numbers) -> Numbers:
    """Of `along`."""
    return np.asarray(axes.xaxis.get_transform().inverted().transform(lengths), dtype=float)


def score_axis(axes: Axes, scores: RunScores, metric: str | None) -> None:
    axes.set_ylabel(f"{words(metric or scores.objective.metric)} ({scores.better(metric)})")
    tidy(axes)


def legend(figure: Figure, series: Shown, column: pd.Series | None = None) -> None:
    """Above the axes, where it hides no trial; with the number of trials where it is not shown elsewhere."""
    if series.key is None:
        return
    texts = [f" {text}" if text.startswith("_") else text for text in series.labels]  # matplotlib hides such names
    if column is not None:
        counts = column.value_counts()
        texts = [f"{text} (n = {counts[value]})" for text, value in zip(texts, series.values, strict=True)]
    handles = [Patch(color=series.colours[value], alpha=0.8, label=text)
               for value, text in zip(series.values, texts, strict=True)]  # fmt: skip
    columns = max(1, min(int(figure.get_size_inches()[0] / (_longest(texts) + 0.6)), len(texts)))
    heighten(figure, 0.18 * (ceil(len(texts) / columns) - 1))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                  fontsize=9, title=words(series.key), alignment="left", handlelength=1.2)  # fmt: skip


# ---- captions


def captioned(title: str, *sentences: str) -> Caption:
    return Caption(title, " ".join(filter(None, sentences)))


def said(scores: RunScores, metric: str | None) -> str:
    return words(metric or scores.objective.metric)


def counted(scores: RunScores, trials: pd.DataFrame) -> str:
    """How many trials are drawn, and at which step their score is taken."""
    total, drawn = len(scores.results.trials), len(trials)
    when = "at its last step" if scores.objective.at == "last" else "at its best step"
    if drawn == total:
        return f"Each dot is a trial {when} (n = {drawn})."
    others = "the others failed, have no score yet, or no place here"
    return f"Each dot is a trial {when} (n = {drawn} of {total}; {others})."


def few(sizes: Sequence[int]) -> str:
    return "Fewer than three trials are dots only." if any(0 < size < FEWEST for size in sizes) else ""


def inside(scores: RunScores, trials: pd.DataFrame, groups: Sequence[str]) -> str:
    """What trials of one group differ in, for a reader must know what a spread is the spread of. `groups` are columns
    of `trials`."""
    configs = scores.trials.set_index("trial_id").loc[trials["trial_id"]].reset_index(drop=True)
    keys = [key for key in (*scores.varying, "seed") if swept(configs, key)]
    kinds = trials[list(groups)].reset_index(drop=True).groupby(list(groups), sort=False).ngroup()
    most = configs[keys].apply(_codes).groupby(kinds).nunique().max()
    return _differ([key for key in keys if most[key] > 1])


def _codes(column: pd.Series) -> Any:
    """Integers for values, which are counted faster, and missing is a value too."""
    return pd.factorize(filled(column))[0]


def _differ(keys: list[str]) -> str:
    if not keys:
        return ""
    named = [words(key) for key in keys]
    *first, last = named if len(named) <= 6 else [*named[:5], f"{len(named) - 5} more keys"]
    return f"Trials of one group differ in {', '.join(first)}{' and ' if first else ''}{last}."


def first_of(keys: Iterable[str], suits: Callable[[str], bool]) -> str | None:
    return next(filter(suits, keys), None)
