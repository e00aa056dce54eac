"""Parallel coordinates: each trial is a line through the values of its keys, coloured by its score."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from disentune.report.canvas import FAINT, INK, LINES, MISSING, WIDTH, log_ticks, wants_log, words
from disentune.report.design import varies
from disentune.report.kind import Caption, Kind
from disentune.report.places import brief, in_words, range_of, refuse_absent
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Parallel

MOST_AXES = 8
"""Maximum number of keys that are drawn by default."""
MOST_NAMES = 12
FEWEST_KEYS = 3
"""Minimum number of keys; two are shown better by a heat map or a trend."""
FEWEST_TRIALS = 8
FEW_NUMBERS = 6
"""Up to this many values of a number are used as ticks."""
NOWHERE = -0.14
"""Height of trials without a value; values are between 0 and 1."""
NUMBER_BAND, NOWHERE_BAND = 0.02, 0.04
"""Half the width of the widest band of trials with equal values."""
OTHERS = "others"
INNER_LETTERS = 14
"""Maximum length of a label between two axes."""
CLOSEST = 0.07
"""Distance between ticks, so that their labels do not touch."""


@dataclass(frozen=True)
class _Axis:
    """The axis of a key: the position of each trial, from 0 to 1 (or NOWHERE), and its ticks."""

    label: str
    heights: np.ndarray
    ticks: dict[float, str]


def choose(scores: RunScores) -> list[Parallel]:
    try:
        design = scores.scored_design(None)
    except NothingToDraw:
        return []
    return (
        [Parallel()]
        if len({*design.keys, *design.within}) >= FEWEST_KEYS and design.groups().nunique() >= FEWEST_TRIALS
        else []
    )


def draw(figure: Figure, scores: RunScores, spec: Parallel) -> Caption:
    metric = spec.metric or scores.objective.metric
    refuse_absent(scores, spec.keys or [])
    frame = scores.scored(metric, ["arm", *scores.varying, *(spec.keys or []), "cut"])
    frame = _best_last(frame, scores.better(metric))
    keys, left_out = _keys(scores, frame, spec)
    axes_of_keys = [_axis(scores, key, title, frame[key]) for key, title in zip(keys, in_words(keys), strict=True)]
    figure.set_size_inches(max(WIDTH, 1.1 * (len(keys) + 1)), 4.6)
    axes = figure.subplots()
    norm = Normalize(*range_of(frame["value"].to_numpy()))
    _draw_lines(axes, axes_of_keys, frame["value"].to_numpy(), norm)
    _draw_axes(axes, axes_of_keys)
    _draw_scores(figure, axes, len(keys), norm, f"{words(metric)} ({scores.better(metric)})")
    return Caption(f"{words(metric)} of every trial and its values", _explained(axes_of_keys, left_out, frame))


def _best_last(frame: pd.DataFrame, better: str) -> pd.DataFrame:
    """Sorts trials so that good ones are drawn on top."""
    return frame.sort_values("value", ascending=better.startswith("higher"), kind="stable", ignore_index=True)


def _keys(scores: RunScores, frame: pd.DataFrame, spec: Parallel) -> tuple[list[str], list[str]]:
    """The given keys, or else the keys that the sweep varies (the most varied if there are too many); and those left
    out."""
    if spec.keys:
        return list(dict.fromkeys(spec.keys)), []
    found = [key for key in ("arm", *scores.design.within) if varies(frame, key)]
    if not found:
        raise NothingToDraw("parallel coordinates need a key that varies between the trials with a score")
    kept = sorted(found, key=lambda key: -frame[key].nunique(dropna=False))[:MOST_AXES]
    return [key for key in found if key in kept], [key for key in found if key not in kept]


# ---- places on an axis


def _axis(scores: RunScores, key: str, title: str, column: pd.Series) -> _Axis:
    present = column.dropna()
    if scores.is_number(key) and len(present):
        heights, ticks, width = *_number_heights(present.astype(float)), NUMBER_BAND
    else:
        heights, ticks = _name_heights(scores, key, present)
        width = 0.35 / max(1, len(ticks))
    full = heights.reindex(column.index).fillna(NOWHERE).to_numpy()
    if len(present) < len(column):
        ticks, width = {NOWHERE: MISSING, **ticks}, min(width, NOWHERE_BAND)
    return _Axis(title, _spread(full, width), ticks)


def _number_heights(numbers: pd.Series) -> tuple[pd.Series, dict[float, str]]:
    """An axis of numbers, logarithmic if they span orders of magnitude."""
    low, high = numbers.min(), numbers.max()
    scale: Any = np.log if wants_log(numbers) else np.asarray
    if low == high:
        return numbers * 0 + 0.5, {0.5: brief(low)}
    share = (scale(numbers) - scale(low)) / (scale(high) - scale(low))
    ticks = {float((scale(tick) - scale(low)) / (scale(high) - scale(low))): brief(float(tick))
             for tick in _number_ticks(numbers, low, high, scale is np.log)}  # fmt: skip
    return pd.Series(share, index=numbers.index), _apart(ticks)


def _number_ticks(numbers: pd.Series, low: float, high: float, log: bool) -> np.ndarray:
    distinct = np.unique(numbers)
    if len(distinct) <= FEW_NUMBERS:
        return distinct
    if log:
        return np.asarray(log_ticks(low, high, FEW_NUMBERS))
    is_whole = bool((distinct == np.round(distinct)).all())
    found = np.asarray(MaxNLocator(5, integer=is_whole).tick_values(low, high))
    return found[(found >= low) & (found <= high)]


def _apart(ticks: dict[float, str]) -> dict[float, str]:
    """Ticks without those that would touch the one below."""
    kept: dict[float, str] = {}
    for height in sorted(ticks):
        if not kept or height - max(kept) >= CLOSEST:
            kept[height] = ticks[height]
    return kept


def _name_heights(scores: RunScores, key: str, names: pd.Series) -> tuple[pd.Series, dict[float, str]]:
    """Names evenly spaced, the first on top; rare names share a place."""
    counts = names.value_counts()
    common = sorted(counts.index, key=lambda name: (-counts[name], str(name)))[:MOST_NAMES]
    ordered = scores.order(key, common)
    labels = [brief(name) for name in ordered] + ([OTHERS] if len(counts) > len(common) else [])
    places = {name: place for place, name in enumerate(ordered)}
    middles = 1 - (np.arange(len(labels)) + 0.5) / max(1, len(labels))
    heights = [middles[places.get(name, -1)] for name in names]
    return pd.Series(heights, index=names.index, dtype=float), dict(zip(middles.tolist(), labels, strict=True))


def _spread(heights: np.ndarray, most: float) -> np.ndarray:
    """Trials with equal values side by side in the order of the rows, which is that of their scores: a band whose width
    shows their number."""
    spread = heights.copy()
    largest = max(Counter(heights.tolist()).values(), default=1)
    for height in np.unique(heights):
        here = np.flatnonzero(heights == height)
        width = most * len(here) / largest
        spread[here] += np.linspace(-width, width, len(here)) if len(here) > 1 else 0.0
    return spread


# ---- drawing


def _draw_lines(axes: Axes, keys: Sequence[_Axis], values: np.ndarray, norm: Normalize) -> None:
    points = np.column_stack([*(key.heights for key in keys), norm(values)])
    strength = float(np.clip(80 / len(values), 0.45, 0.95))
    lines = PathCollection(
        [_curve(heights) for heights in points],
        facecolors="none", edgecolors=LINES(norm(values), alpha=strength), linewidths=1.3,
    )  # fmt: skip
    axes.add_collection(lines)


def _curve(heights: np.ndarray) -> Path:
    """Lines are horizontal at each axis, so that they are easy to follow. Every third vertex is on an axis."""
    places = np.arange(len(heights))
    points = np.column_stack([places, heights])
    bend = np.array([0.4, 0.0])
    away, towards = points[:-1] + bend, points[1:] - bend
    bends = np.stack([away, towards, points[1:]], axis=1).reshape(-1, 2)
    return Path(np.vstack([points[:1], bends]), [Path.MOVETO] + [Path.CURVE4] * len(bends))


def _draw_axes(axes: Axes, keys: Sequence[_Axis]) -> None:
    for place, key in enumerate(keys):
        lowest = NOWHERE if NOWHERE in key.ticks else 0
        axes.plot([place, place], [lowest, 1], color=INK, linewidth=1, zorder=3)
        axes.text(
            place, 1.06, textwrap.fill(key.label, 14, break_long_words=False), ha="center", va="bottom", fontsize=9
        )
        for height, label in key.ticks.items():
            axes.plot([place - 0.03, place], [height, height], color=INK, linewidth=1, zorder=3)
            _write(axes, place, height, label)
    bottom = NOWHERE if any(NOWHERE in key.ticks for key in keys) else 0
    axes.set(xlim=(-0.1, len(keys) + 0.02), ylim=(bottom - 0.05, 1.05))
    axes.axis("off")


def _write(axes: Axes, place: int, height: float, label: str) -> None:
    """Draws a label to the left of its tick, with a background if lines pass behind it."""
    ground = {"facecolor": FAINT, "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.15"}
    axes.text(place - 0.06, height, brief(label, INNER_LETTERS) if place else label, ha="right", va="center",
              fontsize=8, zorder=4, bbox=ground if place else None)  # fmt: skip


def _draw_scores(figure: Figure, axes: Axes, place: int, norm: Normalize, label: str) -> None:
    """Draws the last axis, which is the colour bar: each line ends at its colour."""
    bar = axes.inset_axes((place, 0, 0.12, 1), transform=axes.transData)
    figure.colorbar(ScalarMappable(norm, LINES), cax=bar, label=label).outline.set_visible(False)


def _explained(keys: Sequence[_Axis], left_out: Sequence[str], trials: pd.DataFrame) -> str:
    absent = any(NOWHERE in key.ticks for key in keys)
    crowded = [key.label for key in keys if OTHERS in key.ticks.values()]
    parts = [
        f"Each of the {len(trials)} trials is a line through its values to its score, which also sets its colour; the "
        "best trials are on top. Trials with equal values are spread slightly to show their number.",
        f"{cut} of them were stopped early or are still training." if (cut := int(trials["cut"].sum())) > 0 else "",
        f"{MISSING}: the trial has no such key." if absent else "",
        f"Beyond the {MOST_NAMES} most frequent values: {OTHERS} (of {', '.join(crowded)})." if crowded else "",
        f"Not shown, because they have fewer values: {', '.join(words(key) for key in left_out)}." if left_out else "",
    ]
    return " ".join(part for part in parts if part)


KIND = Kind(
    name="parallel",
    question="Which combinations of values do the best trials have in common?",
    choose=choose,
    draw=draw,
)
