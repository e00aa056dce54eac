"""Scores against the strength of regularisation. Each framework has its own name for it; those that share a name share
a panel."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.report.canvas import WIDTH, words
from disentune.report.groups import (
    MARGIN,
    MOST_SERIES,
    MOST_TICKS,
    Shown,
    along,
    back,
    captioned,
    counted,
    crossed,
    filled,
    inside,
    legend,
    number_axis,
    numbers_of,
    said,
    score_axis,
    shown,
    spread,
    table,
    varies,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Strength

STRENGTHS: dict[str, tuple[str, ...]] = {
    "ada_gvae": ("beta",),
    "ada_ml_vae": ("beta",),
    "ae": (),
    "annealed_vae": ("c_max", "gamma"),
    "beta_tc_vae": ("beta",),
    "beta_vae": ("beta",),
    "control_vae": ("kl_target",),
    "decomposition_vae": ("beta", "alpha"),
    "dip_vae_i": ("lambda_od", "lambda_d"),
    "dip_vae_ii": ("lambda_od", "lambda_d"),
    "factor_vae": ("gamma",),
    "info_vae": ("lambda_z", "alpha"),
    "pcl": (),
    "slow_vae": ("gamma", "beta"),
}
"""What weighs each framework's regulariser: the first of these that a sweep varies. Of AnnealedVAE it is the capacity,
as in Locatello et al., ICML 2019, where gamma stays at 1000."""
USUAL = ("beta", "gamma", "lambda_od", "lambda_z", "alpha", "c_max", "kl_target", "lambda_d")
"""Of a framework that is not ours."""
WEAKENING = ("c_max", "kl_target")
"""The larger, the weaker: they allow a KL."""
ENDS = ".final"
"""A strength that follows a schedule counts by where it ends."""
BINS = 8
IN_A_ROW = 3
"""Panels."""
ASIDE = 0.012
"""Of the axis, between series at one strength: no bar hides another."""


def choose(scores: RunScores) -> list[Strength]:
    return [Strength()] if strength_keys(scores, None) else []


def draw(figure: Figure, scores: RunScores, spec: Strength) -> Caption:
    trials = _placed(scores, spec)
    by = _by(spec, trials)
    trials = trials.assign(series="" if by is None else filled(trials[by]))
    series = shown(scores, by, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    points = [_draw_panel(panel, series, scores, spec) for panel in _panels(figure, trials)]
    legend(figure, series, trials["series"])
    return _caption(scores, spec, trials, series, pd.concat(points))


# ---- which strength


def strength_keys(scores: RunScores, metric: str | None) -> dict[str, str]:
    """For each framework whose trials differ in a strength, its key; nothing where no trial has a number."""
    own = [key for key in scores.trials if key.startswith("framework.")]
    try:
        frame = scores.scored(metric, own)
    except NothingToDraw:
        return {}
    groups = frame.groupby("framework.name") if own else ()
    found = {str(name): _strength_key(str(name), trials) for name, trials in groups}
    return {name: key for name, key in found.items() if key is not None}


def _strength_key(framework: str, trials: pd.DataFrame) -> str | None:
    plain = [f"framework.{name}" for name in STRENGTHS.get(framework, USUAL)]
    keys = [key for name in plain for key in (name, f"{name}{ENDS}")]
    return next((key for key in keys if key in trials and numbers_of(trials[key]).nunique() > 1), None)


def _placed(scores: RunScores, spec: Strength) -> pd.DataFrame:
    """Trials with their `key` and its value, `strength`."""
    keys = {} if spec.x else strength_keys(scores, spec.metric)
    frame = table(scores, spec.metric, ["framework.name", "arm", spec.x, spec.by, *keys.values()])
    frame = frame.assign(key=spec.x or frame["framework.name"].map(keys).astype(object), strength=float("nan"))
    for key, trials in frame.groupby("key"):
        frame.loc[trials.index, "strength"] = numbers_of(trials[key])
    frame = frame[frame["strength"].notna()]
    if frame.empty:
        missing = f"no trial with a score has a number as {spec.x}" if spec.x else "no strength of a framework varies"
        raise NothingToDraw(missing)
    return frame


def _by(spec: Strength, trials: pd.DataFrame) -> str | None:
    if spec.by or varies(trials, "framework.name"):
        return spec.by or "framework.name"
    return "arm" if crossed(trials, "arm", "strength") else None


# ---- drawing


@dataclass(frozen=True)
class Panel:
    """The frameworks that share a strength."""

    axes: Axes
    key: str
    trials: pd.DataFrame
    inches: float
    """How wide the axes are, about."""


def _panels(figure: Figure, trials: pd.DataFrame) -> Iterator[Panel]:
    keys = list(dict.fromkeys(trials.sort_values("key")["key"]))
    columns, rows = min(IN_A_ROW, len(keys)), ceil(len(keys) / IN_A_ROW)
    width = max(WIDTH, 3.2 * columns)
    if len(keys) > 1:
        figure.set_size_inches(width, 0.8 + 3.0 * rows)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes in grid[len(keys) :]:
        axes.remove()
    for axes, key in zip(grid, keys, strict=False):
        yield Panel(axes, key, trials[trials["key"] == key], (width - MARGIN) / columns)


def _draw_panel(panel: Panel, series: Shown, scores: RunScores, spec: Strength) -> pd.DataFrame:
    """Draws the trials and gives the means, which are also drawn."""
    axes = panel.axes
    number_axis(axes, panel.trials["strength"], panel.inches)
    trials = panel.trials.assign(place=along(axes, panel.trials["strength"].to_numpy()))
    points = means(trials)
    step = ASIDE * ((trials["place"].max() - trials["place"].min()) or 1.0)
    present = [value for value in series.values if value in set(points["series"])]
    for number, value in enumerate(present):
        aside, colour = (number - (len(present) - 1) / 2) * step, series.colours[value]
        _draw_trials(axes, trials[trials["series"] == value], aside, step, colour)
        _draw_means(axes, points[points["series"] == value], aside, colour)
    axes.set_xlabel(_name(panel.key) if series.key else f"{_name(panel.key)} (n = {len(panel.trials)})")
    score_axis(axes, scores, spec.metric)
    if not axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel("")
    return points


def means(trials: pd.DataFrame) -> pd.DataFrame:
    """`place`, `mean`, `sd` (of a sample) and `n` for each series and strength. Strengths that were drawn at random,
    each for a trial or two, are put into bins of equal counts, whose place is their mean."""
    binned = trials["place"].nunique() > MOST_TICKS and len(trials) < 3 * trials["place"].nunique()
    bins = pd.qcut(trials["place"], BINS, labels=False, duplicates="drop") if binned else trials["place"]
    groups = trials.assign(bin=bins).sort_values("place").groupby(["series", "bin"], sort=False)
    found = groups.agg(place=("place", "mean"), mean=("value", "mean"), sd=("value", "std"), n=("value", "size"))
    return found.reset_index().assign(binned=binned)


def _draw_trials(axes: Axes, trials: pd.DataFrame, aside: float, step: float, colour: str) -> None:
    at = back(axes, trials["place"].to_numpy() + aside + 0.5 * step * spread(len(trials)))
    axes.plot(at, trials["value"], "o", color=colour, markersize=3, alpha=0.25, markeredgewidth=0)


def _draw_means(axes: Axes, points: pd.DataFrame, aside: float, colour: str) -> None:
    at = back(axes, points["place"].to_numpy() + aside)
    axes.errorbar(at, points["mean"], points["sd"].fillna(0), color=colour, capsize=3, marker="o", markersize=5,
                  linewidth=1.6, elinewidth=1)  # fmt: skip


# ---- words


def _name(key: str) -> str:
    return f"{words(key.removesuffix(ENDS))} at the end of its schedule" if key.endswith(ENDS) else words(key)


def _caption(scores: RunScores, spec: Strength, trials: pd.DataFrame, series: Shown, points: pd.DataFrame) -> Caption:
    keys = list(dict.fromkeys(trials["key"]))
    strength = _name(keys[0]) if len(keys) == 1 else "strength of regularisation"
    title = f"{said(scores, spec.metric)} against {strength}" + (f", by {words(series.key)}" if series.key else "")
    bins = f"Strengths differ from trial to trial: points stand for up to {BINS} bins of about equally many trials."
    return captioned(title, counted(scores, trials), _bars(points), bins if points["binned"].any() else "",
                     _weaker(keys), inside(scores, trials, ["key", "strength", "series"]), series.note,
                     _unswept(scores, spec))  # fmt: skip


def _bars(points: pd.DataFrame) -> str:
    least, most = points["n"].min(), points["n"].max()
    count = f"{least}" if least == most else f"{least} to {most}"
    means = f"Points are means of {count} trials, bars one standard deviation of the trials to each side."
    return means if most > 1 else "Lines join single trials."


def _weaker(keys: list[str]) -> str:
    found = [words(key) for key in keys if key.removesuffix(ENDS).rsplit(".", 1)[-1] in WEAKENING]
    return f"A larger {' or '.join(found)} regularises less." if found else ""


def _unswept(scores: RunScores, spec: Strength) -> str:
    """Frameworks of which the sweep varies no strength."""
    if spec.x:
        return ""
    every = set(scores.scored(spec.metric, ["framework.name"])["framework.name"])
    left = sorted(every - set(strength_keys(scores, spec.metric)))
    return f"Not shown, since no strength of theirs varies: {', '.join(left)}." if left else ""


KIND = Kind(name="strength", choose=choose, draw=draw)
