"""How codes of models with two latents lie together, a panel for each setting: Mathieu et al., ICML 2019, Fig. 3."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.errors import DataError
from disentune.learn.pictures import from_bytes
from disentune.learn.plane import REACH, Plane, aggregate_density, axis
from disentune.report.canvas import GREY, SHADES, words
from disentune.report.groups import Shown, combined, label, listed, shown, whole
from disentune.report.kind import Caption, Kind
from disentune.report.places import refuse_absent
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Density

MOST = 8
"""Values along each side."""
PANEL, MARGIN, HEAD = 1.25, 0.75, 0.6
"""Inches of a panel, of the names at the left and above it."""
SMALL = 7.5
USUAL = {"x": "framework.beta", "y": "framework.alpha"}
PRINTED = {"prior_divergence": "KL", "prior_log_density": "log p"}
"""Numbers of the rows that stand above a panel: means over its trials."""
EXTENT = (-REACH, REACH, -REACH, REACH)


def choose(scores: RunScores) -> list[Density]:
    """Where trials of two latents have pictures."""
    try:
        trials = scores.scored(None, ["model.latents"] if "model.latents" in scores.trials else [])
    except NothingToDraw:
        return []
    flat = trials[trials["model.latents"] == 2] if "model.latents" in trials else trials[:0]
    drawn = any(scores.results.run.trial(trial_id).picture_steps() for trial_id in flat["trial_id"])
    return [Density()] if drawn else []


def draw(figure: Figure, scores: RunScores, spec: Density) -> Caption:
    keys, trials = _asked(scores, spec)
    across, up, cells = _cells(scores, keys, trials)
    if not cells:
        raise NothingToDraw(
            "no trial has pictures of two latents; with `model.latents: 2` and `pictures: {when: last}` in the sweep's "
            "file trials draw them"
        )
    panels = _panels(figure, len(up.values), len(across.values))
    top = max(float(cell.plane.prior.max()) for cell in cells.values())
    for at, axes in np.ndenumerate(panels[:, :-1]):
        _draw_cell(axes, cells.get(at), top)
    _name_panels(panels, [_named(keys[0], x) for x in across.values], [_named(keys[1], y) for y in up.values])
    _draw_prior(panels, [cell.plane.prior for cell in cells.values()], top)
    return Caption(_title(keys), _explained(scores, keys, trials, cells, top))


# ---- which trials


@dataclass(frozen=True)
class _Cell:
    """The trials of one panel, of which the one of the middle score is drawn."""

    plane: Plane
    numbers: str
    trials: int


def _asked(scores: RunScores, spec: Density) -> tuple[list[str | None], pd.DataFrame]:
    """The keys of columns and rows, of which either may be missing, and the trials that ended, with these keys."""
    refuse_absent(scores, [key for key in (spec.x, spec.y) if key])
    frame = whole(scores.scored(spec.metric, ["arm", "seed", *scores.varying, "cut"]))
    keys = [_key(scores, spec.x, "x", [spec.y]), None]
    keys[1] = _key(scores, spec.y, "y", [keys[0]])
    if keys[0] is not None and keys[0] == keys[1]:
        raise NothingToDraw(f"a density needs two different keys, but x and y are both {keys[0]}")
    return keys, frame


def _key(scores: RunScores, named: str | None, side: str, taken: Iterable[str | None]) -> str | None:
    """The named key; else the usual one if it varies between trials, else the next numeric key that does."""
    others = [key for key in scores.design.keys if key in scores.numbers and key not in taken]
    usual = [key for key in (USUAL[side],) if key in others]
    reserved = set(USUAL.values()) - {USUAL[side]}
    return named or next(iter([*usual, *(key for key in others if key not in reserved)]), None)


def _cells(scores: RunScores, keys: list[str | None], trials: pd.DataFrame) -> tuple[Shown, Shown, dict[Any, _Cell]]:
    """The values along columns and rows, and by row and column the cells that can be drawn."""
    columns = [combined(trials, [key] if key else []) for key in keys]
    across, up = (
        shown(scores, [key] if key else [], column, MOST) for key, column in zip(keys, columns, strict=True)
    )  # fmt: skip
    places = ((i, j, y, x) for i, y in enumerate(up.values) for j, x in enumerate(across.values))
    found = {(i, j): _cell(scores, trials[(columns[1] == y) & (columns[0] == x)]) for i, j, y, x in places}
    return across, up, {at: cell for at, cell in found.items() if cell}


def _cell(scores: RunScores, trials: pd.DataFrame) -> _Cell | None:
    """One panel; None if none of its trials has such pictures."""
    planes = {trial_id: plane for trial_id in trials["trial_id"] if (plane := _plane(scores, trial_id)) is not None}
    ranked = trials[trials["trial_id"].isin(planes)].sort_values(["value", "trial_id"], kind="stable")
    if ranked.empty:
        return None
    middle = ranked["trial_id"].iloc[(len(ranked) - 1) // 2]
    return _Cell(planes[middle], _numbers(scores, ranked["trial_id"]), len(ranked))


def _plane(scores: RunScores, trial_id: str) -> Plane | None:
    """The plane in the trial's newest pictures."""
    folder = scores.results.run.trial(trial_id)
    steps = folder.picture_steps()
    data = folder.read_pictures(max(steps)) if steps else None
    try:
        plane = from_bytes(data).plane if data is not None else None
    except DataError:
        return None
    return plane if plane is not None and len(plane.means) else None


