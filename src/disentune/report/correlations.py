"""How metrics rank the trials: Spearman's correlation of each pair (Locatello et al., ICML 2019, Fig. 2)."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from disentune.report.canvas import DIVERGING, WIDTH, words
from disentune.report.kind import Caption, Kind
from disentune.report.places import brief, matrix, write
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Correlations

FEWEST = 8
"""Minimum number of trials; with fewer, the interval of a rank correlation covers nearly all of -1 to 1."""
FEWEST_CHOSEN = 3
MOST_METRICS = 20
DATASET = "dataset.name"
NARROW_CELL, WIDE_CELL, WIDEST_CELL = 0.25, 0.36, 0.8
"""Inches of a cell that fits hundredths, that fits the number, and that looks good."""
NARROWEST, GAP, COLOUR_BAR, LETTER = 1.6, 0.2, 1.2, 0.088
"""Inches for a panel's title, between panels, for the colour bar, and for a letter of a name."""


@dataclass(frozen=True)
class _Panel:
    """Correlations (metrics, metrics) over the trials of a data set; NaN if there is none."""

    label: str
    trials: int
    values: np.ndarray


@dataclass(frozen=True)
class _Shown:
    metrics: list[str]
    panels: list[_Panel]
    notes: list[str]


def choose(scores: RunScores) -> list[Correlations]:
    """From three metrics on: of two, their scatter plot shows more."""
    try:
        shown = _shown(scores, Correlations())
    except NothingToDraw:
        return []
    return [Correlations()] if len(shown.metrics) >= FEWEST_CHOSEN else []


def draw(figure: Figure, scores: RunScores, spec: Correlations) -> Caption:
    shown = _shown(scores, spec)
    labels = [f"{words(key)} ↓" if scores.better(key).startswith("lower") else words(key) for key in shown.metrics]
    layout = _layout(len(shown.panels), labels)
    figure.set_size_inches(layout.width, layout.height)
    grid = figure.subplots(layout.rows, layout.columns, squeeze=False, sharex=True, sharey=True).ravel()
    meshes = [_draw_panel(axes, panel, layout) for axes, panel in zip(grid, shown.panels, strict=False)]
    _label(grid, labels, layout.columns, len(shown.panels))
    bar = figure.colorbar(
        meshes[0], ax=list(grid), label="Spearman's rank correlation", aspect=25, shrink=min(1.0, 3.5 / layout.height)
    )
    bar.outline.set_visible(False)
    return Caption("Rank correlation of the metrics", _explained(shown, labels, layout))


# ---- numbers


def _shown(scores: RunScores, spec: Correlations) -> _Shown:
    asked = list(dict.fromkeys(spec.metrics or _unrepeated(scores.metrics)))
    frame = _frame(scores, asked)
    metrics = [key for key in frame if key not in ("trial_id", DATASET)]
    notes = [f"No trial reports {words(key)}." for key in asked if key not in metrics]
    if len(metrics) > MOST_METRICS:
        notes.append(f"The first {MOST_METRICS} of {len(metrics)} metrics are shown.")
        metrics = metrics[:MOST_METRICS]
    if len(metrics) < 2:
        raise NothingToDraw(f"a correlation needs two metrics, but the trials have {metrics[0] if metrics else 'none'}")
    panels, more = _panels(scores, frame, metrics)
    if not any(_has_pair(panel.values) for panel in panels):
        raise NothingToDraw(f"no two metrics have different values in {FEWEST} trials or more")
    return _Shown(metrics, panels, notes + more)


def _unrepeated(metrics: list[str]) -> list[str]:
    """Without scores that `disentune score` computed again for a metric of the sweep: both rank the trials alike."""
    return [metric for metric in metrics if metric.removesuffix("_scored") not in set(metrics) - {metric}]


def _frame(scores: RunScores, metrics: list[str]) -> pd.DataFrame:
    """One row per trial; metrics that no trial has are not columns."""
    columns = {}
    for metric in metrics:
        try:
            columns[metric] = scores.scored(metric).set_index("trial_id")["value"]
        except NothingToDraw:
            continue
    trials = scores.trials[[key for key in ("trial_id", DATASET) if key in scores.trials]].set_index("trial_id")
    return trials.join(pd.DataFrame(columns)) if columns else trials


