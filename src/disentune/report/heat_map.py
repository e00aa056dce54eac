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
from disentune.report.design import Design
from disentune.report.groups import combined, listed, shown, title_panel, whole
from disentune.report.kind import Caption, Kind
from disentune.report.places import Places, matrix, places, range_of, refuse_absent, write
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import HeatMap

WIDE_CELL, NARROW_CELL = 0.6, 0.36
"""Inches of a cell that fits mean, spread and count, and of one that fits the mean above the count."""
MOST_PANELS = 6
FEWEST_CELLS = 9
"""Minimum number of cells for which the figure is chosen; fewer groups are easier to compare in the summary."""


def choose(scores: RunScores) -> list[HeatMap]:
    """One heat map, if two keys are crossed and the other keys fit into panels."""
    try:
        design = scores.scored_design(None)
    except NothingToDraw:
        return []
    pair = _crossed(scores, design, ())
    if not pair or set(pair) & set(design.sampled) or design.count(design.hidden(pair)) > MOST_PANELS:
        return []
    if design.count(pair) < FEWEST_CELLS:
        return []
    return [HeatMap(x=pair[0], y=pair[1])]


def draw(figure: Figure, scores: RunScores, spec: HeatMap) -> Caption:
    x, y, frame = _asked(scores, spec)
    panels, averaged = _others(scores, spec, x, y, frame)
    found = whole(frame)
    across, up = places(scores, x, found[x]), places(scores, y, found[y])
    column = combined(found, panels)
    values = shown(scores, panels, column, MOST_PANELS)
    tables = [_table(found["value"], across, up, (column == value).to_numpy() if panels else None)
              for value in values.values]  # fmt: skip
    if not any(table.count.any() for table in tables):
        raise NothingToDraw(f"no trial has both one of the shown values of {words(x)} and one of {words(y)}")
    metric = spec.metric or scores.objective.metric
    axes = _draw_tables(figure, tables, f"mean {words(metric)} ({scores.better(metric)})")
    for one, value, text, table in zip(axes, values.values, values.labels, tables, strict=True):
        _label_axes(one, across, up)
        one.set(xlabel=words(x), ylabel=words(y) if one is axes[0] else "")
        if panels:
            title_panel(one, panels, value, text, int(table.count.sum()))
    if not scores.is_number(y):
        axes[0].invert_yaxis()
    by = f", {listed(panels)} in panels" if panels else ""
    left = len(frame) - len(found)
    return Caption(f"{words(metric)} by {words(x)} and {words(y)}{by}", _explained(tables, across, up, averaged, left))


# ---- which keys