def _numbers(scores: RunScores, ids: pd.Series) -> str:
    lines = []
    for metric, name in PRINTED.items():
        if metric in scores.metrics:
            values = scores.scored(metric).set_index("trial_id")["value"].reindex(ids).dropna()
            lines += [f"{name} {values.mean():.3g}"] if len(values) else []
    return ", ".join(lines)


# ---- drawing


def _panels(figure: Figure, rows: int, columns: int) -> np.ndarray:
    """(rows, columns + 1): the last column is for the prior."""
    figure.set_size_inches(MARGIN + (columns + 1) * PANEL + 0.3, HEAD + rows * (PANEL + 0.2))
    panels: np.ndarray = figure.subplots(rows, columns + 1, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat:
        axes.set(xticks=[], yticks=[], xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal")
        axes.spines[:].set_visible(False)
    return panels


def _draw_cell(axes: Axes, cell: _Cell | None, top: float) -> None:
    if cell is None:
        axes.set_visible(False)
        return
    _draw_density(axes, aggregate_density(cell.plane), top)
    _draw_outline(axes, cell.plane.prior)
    axes.set_title(cell.numbers, fontsize=SMALL, color=GREY, pad=3)


def _draw_density(axes: Axes, density: np.ndarray, top: float) -> None:
    axes.imshow(density, cmap=SHADES, vmin=0, vmax=top, extent=EXTENT, origin="lower", interpolation="nearest")


def _draw_outline(axes: Axes, prior: np.ndarray) -> None:
    """Where the prior has half of its largest density."""
    density = prior.astype(np.float64)
    if density.min() < density.max() / 2:
        axes.contour(axis(), axis(), density, levels=[density.max() / 2], colors="white", linewidths=0.6)


def _name_panels(panels: np.ndarray, columns: list[str], rows: list[str]) -> None:
    for axes, text in zip(panels[-1], columns, strict=False):
        axes.set_xlabel(text, fontsize=SMALL + 1)
    for axes, text in zip(panels[:, 0], rows, strict=True):
        axes.set_ylabel(text, fontsize=SMALL + 1)


def _draw_prior(panels: np.ndarray, priors: list[np.ndarray], top: float) -> None:
    """Beside the other panels, in their middle row, where all have the same one."""
    same = all(np.array_equal(prior, priors[0]) for prior in priors)
    middle = (len(panels) - 1) // 2
    for row, axes in enumerate(panels[:, -1]):
        if same and row == middle:
            _draw_density(axes, priors[0].astype(np.float64), top)
            axes.set_title("prior", fontsize=SMALL, color=GREY, pad=3)
        else:
            axes.set_visible(False)


# ---- words


def _named(key: str | None, value: Any) -> str:
    return f"{words(key)} {label(value)}" if key else ""


def _title(keys: list[str | None]) -> str:
    named = [words(key) for key in keys if key]
    return f"Density of all codes{' by ' if named else ''}{' and '.join(named)}"


def _explained(
    scores: RunScores, keys: list[str | None], trials: pd.DataFrame, found: dict[Any, _Cell], top: float
) -> str:
    hidden = scores.design.of(trials["trial_id"]).hidden(keys)
    most = max(cell.trials for cell in found.values())
    parts = [
        "Each panel: the aggregate posterior, the mean of q(z|x) over up to 1,000 points of the data, on 300 x 300 "
        f"points of [-2, 2]^2; colours go from 0 to {top:.2g}, the prior's largest density, in every panel.",
        "White line: where the prior has half of it.",
        f"Of the {most} trials of a panel, the one of the middle {words(scores.objective.metric)} is drawn."
        if most > 1 else "",
        f"Trials of one panel also differ in {listed(hidden)}." if hidden else "",
        "Above it, means over its trials: KL of the aggregate posterior from the prior (KL(p || q)) and log-density of "
        "the codes under the prior, in nats." if any(cell.numbers for cell in found.values()) else "",
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


KIND = Kind(
    name="density",
    question="Do the codes of all images together lie as the prior asks?",
    choose=choose,
    draw=draw,
)
