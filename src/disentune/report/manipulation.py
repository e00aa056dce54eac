"""What a manipulated data set changes: before, the change magnified, after. Zietlow et al., ICML 2021, Fig. 4."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from disentune.learn.pictures import GAP, Pictures, mosaic
from disentune.report.kind import Caption, Kind
from disentune.report.pictures import pictures_of, ranked
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec import figures

WIDTH, IMAGE, TITLE = 8.0, 0.9, 0.4
"""Inches: of the figure, of an image, and of the room above each data set."""
MIDDLE = 128
"""The grey of no change."""
MOST = 4
"""Data sets that are shown."""


@dataclass(frozen=True)
class Change:
    """Images (n, h, w, c), uint8, of one manipulated data set, and by how much the change is magnified."""

    arm: str
    before: np.ndarray
    magnified: np.ndarray
    after: np.ndarray
    times: float
    largest: int
    """Change of a pixel, of 255 levels."""


def change_of(arm: str, pictures: Pictures, count: int) -> Change:
    """The largest change of these images fills the range of grey."""
    assert pictures.unchanged is not None
    before, after = pictures.unchanged[:count], pictures.originals[:count]
    difference = after.astype(np.int16) - before
    largest = int(np.abs(difference).max(initial=0))
    times = (MIDDLE - 1) / largest if largest else 1.0
    return Change(arm, before, np.rint(MIDDLE + times * difference).astype(np.uint8), after, times, largest)


def choose(scores: RunScores) -> list[figures.ManipulationFigure]:
    try:
        _changes(scores, figures.ManipulationFigure())
    except NothingToDraw:
        return []
    return [figures.ManipulationFigure()]


def draw(figure: Figure, scores: RunScores, spec: figures.ManipulationFigure) -> Caption:
    changes = _changes(scores, spec)
    figure.set_size_inches(WIDTH, len(changes) * (3 * IMAGE + TITLE))
    for axes, change in zip(figure.subplots(len(changes), squeeze=False)[:, 0], changes, strict=True):
        joined = mosaic(np.stack([change.before, change.magnified, change.after]))
        axes.imshow(joined)
        apart = (len(joined) + GAP) / 3
        axes.set_yticks([(row + 0.5) * apart - GAP / 2 for row in range(3)],
                        ["original", f"change x {change.times:.3g}", "result"])  # fmt: skip
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{change.arm}: no pixel shown changes by more than {change.largest / 255:.3g}", fontsize=9)
    text = (
        "Images of each manipulated data set: the original above, the image that trials see below, and between them "
        "the difference, magnified so that the largest one is black or white; grey is no change. Pixels go from 0 to 1."
    )
    return Caption("What the manipulation changes", text)


def _changes(scores: RunScores, spec: figures.ManipulationFigure) -> list[Change]:
    """The change in each arm whose data set is manipulated, from one of its trials. NothingToDraw if there is none."""
    found, reasons = dict[str, Change](), list[str]()
    for _, trial in ranked(scores, spec.metric).iterrows():
        if trial["arm"] in found:
            continue
        try:
            _, pictures = pictures_of(scores, spec.metric, trial)
        except NothingToDraw as reason:
            reasons.append(str(reason))
            continue
        if pictures.unchanged is not None and len(pictures.originals):
            found[trial["arm"]] = change_of(trial["arm"], pictures, spec.images)
    if not found:
        raise NothingToDraw(next(iter(reasons), "no trial was trained on a manipulated data set"))
    return [found[arm] for arm in sorted(found)][:MOST]


KIND = Kind(
    name="manipulation",
    question="What does the manipulation change in the images?",
    choose=choose,
    draw=draw,
)
