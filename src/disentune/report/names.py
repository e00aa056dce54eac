"""Shared by figures over names: where each key goes, the mean of a few trials, the caption."""

import pandas as pd
from matplotlib.axes import Axes

from disentune.report.design import Layout, lay_out
from disentune.report.groups import (
    FEWEST,
    MOST_PLACES,
    Groups,
    budgets,
    captioned,
    counted,
    mixture,
    said,
    table,
    titled,
    whole,
)
from disentune.report.kind import Caption
from disentune.report.scores import NothingToDraw, RunScores

PREFERRED = ("dataset.name", "arm", "framework.name")
"""Keys preferred on the x axis, in this order; then the key with the most values."""


def layout_of(scores: RunScores, metric: str | None, x: str | None, by: str | None) -> Layout:
    """Where each key goes; the key of the x axis is chosen if `x` does not name it."""
    table(scores, metric, [x, by])
    design = scores.scored_design(metric)
    free = [key for key in design.keys if key != by and key not in design.sampled]
    usual = sorted(free, key=lambda key: (PREFERRED.index(key) if key in PREFERRED else 9, -design.count([key])))
    fitting = [key for key in usual if design.count([key]) <= MOST_PLACES] or usual
    found = lay_out(design, x or next(iter(fitting), "arm"), by)
    if found.mixed and "arm" in found.mixed:
        raise NothingToDraw(
            f"trials of one group would differ in {titled(found.mixed)}, and arms are not averaged; "
            "select fewer trials with `only`, or choose another x"
        )
    return found


def draw_mean(axes: Axes, ends: tuple[float, float], trials: pd.DataFrame, colour: str) -> None:
    """Draws a line at the mean of trials that are too few for a shape."""
    if len(trials) > 1:
        axes.hlines(whole(trials)["value"].mean(), *ends, color=colour, linewidth=1.5)


def caption(scores: RunScores, metric: str | None, layout: Layout, groups: Groups, shapes: str) -> Caption:
    by = titled([*layout.series, *layout.panels])
    title = f"{said(scores, metric)} by {groups.places.title}" + (f" and {by}" if by else "")
    few = any(1 < size < FEWEST for size in groups.sizes)
    return captioned(
        title, counted(scores, groups.trials), shapes if max(groups.sizes) >= FEWEST else "",
        f"Lines are means of groups with fewer than {FEWEST} trials." if few else "",
        _mixture(layout, groups), budgets(groups.trials), groups.places.note, groups.series.note,
    )  # fmt: skip


def _mixture(layout: Layout, groups: Groups) -> str:
    if layout.mixed:
        return f"Trials of one group also differ in {titled(layout.mixed)}: the spread is not that of seeds."
    return mixture(layout, groups.trials)
