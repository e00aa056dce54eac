"""Mean of a score for each pair of values of two swept keys."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.report.canvas import MISSING, SHADES, WIDTH, tilted, words
from disentune.report.groups import swept_keys
from disentune.report.kind import Caption, Kind
from disentune.report.places import Places, matrix, places, refuse_absent, write
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import HeatMap

WIDE_CELL, NARROW_CELL = 0.6, 0.36
"""Inches of a cell that hold its mean with spread and count, and its mean alone."""


def choose(scores: RunScores) -> list[HeatMap]:
    """One, when two keys are crossed."""
    try:
        pair = _crossed(scores, scores.scored(None, scores.varying), ())
    except NothingToDraw:
        return []
    return [HeatMap(x=pair[0], y=pair[1])] if pair else []


def draw(figure: Figure, scores: RunScores, spec: HeatMap) -> Caption:
    x, y, frame = _asked(scores, spec)
    across, up = places(scores, x, frame[x]), places(scores, y, frame[y])
    table = _table(frame["value"], across, up)
    if not table.count.any():
        raise NothingToDraw(f"no trial has both a frequent {words(x)} and a frequent {words(y)}")
    metric = spec.metric or scores.objective.metric
    _draw_table(figure, table, f"mean {words(metric)} ({scores.better(metric)})")
    axes = figure.axes[0]
    _label_axes(axes, across, up)
    axes.set(xlabel=words(x), ylabel=words(y))
    if not scores.is_number(y):
        axes.invert_yaxis()
    return Caption(f"{words(metric)} by {words(x)} and {words(y)}", _explained(table, across, up))


# ---- which keys


def _asked(scores: RunScores, spec: HeatMap) -> tuple[str, str, pd.DataFrame]:
    """The two keys and the trials with both; a key that is not named is chosen."""
    named = [key for key in (spec.x, spec.y) if key]
    refuse_absent(scores, named)
    frame = scores.scored(spec.metric, [*scores.varying, *named])
    x, y = _completed(scores, frame, spec)
    if x == y:
        raise NothingToDraw(f"a heat map needs two different keys, but x and y are both {x}")
    return x, y, frame


def _completed(scores: RunScores, frame: pd.DataFrame, spec: HeatMap) -> tuple[str, str]:
    if spec.x and spec.y:
        return spec.x, spec.y
    named = spec.x or spec.y
    candidates = [key for key in _ranked(scores, frame) if key != named]
    if len(candidates) < (1 if named else 2):
        raise NothingToDraw("a heat map needs two keys that vary between the trials with a score")
    pair = _crossed(scores, frame, (named,) if named else ()) or tuple([*filter(None, [named]), *candidates][:2])
    first, second = pair
    return (second, first) if spec.y else (first, second)


def _ranked(scores: RunScores, frame: pd.DataFrame) -> list[str]:
    """Numbers before names, those with most values first."""
    return sorted(swept_keys(scores, frame), key=lambda key: (not scores.is_number(key), -frame[key].nunique()))


def _crossed(scores: RunScores, frame: pd.DataFrame, named: tuple[str, ...]) -> tuple[str, str] | None:
    """The first pair of which neither key tells the other: of those that vary together a map shows a diagonal only."""
    ranked = _ranked(scores, frame)
    pairs: Any = ((key, other) for key in named for other in ranked if other != key) if named else _pairs(ranked)
    for first, second in pairs:
        codes = [places(scores, key, frame[key]).codes for key in (first, second)]
        filled = len(set(zip(*codes, strict=True)) - {(-1, -1)})
        if filled > max(len(set(some)) for some in codes):
            return first, second
    return None


def _pairs(ranked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The best ranked first, by the worse of the two."""
    return iter(sorted(combinations(ranked, 2), key=lambda pair: ranked.index(pair[1])))


# ---- drawing


@dataclass(frozen=True)
class _Table:
    """Of each cell (rows upwards): mean, sd of a sample, count."""

    mean: np.ndarray
    sd: np.ndarray
    count: np.ndarray


def _table(value: pd.Series, across: Places, up: Places) -> _Table:
    frame = pd.DataFrame({"x": across.codes, "y": up.codes, "value": value.to_numpy()})
    cells = frame[(frame["x"] >= 0) & (frame["y"] >= 0)].groupby(["y", "x"])["value"].agg(["mean", "std", "count"])
    every = pd.MultiIndex.from_product([range(len(up.labels)), range(len(across.labels))])
    shape = len(up.labels), len(across.labels)
    mean, sd, count = (cells[name].reindex(every).to_numpy().reshape(shape) for name in ("mean", "std", "count"))
    return _Table(mean, sd, np.nan_to_num(count).astype(int))


def _draw_table(figure: Figure, table: _Table, label: str) -> None:
    rows = len(table.mean)
    figure.set_size_inches(WIDTH, float(np.clip(1.3 + rows * (0.56 if _is_wide(table) else 0.36), 3.2, 9.0)))
    axes = figure.subplots()
    mesh = matrix(axes, table.mean, SHADES)
    if _cell_inches(table) >= NARROW_CELL:
        write(axes, mesh, table.mean, _texts(table), 8 if _is_wide(table) else 7)
    figure.colorbar(mesh, ax=axes, label=label).outline.set_visible(False)


def _cell_inches(table: _Table) -> float:
    """About, with room for labels and the colour bar."""
    found: float = (WIDTH - 2.4) / table.mean.shape[1]
    return found


def _is_wide(table: _Table) -> bool:
    return _cell_inches(table) >= WIDE_CELL


def _texts(table: _Table) -> np.ndarray:
    """The mean; below it sd and count where the cell is wide and has several trials."""
    number = _format(table.mean)
    texts = np.full(table.mean.shape, "", dtype=object)
    for at in np.argwhere(table.count > 0):
        mean, sd, count = (part[tuple(at)] for part in (table.mean, table.sd, table.count))
        spread = f"\n±{sd:.2g}, n {count}" if _is_wide(table) and count > 1 else ""
        texts[tuple(at)] = f"{mean:{number}}{spread}"
    return texts


def _format(values: np.ndarray) -> str:
    """As many decimals in every cell, so that cells can be compared at a glance: three digits of the largest."""
    largest = float(np.nanmax(np.abs(values)))
    return f".{2 - math.floor(math.log10(largest))}f" if 1e-3 < largest < 100 else ".3g"


def _label_axes(axes: Axes, across: Places, up: Places) -> None:
    tilted(axes, across.labels)
    axes.set_yticks(range(len(up.labels)), up.labels)


def _explained(table: _Table, across: Places, up: Places) -> str:
    spread = "; ± their standard deviation, n their number" if _is_wide(table) and (table.count > 1).any() else ""
    parts = [
        f"Colour: the mean over the trials of a cell{spread}. {int(table.count.sum())} trials in all.",
        "Hatched: no trial." if (table.count == 0).any() else "",
        f"{MISSING}: the trial has no such key." if MISSING in (*across.labels, *up.labels) else "",
        across.note,
        up.note,
    ]
    return " ".join(part for part in parts if part)


KIND = Kind(name="heat_map", choose=choose, draw=draw)
