"""One picture of a sweep: what came out, and how it got there."""

import io
import textwrap
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.optimize import isotonic_regression

from disentune.files.storage import Place
from disentune.files.writing import write_atomically
from disentune.report.canvas import GREY, PALETTE, log_where_wide, tidy, words
from disentune.results.tables import Results, values, varying_keys
from disentune.spec.settings import Objective

LINES = ("-", "--", ":", "-.")
MOST_LABELS = 14
MOST_INSIDE = 7
"""Entries of a legend that leave room for the picture."""
MOST_LINES = 300
"""Lines of single trials; more of them are only a blot."""


@dataclass(frozen=True)
class Look:
    """What stands for what: position, colour, and the trials with their values."""

    results: Results
    objective: Objective

    @cached_property
    def free_keys(self) -> list[str]:
        """Keys that vary inside an arm; those that an arm fixes are told by its name."""
        found = [varying_keys(trials) for _, trials in self.results.trials.groupby("arm")]
        return list(dict.fromkeys(key for keys in found for key in keys))

    @cached_property
    def position_key(self) -> str | None:
        """The one number that the sweep varies, if there is just one; else arms are the positions."""
        numeric = [key for key in self.free_keys if _is_number(self.results.trials[key])]
        return numeric[0] if len(numeric) == 1 else None

    @cached_property
    def trials(self) -> pd.DataFrame:
        """trial_id, arm, series (gets a colour), position, value; trials without a number left out."""
        trials = self.results.trials
        at = "last" if self.objective.at == "last" else self.objective.mode
        has_metric = self.objective.metric in self.results.rows
        position = trials["arm"] if self.position_key is None else trials[self.position_key]
        frame = trials[["trial_id", "arm"]].assign(
            series=self._series(),
            position=position,
            value=values(self.results, self.objective.metric, at) if has_metric else np.nan,
        )
        return frame.dropna(subset=["position"])

    def _series(self) -> pd.Series:
        trials = self.results.trials
        keys = [key for key in self.free_keys if not _is_number(trials[key])]
        if self.position_key is not None and trials["arm"].nunique() > 1:
            keys = ["arm", *keys]
        return trials[keys].apply(lambda row: " · ".join(str(value) for value in row if pd.notna(value)), axis=1)

    @cached_property
    def arms(self) -> list[str]:
        """In the order of the sweep's file, then those that share trials."""
        written = list(self.results.run.sweep().arms)
        present = sorted(set(self.results.trials["arm"]))
        return [arm for arm in written if arm in present] + [arm for arm in present if arm not in written]

    @cached_property
    def colours(self) -> dict[str, str]:
        names = sorted(set(self.trials["series"]))
        return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}

    @property
    def metric(self) -> str:
        return self.objective.metric


def summary_figure(results: Results, objective: Objective, path: Place) -> None:
    """Writes a PNG: left the outcome of every trial, right the objective over the steps."""
    look = Look(results, objective)
    figure = Figure(figsize=(12, 6), dpi=150, layout="constrained")
    outcome, course = figure.subplots(1, 2, sharey=objective.at == "last")
    figure.suptitle(_title(results), x=0.01, ha="left", fontsize=14, fontweight="bold", parse_math=False)
    _draw_outcome(outcome, look)
    _draw_course(course, look)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, drawn.getvalue())


def _is_number(column: pd.Series) -> bool:
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def _title(results: Results) -> str:
    return textwrap.fill(results.run.sweep().question or results.run.name, 90)


# ---- outcome


def _draw_outcome(axes: Axes, look: Look) -> None:
    if look.trials["value"].notna().sum() == 0:
        axes.text(0.5, 0.5, f"no trial has reported {words(look.metric)} yet", ha="center", transform=axes.transAxes)
    elif look.position_key is None:
        _draw_arms(axes, look)
    else:
        _draw_against_number(axes, look)
    when = "at the last step" if look.objective.at == "last" else "at its best step"
    better = "higher" if look.objective.mode == "max" else "lower"
    axes.set_ylabel(f"{words(look.metric)} ({better} is better)")
    axes.set_title(f"Outcome {when}: a dot a trial, {_meaning_of_line(look)}", loc="left", fontsize=10, color=GREY)
    _draw_legend(axes, look)
    tidy(axes)
    axes.yaxis.set_tick_params(labelleft=True)


def _draw_legend(axes: Axes, look: Look) -> None:
    """In the picture while it is small, else below it."""
    if len(look.colours) > MOST_INSIDE:
        axes.get_figure().legend(frameon=False, loc="outside lower left", ncols=5)  # type: ignore[union-attr]
    elif len(look.colours) > 1:
        axes.legend(frameon=False, title=None)


def _meaning_of_line(look: Look) -> str:
    return "a bar their mean" if look.position_key is None else "lines mean ± sd"


def _draw_arms(axes: Axes, look: Look) -> None:
    """One place an arm, the series that it has side by side in it."""
    unnamed = set(look.colours) - {""}
    for place, arm in enumerate(look.arms):
        trials = look.trials[look.trials["arm"] == arm].dropna(subset=["value"])
        inside = [series for series in look.colours if series in set(trials["series"])]
        width = 0.8 / max(1, len(inside))
        for i, series in enumerate(inside):
            centre = place + (i - (len(inside) - 1) / 2) * width
            numbers = trials[trials["series"] == series]["value"].to_numpy()
            _draw_group(axes, centre, width, numbers, look.colours[series], series if series in unnamed else None)
            unnamed.discard(series)
    tilted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(look.arms) > 6 else {}
    axes.set_xticks(range(len(look.arms)), look.arms, **tilted)
    axes.set_xlim(-0.6, len(look.arms) - 0.4)


