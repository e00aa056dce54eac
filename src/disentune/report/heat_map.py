"""Mean of a score for each pair of values of two swept keys."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from disentune.errors import did_you_mean
from disentune.figures import HeatMap
from disentune.report.canvas import FAINT, SHADES, WIDTH, tilted, words
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, Scores
from disentune.results import config_keys

MISSING = "-"
"""Where trials stand that do not have a key: another plug-in's parameter, or null."""
MOST_VALUES = 16
"""Places of an axis whose labels can be read; above it numbers are taken in ranges and rare names are left out."""
RANGES = 8
WIDE_CELL, NARROW_CELL = 0.6, 0.36
"""Inches of a cell that hold its mean with spread and count, and its mean alone."""
LONGEST = 24


def choose(scores: Scores) -> list[HeatMap]:
    """One, when two keys are crossed."""
    try:
        pair = _crossed(scores, scores.scored(None, scores.varying), ())
    except NothingToDraw:
        return []
    return [HeatMap(x=pair[0], y=pair[1])] if pair else []


def draw(figure: Figure, scores: Scores, spec: HeatMap) -> Caption:
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


def _asked(scores: Scores, spec: HeatMap) -> tuple[str, str, pd.DataFrame]:
    """The two keys and the trials with both; a key that is not named is chosen."""
    named = [key for key in (spec.x, spec.y) if key]
    refuse_absent(scores, named)
    frame = scores.scored(spec.metric, [*scores.varying, *named])
    x, y = _completed(scores, frame, spec)
    if x == y:
        raise NothingToDraw(f"a heat map needs two different keys, but x and y are both {x}")
    return x, y, frame


def _completed(scores: Scores, frame: pd.DataFrame, spec: HeatMap) -> tuple[str, str]:
    if spec.x and spec.y:
        return spec.x, spec.y
    named = spec.x or spec.y
    candidates = [key for key in _ranked(scores, frame) if key != named]
    if len(candidates) < (1 if named else 2):
        raise NothingToDraw("a heat map needs two keys that vary between the trials with a score")
    pair = _crossed(scores, frame, (named,) if named else ()) or tuple([*filter(None, [named]), *candidates][:2])
    first, second = pair
    return (second, first) if spec.y else (first, second)


def _ranked(scores: Scores, frame: pd.DataFrame) -> list[str]:
    """Numbers before names, those with most values first."""
    return sorted(swept(scores, frame), key=lambda key: (not scores.is_number(key), -frame[key].nunique()))


def swept(scores: Scores, frame: pd.DataFrame) -> list[str]:
    """Keys in which these trials differ, but for parameters that each plug-in fixes: its name tells them."""
    varying = [key for key in scores.varying if frame[key].nunique(dropna=False) > 1]
    return [key for key in varying if not _told_by_name(frame, key, f"{key.split('.')[0]}.name")]


def _told_by_name(frame: pd.DataFrame, key: str, name: str) -> bool:
    if key == name or name not in frame:
        return False
    return bool((frame.groupby(name, dropna=False)[key].nunique(dropna=False) <= 1).all())


def _crossed(scores: Scores, frame: pd.DataFrame, named: tuple[str, ...]) -> tuple[str, str] | None:
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


def refuse_absent(scores: Scores, keys: Sequence[str]) -> None:
    """A key may be absent although the sweep has it: `only` may have kept the trials of another plug-in."""
    known = ["arm", "seed", *config_keys(scores.trials)]
    for key in keys:
        if key not in known:
            raise NothingToDraw(f"no trial has the key {key}.{did_you_mean(key, known)}")


# ---- values as places of an axis


@dataclass(frozen=True)
class Places:
    """The values of a key in order, and for each trial which of them it has; -1 for those left out."""

    key: str
    labels: list[str]
    codes: np.ndarray
    note: str = ""


