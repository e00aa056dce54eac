"""Pictures of the best and the worst trial: Michlo et al., IJCAI 2023, Figs. 4, 7 and 10."""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.errors import DataError, first_line
from disentune.learn.pictures import COLUMNS, GAP, Pictures, from_bytes, latent_labels, mosaic
from disentune.learn.plane import REACH, Plane, aggregate_density
from disentune.report.canvas import GREY, INK, PALETTE, SHADES, words
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.runs.trial_folder import FINISHED, TrialFolder
from disentune.spec import figures

WIDTH = 8.0
"""Inches, like all sizes below."""
IMAGE, PANEL, PLANE = 0.38, 0.66, 1.4
LABELS, HEADING, LINE, SPACE = 0.72, 0.24, 0.17, 0.22
"""Space for row names on the left, for a heading, for a line of a title, and between parts."""
SIDE = 96
"""Pixels of an image before it is scaled to fit, so that pixels of small images stay square."""
SMALL = 8.0
"""Font size in points of all text except titles."""
TITLE_LETTERS, NAME_LETTERS = 130, 11
HEADERS = dict(zip(COLUMNS, ("factor", "x", "z", "KL", "x recon"), strict=True))


# ---- which trials


@dataclass(frozen=True)
class _Shown:
    """A trial with its pictures."""

    role: str
    score: str
    values: str
    """The values of the keys that distinguish it from other trials."""
    pictures: Pictures


def choose(scores: RunScores) -> list[figures.PicturesFigure]:
    try:
        trials = _trials(scores, figures.PicturesFigure())
    except NothingToDraw:
        return []
    drawn = any(scores.results.run.trial(trial["trial_id"]).picture_steps() for _, trial in trials)
    return [figures.PicturesFigure()] if drawn else []


def draw(figure: Figure, scores: RunScores, spec: figures.PicturesFigure) -> Caption:
    shown, missing = [], []
    for role, trial in _trials(scores, spec):
        try:
            shown.append(_shown(scores, spec.metric, role, trial))
        except NothingToDraw as reason:
            missing.append(str(reason))
    if not shown:
        raise NothingToDraw("; ".join(dict.fromkeys(missing)))
    _draw_trials(figure, shown)
    return _caption(shown, missing)


def ranked(scores: RunScores, metric: str | None) -> pd.DataFrame:
    """Finished trials, the best first; without those stopped early if two trained to their end. Raises NothingToDraw
    if there are none."""
    keys = ["status", "cut", "arm", "seed", *scores.varying]
    frame = scores.scored(metric, keys)
    frame = frame[frame["status"].isin(FINISHED)]
    if frame.empty:
        raise NothingToDraw("no trial has finished yet")
    whole = frame[~frame["cut"].astype(bool)]
    frame = whole if len(whole) > 1 else frame
    smallest_first = scores.better(metric) == "lower is better"
    return frame.sort_values("value", ascending=smallest_first, kind="stable")


def _trials(scores: RunScores, spec: figures.PicturesFigure) -> list[tuple[str, pd.Series]]:
    """The trials that the spec requests, each with its role; a single trial is not also the worst."""
    frame = ranked(scores, spec.metric)
    if len(frame) == 1:
        return [("only", frame.iloc[0])]
    ends = {"best": frame.iloc[0], "worst": frame.iloc[-1]}
    return [(role, trial) for role, trial in ends.items() if spec.trial in (role, "both")]


def _shown(scores: RunScores, metric: str | None, role: str, trial: pd.Series) -> _Shown:
    """Raises NothingToDraw if it has no pictures, or damaged ones."""
    step, pictures = pictures_of(scores, metric, trial)
    return _Shown(role, _score(scores, metric, trial), _values(scores, trial, step), pictures)


def pictures_of(scores: RunScores, metric: str | None, trial: pd.Series) -> tuple[int, Pictures]:
    """The step and the pictures of a trial. Raises NothingToDraw if it has no pictures, or damaged ones."""
    folder = scores.results.run.trial(trial["trial_id"])
    step = _step(scores, metric or scores.objective.metric, trial, folder)
    data = None if step is None else folder.read_pictures(step)
    if step is None or data is None:
        raise NothingToDraw(_reason(folder))
    try:
        return step, from_bytes(data)
    except DataError as error:
        raise NothingToDraw(f"pictures of trial {folder.id} at step {step} cannot be read: {error}") from None


def _step(scores: RunScores, metric: str, trial: pd.Series, folder: TrialFolder) -> int | None:
    """The newest pictures up to the row of the score; else the first ones."""
    steps = folder.picture_steps()
    rows = next(record.rows for record in scores.results.records if record.trial_id == folder.id)
    scored = [row["step"] for row in rows if row["metrics"].get(metric) == trial["value"]]
    at = scored[0] if scores.objective.at == "best" else scored[-1]
    return max((step for step in steps if step <= at), default=next(iter(steps), None))


