"""Score densities as split violins: Michlo et al., IJCAI 2023, Fig. 6."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from disentune.report.canvas import INK
from disentune.report.groups import FEWEST, Groups, Numbers, draw_dots, draw_groups, grouped, spread
from disentune.report.kind import Caption, Kind
from disentune.report.names import caption, draw_mean, layout_of
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Violins

HEIGHTS = 100
"""Number of points at which a density is computed."""
CLOSE = 1e-9
"""Relative to the largest value; values that differ by less have no meaningful density in double precision."""


def choose(scores: RunScores) -> list[Violins]:
    """Chosen if groups of trials that differ only by seed are large enough for a density."""
    try:
        design, layout = scores.scored_design(None), layout_of(scores, None, None, None)
    except NothingToDraw:
        return []
    largest = design.groups().value_counts().max()
    has_room = not layout.mixed and design.count(layout.shown) <= 48
    return [Violins(x=layout.x)] if largest >= FEWEST and has_room and layout.shown else []


def draw(figure: Figure, scores: RunScores, spec: Violins) -> Caption:
    layout = layout_of(scores, spec.metric, spec.x, spec.split)
    groups = grouped(scores, spec.metric, layout)
    draw_groups(figure, scores, spec.metric, layout, groups, _draw_group)
    shapes = (
        "Shapes are densities (Gaussian kernels, Scott's bandwidth), cut at the smallest and the largest score and all "
        "equally wide; lines are the quartiles, with a solid median."
    )
    return caption(scores, spec.metric, layout, groups, shapes)


# ---- drawing


def _draw_group(axes: Axes, groups: Groups, place: int, series: int, trials: pd.DataFrame) -> tuple[float, int]:
    """Draws one violin, or half of one, and returns the position of its count."""
    colour = groups.series.colours[groups.series.values[series]]
    if len(groups.series.values) == 2:
        _draw_violin(axes, place, 0.4, trials, colour, (-1.0, 0.0) if series == 0 else (0.0, 1.0), groups.has_means)
        return place + (-0.2 if series == 0 else 0.2), len(trials)
    centre = groups.centre(place, series)
    _draw_violin(axes, centre, 0.45 * groups.width, trials, colour, (-1.0, 1.0), groups.has_means)
    return centre, len(trials)


def _draw_violin(
    axes: Axes, centre: float, width: float, trials: pd.DataFrame, colour: str, sides: tuple[float, float], mean: bool
) -> None:
    """`sides` are its edges at the widest point, in widths from the centre."""
    if trials.empty:
        return
    left, right = sides
    middle = centre + 0.15 * width * (left + right)  # dots of a half are drawn inside it, near the centre
    draw_dots(axes, middle + 0.2 * width * spread(len(trials)), trials, colour, 3)
    numbers = trials["value"].to_numpy()[~trials["cut"].to_numpy(dtype=bool)]
    found = density(numbers)
    if found is None:
        if mean:
            draw_mean(axes, (centre + left * width, centre + right * width), trials, colour)
        return
    heights, share = found
    axes.fill_betweenx(heights, centre + left * width * share, centre + right * width * share, facecolor=colour,
                       alpha=0.3, linewidth=0)  # fmt: skip
    _draw_outline(axes, centre, width, heights, share, colour, sides)
    _draw_quartiles(axes, centre, width, numbers, np.interp(quartiles(numbers), heights, share), sides)


def _draw_outline(
    axes: Axes, centre: float, width: float, heights: Numbers, share: Numbers, colour: str, sides: tuple[float, float]
) -> None:
    around = [centre + sides[0] * width * share, centre + sides[1] * width * share[::-1]]
    up_and_down = np.concatenate([heights, heights[::-1], heights[:1]])
    axes.plot(np.concatenate([*around, around[0][:1]]), up_and_down, color=colour, linewidth=1)


def _draw_quartiles(
    axes: Axes, centre: float, width: float, numbers: Numbers, share: Numbers, sides: tuple[float, float]
) -> None:
    """Draws the quartiles, the median as a solid line and the others dashed."""
    lines = zip(quartiles(numbers), share, ("dashed", "solid", "dashed"), strict=True)
    for height, part, line in lines:
        ends = (centre + side * width * part for side in sides)
        axes.hlines(height, *ends, color=INK, linestyle=line, linewidth=1.4 if line == "solid" else 0.8, zorder=4)


def quartiles(numbers: Numbers) -> Numbers:
    found: Numbers = np.percentile(numbers, [25, 50, 75])
    return found


def density(numbers: Numbers) -> tuple[Numbers, Numbers] | None:
    """Heights from the smallest to the largest number, and the density there relative to its peak: Gaussian kernels
    with Scott's bandwidth. None if there are too few numbers, or if they are too close."""
    unit = numbers / (np.abs(numbers).max(initial=0) or 1)  # scaled so that squares neither underflow nor overflow
    if len(numbers) < FEWEST or np.ptp(unit) <= CLOSE:
        return None
    shares = gaussian_kde(unit)(np.linspace(unit.min(), unit.max(), HEIGHTS))
    return np.linspace(numbers.min(), numbers.max(), HEIGHTS), shares / shares.max()


KIND = Kind(
    name="violins",
    question="How are the scores of each group distributed?",
    choose=choose,
    draw=draw,
)