def places(scores: Scores, key: str, column: pd.Series) -> Places:
    """Every value a place while there are few, missing ones last."""
    present = column.dropna()
    if present.nunique() <= MOST_VALUES:
        return _each(scores, key, column, list(present.unique()))
    return _ranges(key, column) if scores.is_number(key) else _most_frequent(scores, key, column)


def _each(scores: Scores, key: str, column: pd.Series, values: list[Any], note: str = "") -> Places:
    ordered = scores.order(key, values)
    found = {value: place for place, value in enumerate(ordered)}
    labels = [brief(value) for value in ordered]
    if column.isna().any():
        labels.append(MISSING)
    codes = [len(ordered) if pd.isna(value) else found.get(value, -1) for value in column]
    return Places(key, labels, np.array(codes, dtype=int), note)


def _most_frequent(scores: Scores, key: str, column: pd.Series) -> Places:
    counts = column.value_counts()
    kept = sorted(counts.index, key=lambda value: (-counts[value], str(value)))[:MOST_VALUES]
    note = f"Of the {len(counts)} values of {words(key)} the {MOST_VALUES} with most trials are shown."
    return _each(scores, key, column, kept, note)


def _ranges(key: str, column: pd.Series) -> Places:
    """Ranges with about as many trials each, whatever the scale that the numbers were drawn on."""
    numbers = column.astype(float)
    cut = pd.qcut(numbers, RANGES, labels=False, duplicates="drop")
    codes = cut.rank(method="dense").sub(1)
    spans = numbers.groupby(codes).agg(["min", "max"])
    labels = [f"{low:.2g} to {high:.2g}" if low < high else f"{low:.3g}" for low, high in spans.to_numpy()]
    if numbers.isna().any():
        codes, labels = codes.fillna(len(labels)), [*labels, MISSING]
    note = f"The {numbers.nunique()} values of {words(key)} are taken in ranges with about as many trials each."
    return Places(key, labels, codes.to_numpy(dtype=int), note)


def brief(value: Any, longest: int = LONGEST) -> str:
    """A value as a label; the end of a long name is left out."""
    if isinstance(value, (float, np.floating)):
        return f"{value:g}"
    text = " ".join(str(value).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def titles(keys: Sequence[str]) -> list[str]:
    """Keys in words, with their section where two would read alike."""
    plain = [words(key) for key in keys]
    return [title if plain.count(title) == 1 else key.replace("_", " ") for key, title in zip(keys, plain, strict=True)]


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
    return (WIDTH - 2.4) / table.mean.shape[1]


def _is_wide(table: _Table) -> bool:
    return _cell_inches(table) >= WIDE_CELL


def matrix(axes: Axes, values: np.ndarray, shades: str, limits: tuple[float, float] | None = None) -> QuadMesh:
    """Coloured cells whose middles are at whole numbers; those without a number are hatched."""
    edges = [np.arange(length + 1) - 0.5 for length in reversed(values.shape)]
    norm = Normalize(*(limits or range_of(values)))
    mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=shades, norm=norm)
    for row, column in np.argwhere(np.isnan(values)):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", color=FAINT, linewidth=0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return mesh


def range_of(values: np.ndarray) -> tuple[float, float]:
    """A score that is equal everywhere gets a range about it, so that the colour bar has one."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    slack = 0.0 if low < high else max(abs(low), 1.0) * 0.05
    return low - slack, high + slack


def write(axes: Axes, mesh: QuadMesh, values: np.ndarray, texts: np.ndarray, size: float) -> None:
    """A text in each cell with a number, in what can be read on the cell's colour."""
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "black" if lightness(mesh.to_rgba(value)) > 0.45 else "white"
            axes.text(column, row, str(texts[row, column]), color=colour, ha="center", va="center", fontsize=size)


def lightness(rgba: Any) -> float:
    """Perceived, from 0 for black to 1 for white (the weights are those of Rec. 709)."""
    return float(np.dot(rgba[:3], (0.2126, 0.7152, 0.0722)))


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
