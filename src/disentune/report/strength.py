"""Scores against the strength of regularisation. Each framework has its own name for it; those that share a name share
a panel."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.analysis.runs import STRENGTHS, USUAL
from disentune.report.canvas import words
from disentune.report.design import Layout, lay_out
from disentune.report.groups import (
    FEWEST_SPREAD,
    MOST_SERIES,
    MOST_TICKS,
    Shown,
    along,
    axes_grid,
    back,
    budgets,
    captioned,
    combined,
    counted,
    draw_dots,
    legend,
    mixture,
    number_axis,
    numbers_of,
    outer_labels_only,
    panel_inches,
    said,
    score_axis,
    shown,
    spread,
    table,
    title_panel,
    titled,
    value_label,
    whole,
)
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.summary import position_key
from disentune.spec.figures import Strength

WEAKENING = ("c_max", "kl_target")
"""Keys that regularise less the larger they are, because they allow more KL."""
ENDS = ".final"
"""A scheduled strength counts by its final value."""
BINS = 8
ASIDE = 0.012
"""Offset between series at the same strength, as a share of the axis, so that no bar hides another."""


def choose(scores: RunScores) -> list[Strength]:
    """Chosen if a strength varies, unless it is already the axis of the summary."""
    keys = set(strength_keys(scores, None).values())
    if not keys or keys == {position_key(scores, scores.scored_design(None))}:
        return []
    trials = _placed(scores, Strength())
    return [] if _layout(scores, Strength(), trials).mixed and not scores.design.sampled else [Strength()]


def draw(figure: Figure, scores: RunScores, spec: Strength) -> Caption:
    trials = _placed(scores, spec)
    layout = _layout(scores, spec, trials)
    trials = trials.assign(series=combined(trials, layout.series), panel=combined(trials, ["key", *layout.panels]))
    series = shown(scores, layout.series, trials["series"], MOST_SERIES)
    trials = trials[trials["series"].isin(series.values)]
    points = [_draw_panel(*panel, series, layout, scores, spec) for panel in _panels(figure, trials, layout)]
    legend(figure, series, trials["series"])
    return _caption(scores, spec, trials, layout, series, pd.concat(points))


def _layout(scores: RunScores, spec: Strength, trials: pd.DataFrame) -> Layout:
    """The strength replaces the keys of all frameworks; each key has its own panels."""
    by_id = trials.set_index("trial_id")
    design = scores.design.with_key("strength", by_id["strength"], set(by_id["key"])).with_key("key", by_id["key"], ())
    found = lay_out(design, "strength", spec.by)
    kept = {name: tuple(key for key in getattr(found, name) if key != "key")
            for name in ("series", "panels", "averaged", "mixed")}  # fmt: skip
    return Layout("strength", **kept)


# ---- which strength


def strength_keys(scores: RunScores, metric: str | None) -> dict[str, str]:
    """The key of the strength for each framework whose trials differ in it; empty if no trial has a number."""
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
    frame = table(scores, spec.metric, ["framework.name", "arm", spec.x, spec.by, *scores.varying, *keys.values()])
    frame = frame.assign(key=spec.x or frame["framework.name"].map(keys).astype(object), strength=float("nan"))
    for key, trials in frame.groupby("key"):
        frame.loc[trials.index, "strength"] = numbers_of(trials[key])
    frame = frame[frame["strength"].notna()]
    if frame.empty:
        missing = f"no trial with a score has a number for {spec.x}" if spec.x else "no framework's strength varies"
        raise NothingToDraw(missing)
    return frame


# ---- drawing


def _panels(figure: Figure, trials: pd.DataFrame, layout: Layout) -> Iterator[tuple[Axes, str, pd.DataFrame]]:
    """Axes, the key of the strength and the trials: the frameworks that share a strength share a panel."""
    keys = ("key", *layout.panels)
    found = sorted(set(trials["panel"]), key=str)
    for axes, value in zip(axes_grid(figure, len(found)), found, strict=True):
        own = trials[trials["panel"] == value]
        if layout.panels:
            shown_value = value[1] if len(keys) == 2 else value[1:]
            title_panel(axes, keys[1:], shown_value, value_label(keys[1:], shown_value), len(own))
        yield axes, own["key"].iloc[0], own


def _draw_panel(
    axes: Axes, key: str, trials: pd.DataFrame, series: Shown, layout: Layout, scores: RunScores, spec: Strength
) -> pd.DataFrame:
    """Draws the trials and their means, and returns the means."""
    figure: Any = axes.figure
    number_axis(axes, trials["strength"], panel_inches(figure, axes))
    trials = trials.assign(place=along(axes, trials["strength"].to_numpy()))
    points = means(whole(trials))[: 0 if layout.mixed else None]
    step = ASIDE * ((trials["place"].max() - trials["place"].min()) or 1.0)
    present = [value for value in series.values if value in set(trials["series"])]
    for number, value in enumerate(present):
        aside, colour = (number - (len(present) - 1) / 2) * step, series.colours[value]
        own = trials[trials["series"] == value]
        draw_dots(axes, back(axes, own["place"].to_numpy() + aside + 0.5 * step * spread(len(own))), own, colour, 4)
        _draw_means(axes, points[points["series"] == value], aside, colour)
    axes.set_xlabel(_name(key) if series.keys else f"{_name(key)} (n = {len(trials)})")
    score_axis(axes, scores, spec.metric)
    outer_labels_only(axes)
    return points


def means(trials: pd.DataFrame) -> pd.DataFrame:
    """`place`, `mean`, `sd` (sample standard deviation, for at least three trials) and `n` for each series and
    strength. Strengths that were drawn at random are binned with equal counts, at the mean of each bin; bins with fewer
    than three trials are not used."""
    binned = trials["place"].nunique() > MOST_TICKS and len(trials) < 3 * trials["place"].nunique()
    least = trials.groupby("series", sort=False).size().min()
    count = int(min(BINS, max(1, least // FEWEST_SPREAD)))
    bins = pd.qcut(trials["place"], count, labels=False, duplicates="drop") if binned else trials["place"]
    groups = trials.assign(bin=bins).sort_values("place").groupby(["series", "bin"], sort=False)
    found = groups.agg(place=("place", "mean"), mean=("value", "mean"), sd=("value", "std"), n=("value", "size"))
    found = found.reset_index().assign(binned=binned)
    found["sd"] = found["sd"].where(found["n"] >= FEWEST_SPREAD)
    return found[found["n"] >= FEWEST_SPREAD] if binned else found


def _draw_means(axes: Axes, points: pd.DataFrame, aside: float, colour: str) -> None:
    if points.empty:
        return
    at = back(axes, points["place"].to_numpy() + aside)
    axes.errorbar(at, points["mean"], points["sd"].fillna(0), color=colour, capsize=3, marker="o", markersize=5,
                  linewidth=1.6, elinewidth=1)  # fmt: skip


# ---- words


def _name(key: str) -> str:
    return f"{words(key.removesuffix(ENDS))} at the end of its schedule" if key.endswith(ENDS) else words(key)


def _caption(
    scores: RunScores, spec: Strength, trials: pd.DataFrame, layout: Layout, series: Shown, points: pd.DataFrame
) -> Caption:
    keys = list(dict.fromkeys(trials["key"]))
    strength = _name(keys[0]) if len(keys) == 1 else "strength of regularisation"
    by = titled([*layout.series, *layout.panels])
    title = f"{said(scores, spec.metric)} against {strength}" + (f", by {by}" if by else "")
    bins = "Strengths differ from trial to trial, so points are bins with about the same number of trials."
    binned = not points.empty and points["binned"].any()
    return captioned(
        title, counted(scores, trials), _bars(points), bins if binned else "", _weaker(keys), mixture(layout, trials),
        budgets(trials, not layout.mixed), series.note, _unswept(scores, spec),
    )  # fmt: skip


def _bars(points: pd.DataFrame) -> str:
    if points.empty:
        return ""
    least, most = points["n"].min(), points["n"].max()
    count = f"{least}" if least == most else f"{least} to {most}"
    bars = f", bars ± one standard deviation of the trials (for at least {FEWEST_SPREAD} trials)"
    means = f"Points are means of {count} trials{bars if most >= FEWEST_SPREAD else ''}."
    return means if most > 1 else "Lines connect single trials."


def _weaker(keys: list[str]) -> str:
    found = [words(key) for key in keys if key.removesuffix(ENDS).rsplit(".", 1)[-1] in WEAKENING]
    return f"A larger {' or '.join(found)} means weaker regularisation." if found else ""


def _unswept(scores: RunScores, spec: Strength) -> str:
    """Frameworks whose strength the sweep does not vary."""
    if spec.x:
        return ""
    every = set(scores.scored(spec.metric, ["framework.name"])["framework.name"])
    left = sorted(every - set(strength_keys(scores, spec.metric)))
    return f"Not shown, because their strength does not vary: {', '.join(left)}." if left else ""


KIND = Kind(
    name="strength",
    question="How does the score change with the strength of regularisation?",
    choose=choose,
    draw=draw,
)
