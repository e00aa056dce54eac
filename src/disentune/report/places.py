"""Keys as axes: their values as positions, and coloured cells at these positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from disentune.errors import did_you_mean
from disentune.report.canvas import FAINT, MISSING, words
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import config_keys, titles

MOST_VALUES = 16
"""Maximum number of values on an axis with legible labels; beyond it numbers are binned and rare names left out."""
RANGES = 8
LONGEST = 24
"""Maximum number of letters of a label."""


# ---- which keys


def refuse_absent(scores: RunScores, keys: Sequence[str]) -> None:
    """A key of the sweep may be absent, because `only` may have kept the trials of another plug-in."""
    known = ["arm", "seed", *config_keys(scores.trials)]
    for key in keys:
        if key not in known:
            raise NothingToDraw(f"no trial has the key {key}.{did_you_mean(key, known)}")


# ---- values as places of an axis


@dataclass(frozen=True)
class Places:
    """The values of a key in order, and the index of each trial's value; -1 for values left out."""

    key: str
    labels: list[str]
    codes: np.ndarray
    note: str = ""


def places(scores: RunScores, key: str, column: pd.Series) -> Places:
    """One position per value if there are few; missing values last."""
    present = column.dropna()
    if present.nunique() <= MOST_VALUES:
        return _each(scores, key, column, list(present.unique()))
    return _ranges(key, column) if scores.is_number(key) else _most_frequent(scores, key, column)


def _each(scores: RunScores, key: str, column: pd.Series, values: list[Any], note: str = "") -> Places:
    ordered = scores.order(key, values)
    found = {value: place for place, value in enumerate(ordered)}
    labels = [brief(value) for value in ordered]
    if column.isna().any():
        labels.append(MISSING)
    codes = [len(ordered) if pd.isna(value) else found.get(value, -1) for value in column]
    return Places(key, labels, np.array(codes, dtype=int), note)


def _most_frequent(scores: RunScores, key: str, column: pd.Series) -> Places:
    counts = column.value_counts()
    kept = sorted(counts.index, key=lambda value: (-counts[value], str(value)))[:MOST_VALUES]
    note = f"The {MOST_VALUES} of {len(counts)} values of {words(key)} with the most trials are shown."
    return _each(scores, key, column, kept, note)


def _ranges(key: str, column: pd.Series) -> Places:
    """Bins with about the same number of trials each, whatever the scale of the numbers."""
    numbers = column.astype(float)
    cut = pd.qcut(numbers, RANGES, labels=False, duplicates="drop")
    codes = cut.rank(method="dense").sub(1)
    spans = numbers.groupby(codes).agg(["min", "max"])
    labels = [f"{low:.2g} to {high:.2g}" if low < high else f"{low:.3g}" for low, high in spans.to_numpy()]
    if numbers.isna().any():
        codes, labels = codes.fillna(len(labels)), [*labels, MISSING]
    note = (
        f"The {numbers.nunique()} values of {words(key)} are binned, with about the same number of trials in each bin."
    )
    return Places(key, labels, codes.to_numpy(dtype=int), note)


def brief(value: Any, longest: int = LONGEST) -> str:
    """A value as a label; long names are truncated."""
    if isinstance(value, (float, np.floating)):
        return f"{value:g}"
    text = " ".join(str(value).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def in_words(keys: Sequence[str]) -> list[str]:
    """Titles of keys and metrics, with their section if two would look alike."""
    return titles(keys, words)


# ---- coloured cells


def matrix(axes: Axes, values: np.ndarray, shades: str, limits: tuple[float, float] | None = None) -> QuadMesh:
    """Coloured cells centred at whole numbers; cells without a number are hatched."""
    edges = [np.arange(length + 1) - 0.5 for length in reversed(values.shape)]
    norm = Normalize(*(limits or range_of(values)))
    mesh = axes.pcolormesh(*edges, np.ma.masked_invalid(values), cmap=shades, norm=norm)
    for row, column in np.argwhere(np.isnan(values)):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", color=FAINT, linewidth=0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return mesh


def range_of(values: np.ndarray) -> tuple[float, float]:
    """The colour range; a constant score gets a range around it, so that the colour bar is not empty."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    slack = 0.0 if low < high else max(abs(low), 1.0) * 0.05
    return low - slack, high + slack


def write(axes: Axes, mesh: QuadMesh, values: np.ndarray, texts: np.ndarray, size: float) -> None:
    """Writes a text in each cell that has a number, in a colour that is legible on the cell."""
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "black" if lightness(mesh.to_rgba(value)) > 0.45 else "white"
            axes.text(column, row, str(texts[row, column]), color=colour, ha="center", va="center", fontsize=size)


def lightness(rgba: Any) -> float:
    """Perceived lightness, from 0 for black to 1 for white (with the weights of Rec. 709)."""
    return float(np.dot(rgba[:3], (0.2126, 0.7152, 0.0722)))
