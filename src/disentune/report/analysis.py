"""One of the analyses of a study (`disentune analyse`) as a figure: coloured tables, or lines for total correlation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from disentune.analysis import ANALYSES
from disentune.analysis.runs import score_table
from disentune.errors import ConfigError, first_line
from disentune.report.canvas import DIVERGING, SHADES, WIDTH, colours, log_where_wide, tidy, words
from disentune.report.kind import Caption, Kind
from disentune.report.places import brief, matrix, write
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import AnalysisFigure, AnalysisName

FEWEST_METHODS = 3
"""With this many frameworks, the page of a sweep shows the analyses by default."""
CHOSEN: tuple[AnalysisName, ...] = ("variance_explained", "agreement", "transfer", "selection", "total_correlation")
CELL, LETTER, IN_A_ROW = 0.62, 0.085, 2
"""Inches of a cell and of a letter; number of panels side by side."""


@dataclass(frozen=True)
class Layout:
    """Which columns of an analysis are panels, rows and columns of its tables; `symmetric` ones have each pair once.
    Cells of `wide` tables have room for the interval."""

    panel: str | None
    row: str
    column: str
    shades: str
    limits: tuple[float, float]
    text: str
    symmetric: bool = False
    wide: bool = False


CORRELATION = "Spearman's rank correlation: 1 is the same order, 0 no relation, -1 the reverse order."
LAYOUTS = {
    "agreement": Layout("dataset", "metric", "other", DIVERGING, (-1, 1), CORRELATION, symmetric=True),
    "variance_explained": Layout(
        "grouping", "dataset", "metric", SHADES, (0, 1), "R2 = 1 - SS_within / SS_total; the rest is due to the seed."
    ),
    "transfer": Layout("metric", "dataset", "other", DIVERGING, (-1, 1), CORRELATION, symmetric=True),
    "selection": Layout(
        None, "same_metric", "same_dataset", DIVERGING, (0, 1),
        "How often a setting that is best in one place beats a random model in another, with its 95 % interval over "
        "seeds; 0.5 is chance.", wide=True,
    ),
    "downstream": Layout("dataset", "metric", "task", DIVERGING, (-1, 1), CORRELATION),
    "unsupervised_selection": Layout("dataset", "metric", "other", DIVERGING, (-1, 1), CORRELATION),
}  # fmt: skip


def choose(scores: RunScores) -> list[AnalysisFigure]:
    """The analyses that suit a study of several frameworks with several seeds."""
    trials = scores.trials
    several = len(trials) and trials["framework.name"].nunique() >= FEWEST_METHODS and trials["seed"].nunique() > 1
    return [AnalysisFigure(analysis=name) for name in CHOSEN if several and _can_show(scores, name)]


def _can_show(scores: RunScores, name: AnalysisName) -> bool:
    try:
        rows_of(scores, AnalysisFigure(analysis=name))
    except NothingToDraw:
        return False
    return True


def draw(figure: Figure, scores: RunScores, spec: AnalysisFigure) -> Caption:
    rows = rows_of(scores, spec)
    if spec.analysis == "total_correlation":
        text = _draw_lines(figure, rows)
    else:
        text = _draw_tables(figure, rows, LAYOUTS[spec.analysis])
    counts = f"n = {rows['n'].min()}" if rows["n"].nunique() == 1 else f"n = {rows['n'].min()} to {rows['n'].max()}"
    question = ANALYSES[spec.analysis].question.split("?")[0] + "?"
    return Caption(words(spec.analysis).capitalize(), f"{text} {counts}.", question)


def rows_of(scores: RunScores, spec: AnalysisFigure) -> pd.DataFrame:
    scores.scored(None)  # raises first if there are no numbers at all
    try:
        frame, _ = score_table(scores.results)
        rows = ANALYSES[spec.analysis].rows(frame, spec.metrics)
    except ConfigError as error:
        raise NothingToDraw(first_line(error)) from None
    rows = rows[rows["value"].notna()]
    if spec.analysis == "downstream":
        rows = rows[rows["metric"].notna()]
    if rows.empty:
        raise NothingToDraw(f"{spec.analysis} has no number in these trials")
    return rows


# ---- tables


def _draw_tables(figure: Figure, rows: pd.DataFrame, layout: Layout) -> str:
    panels = [*_panels(rows, layout)]
    height, width = (max(table.shape[axis] for _, table, _ in panels) for axis in (0, 1))
    names = LETTER * max(len(label) for _, table, _ in panels for label in (*table.index, *table.columns))
    across = min(IN_A_ROW, len(panels))
    down = math.ceil(len(panels) / across)
    figure.set_size_inches(
        max(WIDTH, across * (CELL * width + names) + 1.2), down * (CELL * 0.7 * height + names * 0.75 + 0.5)
    )
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (title, table, texts) in zip(grid, panels, strict=False):
        mesh = matrix(axes, table.to_numpy(float), layout.shades, layout.limits)
        write(axes, mesh, table.to_numpy(float), texts, 8)
        axes.set_xticks(range(table.shape[1]), table.columns, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(table.shape[0]), table.index)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
    for axes in grid[len(panels) :]:
        axes.remove()
    return layout.text


def _panels(rows: pd.DataFrame, layout: Layout) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Title, values and texts of each panel."""
    rows = rows.assign(text=[_text(row, layout.wide) for row in rows.to_dict("records")])
    groups = rows.groupby(layout.panel, sort=False) if layout.panel else [("", rows)]
    for name, some in groups:
        values, texts = (_table(some, column, layout) for column in ("value", "text"))
        rows_named = values.set_axis([_label(value, layout.row) for value in values.index])
        named = rows_named.set_axis([_label(value, layout.column) for value in values.columns], axis=1)
        yield _label(name), named, texts.to_numpy(object)