def _others(scores: RunScores, spec: HeatMap, x: str, y: str, frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Keys with panels, and keys that a cell averages over. The latter only if both axes are given and the other keys
    are fully crossed with them, or were drawn at random."""
    design = scores.design.of(frame["trial_id"])
    hidden = design.hidden([x, y])
    is_sampled = bool(set(hidden) & set(design.sampled))
    if design.count(hidden) <= MOST_PANELS and not is_sampled:
        return hidden, []
    if spec.x and spec.y and "arm" not in hidden and (is_sampled or design.is_crossing([x, y], hidden)):
        return [], hidden
    raise NothingToDraw(
        f"a cell would average over {listed(hidden)}, which are not fully crossed with {words(x)} and {words(y)}; "
        "select fewer trials with `only`"
    )


def _asked(scores: RunScores, spec: HeatMap) -> tuple[str, str, pd.DataFrame]:
    """The two keys, and the trials that have both; keys that are not given are chosen."""
    named = [key for key in (spec.x, spec.y) if key]
    refuse_absent(scores, named)
    frame = scores.scored(spec.metric, ["arm", *scores.varying, *named, "cut"])
    x, y = _completed(scores, scores.design.of(frame["trial_id"]), spec)
    if x == y:
        raise NothingToDraw(f"a heat map needs two different keys, but x and y are both {x}")
    return x, y, frame


def _completed(scores: RunScores, design: Design, spec: HeatMap) -> tuple[str, str]:
    if spec.x and spec.y:
        return spec.x, spec.y
    named = spec.x or spec.y
    candidates = [key for key in _ranked(scores, design) if key != named]
    if len(candidates) < (1 if named else 2):
        raise NothingToDraw("a heat map needs two keys that vary between the trials with a score")
    pair = _crossed(scores, design, (named,) if named else ()) or tuple([*filter(None, [named]), *candidates][:2])
    first, second = pair
    return (second, first) if spec.y else (first, second)


def _ranked(scores: RunScores, design: Design) -> list[str]:
    """Numbers before names, keys with the most values first, the arm last."""
    return sorted(design.keys, key=lambda key: (key == "arm", not scores.is_number(key), -design.count([key])))


def _crossed(scores: RunScores, design: Design, named: tuple[str, ...]) -> tuple[str, str] | None:
    """The first pair of keys that do not determine each other; otherwise the map would show only a diagonal."""
    ranked = _ranked(scores, design)
    pairs: Any = ((key, other) for key in named for other in ranked if other != key) if named else _pairs(ranked)
    for first, second in pairs:
        if design.count([first, second]) > max(design.count([first]), design.count([second])):
            return first, second
    return None


def _pairs(ranked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs sorted by the worse rank of their two keys."""
    return iter(sorted(combinations(ranked, 2), key=lambda pair: ranked.index(pair[1])))


# ---- drawing


@dataclass(frozen=True)
class _Table:
    """For each cell (rows upwards): mean, sample standard deviation, count."""

    mean: np.ndarray
    sd: np.ndarray
    count: np.ndarray


def _table(value: pd.Series, across: Places, up: Places, kept: np.ndarray | None) -> _Table:
    frame = pd.DataFrame({"x": across.codes, "y": up.codes, "value": value.to_numpy()})
    frame = frame if kept is None else frame[kept]
    cells = frame[(frame["x"] >= 0) & (frame["y"] >= 0)].groupby(["y", "x"])["value"].agg(["mean", "std", "count"])
    every = pd.MultiIndex.from_product([range(len(up.labels)), range(len(across.labels))])
    shape = len(up.labels), len(across.labels)
    mean, sd, count = (cells[name].reindex(every).to_numpy().reshape(shape) for name in ("mean", "std", "count"))
    return _Table(mean, sd, np.nan_to_num(count).astype(int))


def _draw_tables(figure: Figure, tables: list[_Table], label: str) -> list[Axes]:
    """Draws all panels with one colour scale."""
    columns, lines = min(3, len(tables)), math.ceil(len(tables) / 3)
    rows, inches = len(tables[0].mean), _cell_inches(tables[0], columns)
    height = float(np.clip(1.3 + rows * (0.56 if inches >= WIDE_CELL else 0.42), 3.2, 9.0))
    figure.set_size_inches(_width(columns), height * lines)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(tables) :]:
        axes.remove()
    limits = range_of(np.concatenate([table.mean.ravel() for table in tables]))
    for axes, table in zip(grid, tables, strict=False):
        mesh = matrix(axes, table.mean, SHADES, limits)
        if inches >= NARROW_CELL:
            write(axes, mesh, table.mean, _texts(table, inches), 8 if inches >= WIDE_CELL else 6.5)
    used = list(grid[: len(tables)])
    figure.colorbar(mesh, ax=used, label=label).outline.set_visible(False)
    return used


def _width(columns: int) -> float:
    return WIDTH if columns == 1 else max(WIDTH, 1.4 + 3.4 * columns)


def _cell_inches(table: _Table, columns: int) -> float:
    """The approximate size, with room for labels and the colour bar."""
    found: float = ((_width(columns) - 1.8) / columns - 0.6) / table.mean.shape[1]
    return found


def _texts(table: _Table, inches: float) -> np.ndarray:
    """The mean, and below it the count; also the standard deviation if the cell is wide and has several trials."""
    number = _format(table.mean)
    texts = np.full(table.mean.shape, "", dtype=object)
    for at in np.argwhere(table.count > 0):
        mean, sd, count = (part[tuple(at)] for part in (table.mean, table.sd, table.count))
        spread = f"±{sd:.2g}, " if inches >= WIDE_CELL and count > 1 else ""
        texts[tuple(at)] = f"{mean:{number}}\n{spread}n {count}"
    return texts


def _format(values: np.ndarray) -> str:
    """The same number of decimals in every cell for easy comparison: three digits of the largest number."""
    largest = float(np.nanmax(np.abs(values)))
    return f".{2 - math.floor(math.log10(largest))}f" if 1e-3 < largest < 100 else ".3g"


def _label_axes(axes: Axes, across: Places, up: Places) -> None:
    tilted(axes, across.labels)
    axes.set_yticks(range(len(up.labels)), up.labels)


def _explained(tables: list[_Table], across: Places, up: Places, averaged: list[str], left: int) -> str:
    counts = np.concatenate([table.count.ravel() for table in tables])
    spread = "; ±: their standard deviation" if (counts > 1).any() else ""
    parts = [
        f"Colour: the mean over the n trials of a cell{spread}. {int(counts.sum())} trials in all.",
        f"Cells average over {listed(averaged)}." if averaged else
        "Trials of one cell differ only by seed." if (counts > 1).any() else "",
        f"Excluded: {left} trials that were stopped early or are still training." if left else "",
        "Hatched: no trial." if (counts == 0).any() else "",
        f"{MISSING}: the trial has no such key." if MISSING in (*across.labels, *up.labels) else "",
        across.note,
        up.note,
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


KIND = Kind(
    name="heat_map",
    question="Which combination of two settings is best, and do they interact?",
    choose=choose,
    draw=draw,
)
