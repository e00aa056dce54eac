"""Scores in groups side by side, by loss above all: Michlo et al., IJCAI 2023, Fig. 11."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from disentune.report import violins
from disentune.report.canvas import INK, words
from disentune.report.groups import (
    FEWEST,
    Groups,
    Numbers,
    alike,
    candidates,
    captioned,
    counted,
    crossed,
    draw_groups,
    few,
    first_of,
    grouped,
    inside,
    names_by_variety,
    said,
    spread,
    varies,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Grouped


def choose(scores: RunScores) -> list[Grouped]:
    """Where two names vary, unless the violins already show the same groups."""
    try:
        frame = candidates(scores, None)
    except NothingToDraw:
        return []
    x, by = _keys(scores, Grouped(), frame)
    if by is None or not varies(frame, x):
        return []
    shown = [list(filter(None, (spec.x, spec.split))) for spec in violins.choose(scores)]
    return [] if any(alike(frame, keys, [x, by]) for keys in shown) else [Grouped(x=x, by=by)]


def draw(figure: Figure, scores: RunScores, spec: Grouped) -> Caption:
    x, by = _keys(scores, spec, candidates(scores, spec.metric))
    groups = grouped(scores, spec.metric, x, by)
    draw_groups(figure, scores, spec.metric, x, groups, _draw_group)
    return _caption(scores, spec, groups)


def _keys(scores: RunScores, spec: Grouped, frame: pd.DataFrame) -> tuple[str, str | None]:
    names = names_by_variety(scores, frame)
    places = ["framework.name", "arm", *names]
    x = spec.x or first_of(places, lambda key: varies(frame, key) and key != spec.by) or "arm"
    beside = ["recon.name", *names, "arm"]
    return x, spec.by or first_of(beside, lambda key: key != x and crossed(frame, key, x))


# ---- drawing


def _draw_group(axes: Axes, groups: Groups, place: int, series: int, numbers: Numbers) -> tuple[float, int]:
    """Draws one box with its trials, and gives where its count belongs."""
    centre, colour = groups.centre(place, series), groups.series.colours[groups.series.values[series]]
    if len(numbers) >= FEWEST:
        _draw_box(axes, centre, 0.7 * groups.width, numbers, colour)
    axes.plot(centre + 0.4 * groups.width * spread(len(numbers)), numbers, "o", color=colour, markersize=3.5,
              alpha=0.8 if len(numbers) <= 50 else 0.4, markeredgewidth=0, zorder=3)  # fmt: skip
    return centre, len(numbers)


def _draw_box(axes: Axes, centre: float, width: float, numbers: Numbers, colour: str) -> None:
    line: dict[str, Any] = {"color": colour, "linewidth": 1.2}
    axes.boxplot(
        [numbers], positions=[centre], widths=width, whis=(0, 100), patch_artist=True, manage_ticks=False,
        boxprops={"facecolor": to_rgba(colour, 0.25), "edgecolor": colour, "linewidth": 1.2}, whiskerprops=line,
        capprops=line, medianprops={"color": INK, "linewidth": 1.6}, showfliers=False,
    )  # fmt: skip


def _caption(scores: RunScores, spec: Grouped, groups: Groups) -> Caption:
    x, by = words(groups.places.key or ""), groups.series.key
    title = f"{said(scores, spec.metric)} by {x}" + (f" and {words(by)}" if by else "")
    boxes = "Boxes are quartiles, the line in them the median; whiskers reach to the smallest and the largest score."
    return captioned(title, counted(scores, groups.trials), boxes if max(groups.sizes) >= FEWEST else "",
                     few(groups.sizes), inside(scores, groups.trials, ["place", "series"]), groups.places.note,
                     groups.series.note)  # fmt: skip


KIND = Kind(name="grouped", choose=choose, draw=draw)