def _table(rows: pd.DataFrame, shown: str, layout: Layout) -> pd.DataFrame:
    table = rows.pivot(index=layout.row, columns=layout.column, values=shown)
    if layout.symmetric:
        labels = list(dict.fromkeys([*rows[layout.row], *rows[layout.column]]))
        table = table.reindex(index=labels, columns=labels)
        table = table.fillna(table.T)
    return table


def _text(row: dict[str, Any], is_wide: bool) -> str:
    value = f"{row['value']:.2f}"
    if not is_wide or math.isnan(row["low"]):
        return value
    return f"{value}\n{row['low']:.2f} to {row['high']:.2f}"


def _label(value: object, key: str = "") -> str:
    if isinstance(value, bool | np.bool_):
        return f"{'same' if value else 'other'} {key.removeprefix('same_')}"
    return brief(words(str(value)), 30)


# ---- lines


def _draw_lines(figure: Figure, rows: pd.DataFrame) -> str:
    """One panel per data set and kind of codes, one line per method."""
    datasets, kinds = list(rows["dataset"].unique()), list(rows["codes"].unique())
    shades = colours(list(rows["method"].unique()))
    figure.set_size_inches(WIDTH, 0.6 + 2.3 * len(datasets))
    grid = figure.subplots(len(datasets), len(kinds), squeeze=False)
    for (row, dataset), (column, kind) in ((a, b) for a in enumerate(datasets) for b in enumerate(kinds)):
        axes, some = grid[row, column], rows[(rows["dataset"] == dataset) & (rows["codes"] == kind)]
        for method, line in some.groupby("method", sort=False):
            line = line.sort_values("strength")
            bars = np.nan_to_num(np.stack([line["value"] - line["low"], line["high"] - line["value"]]))
            axes.errorbar(line["strength"], line["value"], bars, color=shades[method], marker="o", markersize=4,
                          capsize=2, linewidth=1.2, label=brief(method))  # fmt: skip
        log_where_wide(axes, some["strength"].tolist())
        axes.set_title(f"{brief(words(str(dataset)))}, {kind} codes", fontsize=10)
        tidy(axes)
    for axes in grid[-1]:
        axes.set_xlabel("strength")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    return (
        "Gaussian total correlation of the codes in nats: means over seeds with 95 % t intervals. A larger c max "
        "means weaker regularisation."
    )


KIND = Kind(
    name="analysis",
    question="What does the study say as a whole?",
    choose=choose,
    draw=draw,
)
