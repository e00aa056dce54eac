"""Scores in groups side by side, mainly by loss: Michlo et al., IJCAI 2023, Fig. 11."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from disentune.report.canvas import INK
from disentune.report.groups import FEWEST, Groups, Numbers, draw_dots, draw_groups, grouped, spread
from disentune.report.kind import Caption, Kind
from disentune.report.names import caption, draw_mean, layout_of
from disentune.report.scores import RunScores
from disentune.spec.figures import Grouped


def choose(scores: RunScores) -> list[Grouped]:
    """Never chosen by default, because the summary already shows every group; it is for keys that a sweep names."""
    return []


def draw(figure: Figure, scores: RunScores, spec: Grouped) -> Caption:
    layout = layout_of(scores, spec.metric, spec.x, spec.by)
    groups = grouped(scores, spec.metric, layout)
    draw_groups(figure, scores, spec.metric, layout, groups, _draw_group)
    boxes = "Boxes show the quartiles, with a line at the median; whiskers reach the smallest and the largest score."
    return caption(scores, spec.metric, layout, groups, boxes)


# ---- drawing


def _draw_group(axes: Axes, groups: Groups, place: int, series: int, trials: pd.DataFrame) -> tuple[float, int]:
    """Draws one box with its trials, and returns the position of its count."""
    centre, colour = groups.centre(place, series), groups.series.colours[groups.series.values[series]]
    numbers = trials["value"].to_numpy()[~trials["cut"].to_numpy(dtype=bool)]
    if len(numbers) >= FEWEST:
        _draw_box(axes, centre, 0.7 * groups.width, numbers, colour)
    elif groups.has_means:
        draw_mean(axes, (centre - 0.35 * groups.width, centre + 0.35 * groups.width), trials, colour)
    draw_dots(axes, centre + 0.4 * groups.width * spread(len(trials)), trials, colour)
    return centre, len(trials)


def _draw_box(axes: Axes, centre: float, width: float, numbers: Numbers, colour: str) -> None:
    line: dict[str, Any] = {"color": colour, "linewidth": 1.2}
    axes.boxplot(
        [numbers], positions=[centre], widths=width, whis=(0, 100), patch_artist=True, manage_ticks=False,
        boxprops={"facecolor": to_rgba(colour, 0.25), "edgecolor": colour, "linewidth": 1.2}, whiskerprops=line,
        capprops=line, medianprops={"color": INK, "linewidth": 1.6}, showfliers=False,
    )  # fmt: skip


KIND = Kind(
    name="grouped",
    question="How do the groups compare, and how much do their trials vary?",
    choose=choose,
    draw=draw,
)