def _reason(folder: TrialFolder) -> str:
    if failure := folder.pictures_failure():
        where = folder.pictures_failure_path
        named = "/".join(where.parts[-4:])
        return f"trial {folder.id}: {first_line(failure)}; see {named} for the full error"
    return (
        f"trial {folder.id} was trained without pictures; to draw them, set `pictures: {{when: evaluations}}` "
        "in the sweep file"
    )


# ---- words


def _score(scores: RunScores, metric: str | None, trial: pd.Series) -> str:
    return f"{words(metric or scores.objective.metric)} {trial['value']:.3g} ({scores.better(metric)})"


def _values(scores: RunScores, trial: pd.Series, step: int) -> str:
    keys = [*(["arm"] if scores.trials["arm"].nunique() > 1 else []), *scores.varying, "seed"]
    values = [f"{words(key)} {_text(trial[key])}" for key in keys if pd.notna(trial[key])]
    return " · ".join([trial["trial_id"], *values, f"step {step:,}"])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


NEVER = ", and the same of images that training never draws"


def _caption(shown: list[_Shown], missing: list[str]) -> Caption:
    who = " and the ".join(trial.role for trial in shown)
    parts = []
    cut = any(trial.pictures.outside is not None for trial in shown)
    if any(len(trial.pictures.originals) for trial in shown):
        parts.append(
            f"Left: images (the same for all trials of a data set), with their reconstructions below{NEVER * cut}; "
            "then the first image while one latent moves from the smallest to the largest mean of a fixed sample; "
            "latents with the largest KL to the prior (nats, in brackets) come first."
        )
    if any(len(trial.pictures.plane.points) for trial in shown):
        parts.append(
            "Left: the points of the data, coloured by their first factor; the means of their posteriors over the "
            "density of all posteriors together, on [-2, 2]^2 where there are two latents; and the decoded means."
        )
    if any(trial.pictures.distances for trial in shown):
        parts.append(
            "Matrices: distances between the images of random traversals of each factor, averaged; light is far, each "
            "with its own scale: of the factor's values, of images by the reconstruction loss (x), of codes (z, "
            "Euclidean), of posteriors (symmetric KL), of reconstructions by the loss (x recon)."
        )
    return Caption(f"Pictures of the {who} trial", " ".join([*parts, *_noted(missing)]))


def _noted(missing: list[str]) -> list[str]:
    return [f"Not shown: {reason}." for reason in dict.fromkeys(missing)]


# ---- drawing


@dataclass(frozen=True)
class _Page:
    """A figure with fixed positions: (left, top, width, height) in inches from its upper left corner."""

    figure: Figure
    height: float

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        axes = self.figure.add_axes(
            (left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height)
        )
        axes.spines[:].set_visible(False)
        axes.patch.set_visible(False)
        axes.tick_params(length=0, pad=3, labelsize=SMALL)
        return axes

    def text(self, left: float, top: float, text: str, **how: Any) -> None:
        self.figure.text(left / WIDTH, 1 - top / self.height, text, va="top", **how)


def _draw_trials(figure: Figure, shown: list[_Shown]) -> None:
    heights = [_height(trial) for trial in shown]
    page = _Page(figure, sum(heights) + SPACE * (len(shown) - 1))
    figure.set_layout_engine("none")
    figure.set_size_inches(WIDTH, page.height)
    top = 0.0
    for trial, height in zip(shown, heights, strict=True):
        _draw_trial(page, trial, top)
        top += height + SPACE


def _lines(trial: _Shown) -> list[str]:
    return textwrap.wrap(trial.values, TITLE_LETTERS, max_lines=4, placeholder=" ...")


def _height(trial: _Shown) -> float:
    pictures = trial.pictures
    rows = len(_reconstructed(pictures)) + len(pictures.traversals)
    images = 2 * (HEADING + SPACE / 2) + rows * IMAGE if len(pictures.originals) else 0.0
    images = HEADING + PLANE if len(pictures.plane.points) else images
    panels = 2 * HEADING + len(pictures.distances) * PANEL
    return _title_height(trial) + max(images, panels) + 0.08


def _title_height(trial: _Shown) -> float:
    return 0.28 + LINE * (len(_lines(trial)) + 0.3)


def _draw_trial(page: _Page, trial: _Shown, top: float) -> None:
    pictures = trial.pictures
    page.text(0.05, top + 0.05, f"{trial.role.capitalize()} trial: {trial.score}", fontweight="bold", fontsize=10)
    page.text(0.05, top + 0.28, "\n".join(_lines(trial)), fontsize=SMALL, color=GREY)
    top += _title_height(trial)
    if len(pictures.originals):
        _draw_reconstructions(page, pictures, top)
        _draw_traversals(page, pictures, top + HEADING + SPACE + len(_reconstructed(pictures)) * IMAGE)
    if len(pictures.plane.points):
        _draw_plane(page, pictures.plane, top)
    if pictures.distances:
        _draw_distances(page, pictures, top)