def _draw_group(axes: Axes, centre: float, width: float, numbers: np.ndarray, colour: str, label: str | None) -> None:
    spread = np.linspace(-0.25, 0.25, len(numbers)) * width if len(numbers) > 1 else np.zeros(1)
    mean = numbers.mean()
    axes.bar(centre, mean, 0.85 * width, color=colour, alpha=0.25, linewidth=0)
    axes.hlines(mean, centre - 0.425 * width, centre + 0.425 * width, color=colour, linewidth=2)
    axes.plot(centre + spread, numbers, "o", color=colour, markersize=5, alpha=0.9, label=label)
    highest = max(mean, numbers.max())
    axes.annotate(f"{mean:.2g}", (centre, highest), (0, 6), textcoords="offset points", ha="center", color=colour)


def _draw_against_number(axes: Axes, look: Look) -> None:
    assert look.position_key is not None
    for series, colour in look.colours.items():
        trials = look.trials[look.trials["series"] == series].dropna(subset=["value"])
        axes.plot(trials["position"], trials["value"], "o", color=colour, markersize=4, alpha=0.35)
        means = trials.groupby("position")["value"].agg(["mean", "std"]).fillna(0)
        axes.errorbar(means.index, means["mean"], means["std"], color=colour, capsize=3, marker="_", label=series)
    log_where_wide(axes, [*look.trials["position"].astype(float)])
    axes.set_xlabel(words(look.position_key))


# ---- course


@dataclass(frozen=True)
class Curve:
    """The trials that differ by seed only, and how they are drawn."""

    label: str
    trials: set[str]
    colour: Any
    line: str


def _curves(look: Look) -> Iterator[Curve]:
    places: list[Any] = look.arms if look.position_key is None else sorted(set(look.trials["position"]))
    for (series, place), group in look.trials.groupby(["series", "position"], sort=True):
        rank, colour = places.index(place), look.colours[series]
        if look.position_key is None:
            yield Curve(str(place), set(group["trial_id"]), colour, LINES[rank % len(LINES)])
        else:
            label = f"{words(look.position_key)} {place:g}"
            yield Curve(label, set(group["trial_id"]), _paled(colour, 1 - (rank + 1) / len(places)), "-")


def _paled(colour: str, share: float) -> tuple[float, ...]:
    """Towards white, but never so far that it cannot be seen."""
    return tuple(part + (1 - part) * 0.7 * share for part in to_rgb(colour))


def _draw_course(axes: Axes, look: Look) -> None:
    rows = look.results.rows
    ends: list[tuple[float, float, Curve]] = []
    if look.metric in rows:
        rows = rows[["trial_id", "step", look.metric]].dropna()
        for curve in _curves(look):
            ends += _draw_curve(axes, rows[rows["trial_id"].isin(curve.trials)], curve, len(look.trials) <= MOST_LINES)
    if 1 < len(ends) <= MOST_LABELS:
        _label_ends(axes, ends)
    axes.set_xlabel("training step")
    axes.set_title("Course: the mean of each group, each trial in light", loc="left", fontsize=10, color=GREY)
    tidy(axes)
    axes.yaxis.set_tick_params(labelleft=True)


def _draw_curve(axes: Axes, rows: pd.DataFrame, curve: Curve, each: bool) -> list[tuple[float, float, Curve]]:
    """Where the curve ends: nothing when it has no rows."""
    if rows.empty:
        return []
    metric: Hashable = rows.columns[-1]
    for _, trial in rows.groupby("trial_id") if each else ():
        axes.plot(trial["step"], trial[metric], color=curve.colour, alpha=0.25, linewidth=0.8)
    mean = rows.groupby("step")[metric].mean()
    marker = "o" if len(mean) == 1 else None
    axes.plot(mean.index, mean, curve.line, color=curve.colour, linewidth=2, marker=marker)
    return [(float(mean.index[-1]), float(mean.iloc[-1]), curve)]


def _label_ends(axes: Axes, ends: list[tuple[float, float, Curve]]) -> None:
    """Each curve's name beside its end, moved apart where ends are close."""
    ends = sorted(ends, key=lambda end: end[1])
    low, high = axes.get_ylim()
    heights = _apart([end[1] for end in ends], 0.042 * (high - low), low, high)
    for (step, value, curve), height in zip(ends, heights, strict=True):
        axes.annotate(
            curve.label, (step, value), (1.03, height), xycoords="data",
            textcoords=axes.get_yaxis_transform(), color=curve.colour, va="center", fontsize=9,
            arrowprops={"arrowstyle": "-", "color": curve.colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _apart(heights: list[float], gap: float, low: float, high: float) -> np.ndarray:
    """Sorted heights at least a gap apart, moved as little as can be (least squares), between low and high."""
    steps = gap * np.arange(len(heights))
    nearest = isotonic_regression(np.array(heights) - steps).x
    found: np.ndarray = np.clip(nearest, low, max(low, high - steps[-1])) + steps
    return found