def _panels(scores: RunScores, frame: pd.DataFrame, metrics: list[str]) -> tuple[list[_Panel], list[str]]:
    """Data sets with the most trials first, and notes on those left out."""
    found = [_panel(label, group, metrics) for label, group in _groups(scores, frame)]
    enough = sorted((panel for panel in found if panel.trials >= FEWEST), key=lambda panel: -panel.trials)
    if not enough:
        where = " of one data set" if len(found) > 1 else ""
        raise NothingToDraw(f"a correlation needs {FEWEST} trials{where} that have two metrics")
    notes = []
    if len(found) > len(enough):
        notes.append(f"Data sets with fewer than {FEWEST} trials are left out: {len(found) - len(enough)}.")
    return enough, notes


def _groups(scores: RunScores, frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    if DATASET not in scores.varying:
        return [("", frame)]
    return [(brief(name), group) for name, group in frame.groupby(DATASET)]


def _panel(label: str, group: pd.DataFrame, metrics: list[str]) -> _Panel:
    """The correlation of each pair over the trials that have both; NaN for a metric that is constant there."""
    numbers = group[metrics]
    values = numbers.corr(method="spearman", min_periods=FEWEST).to_numpy()
    return _Panel(label, int((numbers.notna().sum(axis=1) >= 2).sum()), values)


def _has_pair(values: np.ndarray) -> bool:
    return bool(np.isfinite(values[~np.eye(len(values), dtype=bool)]).any())


# ---- drawing


@dataclass(frozen=True)
class _Layout:
    """Panels in rows and columns, in inches; `cell` is the side of a cell."""

    rows: int
    columns: int
    cell: float
    width: float
    height: float

    @property
    def hundredths(self) -> bool:
        """Whether cells are too narrow for more than hundredths."""
        return self.cell < WIDE_CELL


def _layout(panels: int, labels: list[str]) -> _Layout:
    """Up to two panels side by side. Cells fill the usual width as long as they are readable; with many metrics the
    figure grows instead."""
    names, columns = LETTER * max(len(label) for label in labels), min(panels, 2)
    rows = math.ceil(panels / columns)
    filling = ((WIDTH - names - COLOUR_BAR) / columns - GAP) / len(labels)
    cell = float(np.clip(filling, NARROW_CELL, WIDEST_CELL))
    side = max(NARROWEST, cell * len(labels))
    width = max(WIDTH, names + COLOUR_BAR + columns * (side + GAP))
    return _Layout(rows, columns, side / len(labels), width, rows * (side + 0.4) + names + 0.2)


def _draw_panel(axes: Axes, panel: _Panel, layout: _Layout) -> QuadMesh:
    mesh = matrix(axes, panel.values, DIVERGING, (-1, 1))
    texts = [[_text(value, layout.hundredths) for value in row] for row in panel.values]
    write(axes, mesh, panel.values, np.array(texts, dtype=object), 9 if layout.cell >= 0.45 else 7)
    axes.set_aspect("equal")
    axes.set_title(f"{panel.label} (n = {panel.trials})".strip(), fontsize=10)
    return mesh


def _text(value: float, hundredths: bool) -> str:
    if np.isnan(value):
        return ""
    return f"{100 * value:.0f}" if hundredths else f"{value:.2f}"


def _label(grid: np.ndarray, labels: list[str], columns: int, panels: int) -> None:
    """Names at the outer panels only, including below a panel that has no panel under it."""
    grid[0].set_yticks(range(len(labels)), labels)
    grid[0].set_ylim(len(labels) - 0.5, -0.5)
    for place, axes in enumerate(grid):
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        axes.tick_params(labelbottom=place + columns >= panels, labelleft=place % columns == 0)
        axes.set_visible(place < panels)


def _explained(shown: _Shown, labels: list[str], layout: _Layout) -> str:
    gaps = any(np.isnan(panel.values).any() for panel in shown.panels)
    several = len(shown.panels) > 1 or bool(shown.panels[0].label)
    parts = [
        "Spearman's correlation: 1 is the same order of the trials, 0 no relation, -1 the reverse order.",
        "Numbers are in hundredths." if layout.hundredths else "",
        "Each pair uses the trials that have both metrics; n: trials with two or more metrics.",
        f"Hatched: a metric is constant, or fewer than {FEWEST} trials have both." if gaps else "",
        "Each data set is shown separately, because across data sets metrics would agree merely by distinguishing easy "
        "from hard ones." if several else "",
        "↓: lower is better." if any(label.endswith("↓") for label in labels) else "",
        *shown.notes,
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


KIND = Kind(
    name="correlations",
    question="Do the metrics agree on which trials are better?",
    choose=choose,
    draw=draw,
)
