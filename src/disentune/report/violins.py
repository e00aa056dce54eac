"""Score densities as split violins: Michlo et al., IJCAI 2023, Fig. 6."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from disentune.report.canvas import INK, words
from disentune.report.groups import (
    FEWEST,
    Groups,
    Numbers,
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
from disentune.spec.figures import Violins

HEIGHTS = 100
"""At which a density is computed."""
CLOSE = 1e-9
"""Relative to the largest: values that differ by less have no shape that a double can tell."""


def choose(scores: RunScores) -> list[Violins]:
    """Where names divide the trials into groups that have a shape."""
    try:
        frame = candidates(scores, None)
    except NothingToDraw:
        return []
    x, split = _keys(scores, Violins(), frame)
    largest = frame.groupby([x] if split is None else [x, split], dropna=False, sort=False).size().max()
    return [Violins(x=x, split=split)] if varies(frame, x) and largest >= FEWEST else []


def draw(figure: Figure, scores: RunScores, spec: Violins) -> Caption:
    x, split = _keys(scores, spec, candidates(scores, spec.metric))
    groups = grouped(scores, spec.metric, x, split)
    draw_groups(figure, scores, spec.metric, x, groups, _draw_group)
    return _caption(scores, spec, groups)


# ---- keys


def _keys(scores: RunScores, spec: Violins, frame: pd.DataFrame) -> tuple[str, str | None]:
    names = names_by_variety(scores, frame)
    places = ["dataset.name", "arm", *names]
    x = spec.x or first_of(places, lambda key: varies(frame, key) and key != spec.split) or "arm"
    halves = ["framework.name", *names]
    return x, spec.split or first_of(halves, lambda key: _halves(frame, key, x))


def _halves(frame: pd.DataFrame, key: str, x: str) -> bool:
    """Whether it has two values, and both at some place."""
    return key != x and key in frame and frame[key].nunique(dropna=False) == 2 and crossed(frame, key, x)


# ---- drawing


def _draw_group(axes: Axes, groups: Groups, place: int, series: int, numbers: Numbers) -> tuple[float, int]:
    """Draws one violin, or half of one, and gives where its count belongs."""
    colour = groups.series.colours[groups.series.values[series]]
    if len(groups.series.values) == 2:
        _draw_violin(axes, place, 0.4, numbers, colour, (-1.0, 0.0) if series == 0 else (0.0, 1.0))
        return place + (-0.2 if series == 0 else 0.2), len(numbers)
    centre = groups.centre(place, series)
    _draw_violin(axes, centre, 0.45 * groups.width, numbers, colour, (-1.0, 1.0))
    return centre, len(numbers)


def _draw_violin(
    axes: Axes, centre: float, width: float, numbers: Numbers, colour: str, sides: tuple[float, float]
) -> None:
    """`sides` are its edges where it is widest, in widths from the centre."""
    if len(numbers) == 0:
        return
    left, right = sides
    middle = centre + 0.15 * width * (left + right)  # dots of a half stand in it, near the centre
    axes.plot(middle + 0.2 * width * spread(len(numbers)), numbers, "o", color=colour, markersize=3,
              alpha=_opacity(len(numbers)), markeredgewidth=0, zorder=3)  # fmt: skip
    found = density(numbers)
    if found is not None:
        heights, share = found
        axes.fill_betweenx(heights, centre + left * width * share, centre + right * width * share, facecolor=colour,
                           alpha=0.3, linewidth=0)  # fmt: skip
        _draw_outline(axes, centre, width, heights, share, colour, sides)
        _draw_quartiles(axes, centre, width, numbers, np.interp(quartiles(numbers), heights, share), sides)
    elif len(numbers) >= FEWEST:
        axes.hlines(np.median(numbers), centre + left * width, centre + right * width, color=colour, linewidth=1.5)


def _draw_outline(
    axes: Axes, centre: float, width: float, heights: Numbers, share: Numbers, colour: str, sides: tuple[float, float]
) -> None:
    around = [centre + sides[0] * width * share, centre + sides[1] * width * share[::-1]]
    up_and_down = np.concatenate([heights, heights[::-1], heights[:1]])
    axes.plot(np.concatenate([*around, around[0][:1]]), up_and_down, color=colour, linewidth=1)


def _draw_quartiles(
    axes: Axes, centre: float, width: float, numbers: Numbers, share: Numbers, sides: tuple[float, float]
) -> None:
    """The median solid, the others dashed."""
    lines = zip(quartiles(numbers), share, ("dashed", "solid", "dashed"), strict=True)
    for height, part, line in lines:
        ends = (centre + side * width * part for side in sides)
        axes.hlines(height, *ends, color=INK, linestyle=line, linewidth=1.4 if line == "solid" else 0.8, zorder=4)


def _opacity(count: int) -> float:
    return 0.85 if count <= 50 else 0.5


def quartiles(numbers: Numbers) -> Numbers:
    found: Numbers = np.percentile(numbers, [25, 50, 75])
    return found


def density(numbers: Numbers) -> tuple[Numbers, Numbers] | None:
    """Heights from the smallest to the largest number, and the density there as a share of its peak: Gaussian kernels
    with Scott's bandwidth. None where too few numbers, or too close ones, have no shape."""
    unit = numbers / (np.abs(numbers).max(initial=0) or 1)  # whose squares neither vanish nor overflow
    if len(numbers) < FEWEST or np.ptp(unit) <= CLOSE:
        return None
    shares = gaussian_kde(unit)(np.linspace(unit.min(), unit.max(), HEIGHTS))
    return np.linspace(numbers.min(), numbers.max(), HEIGHTS), shares / shares.max()


# ---- words


def _caption(scores: RunScores, spec: Violins, groups: Groups) -> Caption:
    x, split = words(groups.places.key or ""), groups.series.key
    title = f"{said(scores, spec.metric)} by {x}" + (f" and {words(split)}" if split else "")
    shape = (
        "Shapes are densities (Gaussian kernels, Scott's bandwidth) cut at the smallest and the largest score, all "
        "equally wide; lines are the quartiles, the median solid."
    )
    return captioned(title, counted(scores, groups.trials), shape if max(groups.sizes) >= FEWEST else "",
                     few(groups.sizes), inside(scores, groups.trials, ["place", "series"]), groups.places.note,
                     groups.series.note)  # fmt: skip


KIND = Kind(name="violins", choose=choose, draw=draw)