def _draw_plane(page: _Page, plane: Plane, top: float) -> None:
    """Data, codes and reconstructions side by side."""
    both = np.concatenate([plane.points, plane.decoded]).astype(np.float64)
    room = 0.05 * np.ptp(both, axis=0) + 1e-9
    frame = np.stack([both.min(axis=0) - room, both.max(axis=0) + room])
    square = np.array([[-REACH] * 2, [REACH] * 2])
    panels = [("Data", plane.points, frame), ("Codes", plane.means, square), ("Decoded", plane.decoded, frame)]
    for place, (name, points, ends) in enumerate(panel for panel in panels if len(panel[1])):
        left = 0.1 + place * (PLANE + 0.1)
        _heading(page, left, top, name)
        axes = page.axes(left, top + HEADING, PLANE, PLANE)
        if name == "Codes":
            extent = (-REACH, REACH, -REACH, REACH)
            density, most = aggregate_density(plane), float(plane.prior.max())
            axes.imshow(density, cmap=SHADES, vmin=0, vmax=most, extent=extent, origin="lower", aspect="auto")
        _draw_points(axes, points, plane.labels)
        axes.set(xlim=ends[:, 0], ylim=ends[:, 1], xticks=[], yticks=[])


def _draw_points(axes: Axes, points: np.ndarray, labels: np.ndarray) -> None:
    for label in np.unique(labels):
        colour = PALETTE[label % len(PALETTE)]
        axes.plot(*points[labels == label].T, ".", markersize=1.6, markeredgewidth=0, color=colour)


def _heading(page: _Page, left: float, top: float, text: str) -> None:
    page.text(left, top + 0.04, text, fontsize=SMALL + 1, color=GREY)


def _draw_images(page: _Page, images: np.ndarray, names: list[str], top: float) -> None:
    """Draws images (rows, columns, h, w, c), with a name to the left of each row."""
    rows, columns = images.shape[:2]
    joined = mosaic(images, SIDE)
    axes = page.axes(LABELS, top, columns * IMAGE, rows * IMAGE)
    axes.imshow(joined, aspect="auto")
    apart = (len(joined) + GAP) / rows
    axes.set_yticks([(row + 0.5) * apart - GAP / 2 for row in range(rows)], names)
    axes.set_xticks([])


def _draw_reconstructions(page: _Page, pictures: Pictures, top: float) -> None:
    _heading(page, LABELS, top, "Reconstructions")
    rows = _reconstructed(pictures)
    _draw_images(page, np.stack([images for _, images in rows]), [name for name, _ in rows], top + HEADING)


def _reconstructed(pictures: Pictures) -> list[tuple[str, np.ndarray]]:
    """The rows of reconstructions, each with its name; those of images that training never draws come last."""
    found = [("image", pictures.originals), ("decoded", pictures.reconstructions)]
    outside, again = pictures.outside, pictures.outside_reconstructions
    if outside is not None and again is not None and outside.shape == pictures.originals.shape:
        found += [("never drawn", outside), ("decoded", again)]
    return found


def _draw_traversals(page: _Page, pictures: Pictures, top: float) -> None:
    _heading(page, LABELS, top, "Latent traversals (KL to the prior)")
    _draw_images(page, pictures.traversals, latent_labels(pictures), top + HEADING)


def _draw_distances(page: _Page, pictures: Pictures, top: float) -> None:
    """Draws one plot with a square for each matrix."""
    rows, columns = len(pictures.distances), len(COLUMNS)
    left = WIDTH - columns * PANEL - 0.05
    _heading(page, left, top, "Distances along each factor")
    axes = page.axes(left, top + 2 * HEADING, columns * PANEL, rows * PANEL)
    for row, stack in enumerate(pictures.distances.values()):
        for column, matrix in enumerate(stack):
            _draw_matrix(axes, matrix, row, column)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="auto")
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(columns) + 0.5, list(HEADERS.values()), color=INK)
    axes.set_yticks(np.arange(rows) + 0.5, [_wrapped(words(factor)) for factor in pictures.distances])


def _draw_matrix(axes: Axes, matrix: np.ndarray, row: int, column: int) -> None:
    edges = (column + 0.04, column + 0.96, row + 0.96, row + 0.04)
    axes.imshow(matrix, cmap=SHADES, extent=edges, interpolation="nearest")


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.wrap(name, NAME_LETTERS, max_lines=3, placeholder="..."))


KIND = Kind(
    name="pictures",
    question="Do reconstructions, traversals and distances explain the best and the worst score?",
    choose=choose,
    draw=draw,
)
