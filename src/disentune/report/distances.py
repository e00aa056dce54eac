"""Figures of distances that need no training: matrices along each factor (Michlo Figs. 3, 8; of a trained model 4 and
10), what the factors look like (Figs. 2, 5), and how distances are distributed (Fig. A1)."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.data.factors import FactorGrid, factors_of
from disentune.learn.image_distances import Look
from disentune.learn.pictures import mosaic
from disentune.maths.laws import Sampling
from disentune.maths.randomness import stream
from disentune.plugin import FactorImages
from disentune.report.canvas import GREY, INK, PALETTE, SHADES, figure, tidy, words

PANEL, LABEL, HEAD = 0.8, 1.9, 0.5
"""Inches for a matrix, for the names on the left, and for those above."""
SMALL = 7.5
LETTERS = 26
FRAMES, FRAME = 7, 0.55
"""Number of images in a traversal, and inches of an image."""
MOST_ROWS = 24
MOST_PAIRS = 6
POINTS = 1000
"""Points of a curve."""

Row = Mapping[str, np.ndarray]
"""Matrices by column name."""


def matrices(rows: Mapping[str, Row]) -> Figure:
    """One row of matrices per name, each with its own scale; light means far. All rows share the same columns."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    shown = list(rows.items())[:MOST_ROWS]
    width, height = LABEL + PANEL * len(columns), HEAD + PANEL * len(shown)
    drawn = figure(width, height)
    drawn.set_layout_engine("none")
    left, bottom = LABEL / width, 0.02 / height
    axes = drawn.add_axes((left, bottom, 1 - left, 1 - bottom - HEAD / height))
    for place, (_, row) in enumerate(shown):
        for column, name in enumerate(columns):
            if name in row:
                edges = (column + 0.05, column + 0.95, place + 0.95, place + 0.05)
                axes.imshow(row[name], cmap=SHADES, extent=edges, interpolation="nearest")
    axes.set(xlim=(0, len(columns)), ylim=(len(shown), 0), aspect="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=SMALL)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(len(columns)) + 0.5, [_wrapped(words(name), 12) for name in columns], color=INK)
    axes.set_yticks(np.arange(len(shown)) + 0.5, [_wrapped(name, LETTERS) for name, _ in shown])
    return drawn


def perceived(looks: Mapping[str, Look]) -> Figure:
    """Distances of each world, below the distances of the factors' values."""
    rows: dict[str, Row] = {}
    for title, look in looks.items():
        truth = {name: _truth(len(along.matrix)) for name, along in look.factors.items()}
        above = next((row for label, row in rows.items() if label.startswith("ground truth")), {})
        if {name: len(matrix) for name, matrix in above.items()} != {name: len(m) for name, m in truth.items()}:
            rows[f"ground truth{' ' * len(rows)}"] = truth  # trailing blanks make the names distinct
        rows[title] = {name: along.matrix for name, along in look.factors.items()}
    return matrices(rows)


def laws(drawn: Mapping[str, Sampling]) -> Figure:
    """How often training draws the values of two factors together: one row per world, one column per dependent pair,
    whose first factor is that of the rows; light is often."""
    return matrices({
        title: {
            f"{first} by {second}": sampling.table(sampling.names.index(first), sampling.names.index(second))
            for first, second in [*sampling.dependences][:MOST_PAIRS]
        }
        for title, sampling in drawn.items()
    })  # fmt: skip


def _truth(size: int) -> np.ndarray:
    return np.abs(np.subtract.outer(np.arange(size), np.arange(size)))


def traversals(data: FactorImages, title: str, seed: int = 0) -> Figure | None:
    """One row per factor: an image while that factor goes through its values; None for a data set of points,
    or if images do not fill the grid."""
    grid = factors_of(data)
    if not isinstance(grid, FactorGrid):
        return None
    base = stream(seed, "distances/traversals").integers(len(grid), size=1)
    if data.images(base).dtype != np.uint8:
        return None
    varied = [factor for factor, size in enumerate(grid.sizes) if size > 1]
    images = np.full((len(varied), min(FRAMES, max(grid.sizes)), *data.shape), 255, np.uint8)
    for row, factor in enumerate(varied):
        values = np.linspace(0, grid.sizes[factor] - 1, min(FRAMES, grid.sizes[factor])).round().astype(np.int64)
        images[row, : len(values)] = data.images(grid.around(base, factor, values)[0])
    drawn = figure(LABEL + FRAMES * FRAME, 0.35 + len(varied) * FRAME)
    axes = drawn.subplots()
    shown = mosaic(images.transpose(0, 1, 3, 4, 2))
    axes.imshow(shown, aspect="equal")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=SMALL)
    names = [f"{words(grid.names[factor])} ({grid.sizes[factor]})" for factor in varied]
    axes.set_yticks((np.arange(len(varied)) + 0.5) * len(shown) / len(varied), names)
    axes.set_xticks([])
    axes.set_title(title, fontsize=SMALL + 1, color=GREY, loc="left")
    return drawn


def distributions(looks: Mapping[str, Look]) -> Figure:
    """Cumulative share of pairs by distance, one curve per factor and one for random pairs; one panel per world."""
    shown = list(looks.items())[:MOST_ROWS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    drawn = figure(3.4 * columns, 2.6 * rows)
    panels = drawn.subplots(rows, columns, squeeze=False)
    for axes, (title, look) in zip(panels.flat, shown, strict=False):
        _draw_distribution(axes, title, look)
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    return drawn


def _draw_distribution(axes: Axes, title: str, look: Look) -> None:
    for place, (name, along) in enumerate(look.factors.items()):
        _draw_steps(axes, along.agreement.sample, words(name), PALETTE[place % len(PALETTE)], place)
    _draw_steps(axes, look.anywhere.sample, "random pairs", INK, 0)
    tidy(axes)
    axes.set_xlabel("perceived distance", fontsize=SMALL)
    axes.set_ylabel("share of pairs", fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.set_title(_wrapped(title, 44), fontsize=SMALL + 1, loc="left")
    axes.legend(fontsize=SMALL - 1.5, frameon=False, loc="best")


def _draw_steps(axes: Axes, sample: np.ndarray, label: str, colour: str, place: int) -> None:
    """Curves of equal factors coincide, so later ones are thinner and dashed."""
    dashes: Sequence[str] = ("-", "--", ":")
    if len(sample) > POINTS:
        sample = np.quantile(sample, np.linspace(0, 1, POINTS), method="inverted_cdf")
    axes.ecdf(sample, label=label, color=colour, linestyle=dashes[place % 3], linewidth=1.6)


def _wrapped(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(text.strip(), letters, max_lines=4, placeholder=" ...")) or text
