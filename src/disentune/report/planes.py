"""Two latents that vary together, in the best and the worst trials: Zietlow et al., ICML 2021, Figs. 10 and 11."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from disentune.learn.pictures import mosaic
from disentune.report.canvas import words
from disentune.report.kind import Caption, Kind
from disentune.report.pictures import pictures_of, ranked
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec import figures

WIDTH, PANEL, TITLE = 8.0, 1.9, 0.42
"""Inches: of the figure, of the height of a panel and of the room above it."""
ADVICE = "with `pictures: {when: last, plane: true}` in the sweep's file trials draw it"


@dataclass(frozen=True)
class _Panel:
    """A trial's images of two latents, and the words above them."""

    role: str
    title: str
    image: np.ndarray


def choose(scores: RunScores) -> list[figures.PlanesFigure]:
    try:
        _panels(scores, figures.PlanesFigure())
    except NothingToDraw:
        return []
    return [figures.PlanesFigure()]


def draw(figure: Figure, scores: RunScores, spec: figures.PlanesFigure) -> Caption:
    panels, missing = _panels(scores, spec)
    rows = [[one for one in panels if one.role == role] for role in ("best", "worst")]
    rows = [row for row in rows if row]
    columns = max(map(len, rows))
    figure.set_size_inches(WIDTH, len(rows) * (PANEL * 4 / max(columns, 4) + TITLE))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, line in zip(axes, rows, strict=True):
        for place in row:
            place.set_axis_off()
        for place, panel in zip(row, line, strict=False):
            place.imshow(panel.image)
            place.set_title(panel.title, fontsize=8)
    return _caption(missing)


def _panels(scores: RunScores, spec: figures.PlanesFigure) -> tuple[list[_Panel], list[str]]:
    """Also the reasons why trials are missing. NothingToDraw if all are."""
    panels, missing = list[_Panel](), list[str]()
    for role, trial in _ends(ranked(scores, spec.metric), spec.count):
        try:
            panels.append(_panel(scores, spec.metric, role, trial))
        except NothingToDraw as reason:
            missing.append(str(reason))
    if not panels:
        raise NothingToDraw("; ".join(dict.fromkeys(missing)))
    return panels, missing


def _ends(frame: pd.DataFrame, count: int) -> list[tuple[str, pd.Series]]:
    """The best and the worst trials; with few trials none is both."""
    best = frame.head(min(count, -(-len(frame) // 2)))
    worst = frame.iloc[len(best) :].tail(count).iloc[::-1]
    return [(role, trial) for role, some in (("best", best), ("worst", worst)) for _, trial in some.iterrows()]


def _panel(scores: RunScores, metric: str | None, role: str, trial: pd.Series) -> _Panel:
    _, pictures = pictures_of(scores, metric, trial)
    if pictures.two_latents is None:
        raise NothingToDraw(f"trial {trial['trial_id']} has drawn no plane of two latents; {ADVICE}")
    first, second = pictures.latents[:2]
    score = f"{words(metric or scores.objective.metric)} {trial['value']:.3g}"
    return _Panel(role, f"{role}, {score}\nz{first} down, z{second} right", mosaic(pictures.two_latents))


def _caption(missing: list[str]) -> Caption:
    text = (
        "Upper row: the trials with the best scores; lower row: the worst. Each panel has the first image while two "
        "latents go from the smallest to the largest mean of a fixed sample: the one that comes first in the order of "
        "`pictures.order` from top to bottom, the second from left to right. Where rows and columns change one thing "
        "each, the two latents are disentangled."
    )
    noted = [f"Not shown: {reason}." for reason in dict.fromkeys(missing)]
    return Caption("Two latents of the best and the worst trials", " ".join([text, *noted]))


KIND = Kind(
    name="planes",
    question="Do two latents of the best and the worst trials change one thing each?",
    choose=choose,
    draw=draw,
)
