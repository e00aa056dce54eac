"""A number over the training steps: mean and spread of the trials that agree in some keys."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.report.canvas import LOG_SPAN, MISSING, PALETTE, WIDTH, tidy, words
from disentune.report.kind import Caption, Kind
from disentune.report.places import Places, places, refuse_absent
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import varying_keys
from disentune.spec.figures import Curves

MOST_GROUPS = 8
MOST_LINES = 60
"""Trials that are also drawn one by one; more are only a blot."""
MOST_STEPS = 400
"""Points of a mean's line, more than a figure has room for."""


@dataclass(frozen=True)
class Course:
    """A group of trials. `each` has a row a trial and a column a step: NaN before its first row and after its last."""

    label: str
    steps: np.ndarray
    each: np.ndarray

    @property
    def trials(self) -> int:
        return len(self.each)

    @property
    def count(self) -> np.ndarray:
        found: np.ndarray = np.isfinite(self.each).sum(axis=0)
        return found

    @property
    def mean(self) -> np.ndarray:
        found: np.ndarray = np.nansum(self.each, axis=0) / self.count
        return found

    @property
    def sd(self) -> np.ndarray:
        """Of a sample; NaN where only one trial is left."""
        squares = np.nansum((self.each - self.mean) ** 2, axis=0)
        found: np.ndarray = np.sqrt(
            np.divide(squares, self.count - 1, out=np.full(len(squares), np.nan), where=self.count > 1)
        )
        return found


def choose(scores: RunScores) -> list[Curves]:
    """The objective's, and the loss's beside it where all trials have the same one: others do not compare."""
    comparable = not any(key.startswith("recon.") or key == "loss_scale" for key in scores.varying)
    metrics = dict.fromkeys([scores.objective.metric, *(["loss"] if comparable else [])])
    return [Curves(metric=metric) for metric in metrics if _is_course(scores, metric)]


def draw(figure: Figure, scores: RunScores, spec: Curves) -> Caption:
    metric = spec.metric or scores.objective.metric
    rows = _rows(scores, metric)
    groups = _groups(scores, rows, _keys(scores, spec.by))
    courses = [_course(label, some) for label, some in groups.shown]
    axes = figure.subplots()
    _draw_courses(axes, courses)
    _label(axes, scores, metric, courses)
    _legend(figure, axes, courses)
    return Caption(f"{words(metric)} during training", _explained(scores, courses, groups))


# ---- rows


def _is_course(scores: RunScores, metric: str) -> bool:
    try:
        return bool(_rows(scores, metric)["step"].nunique() > 1)
    except NothingToDraw:
        return False


def _rows(scores: RunScores, metric: str) -> pd.DataFrame:
    """trial_id, step, value, in the order of the steps; without failed trials and without rows that have no number."""
    rows = scores.results.rows
    if metric not in rows or metric in ("trial_id", "step"):
        raise NothingToDraw(f"no trial has reported {metric} yet")
    kept = rows[rows["trial_id"].isin(scores.trials["trial_id"]) & np.isfinite(rows[metric])]
    if kept.empty:
        raise NothingToDraw(f"no trial has reported {metric} yet")
    return kept[["trial_id", "step"]].assign(value=kept[metric]).sort_values(["trial_id", "step"], ignore_index=True)


def _keys(scores: RunScores, by: str | None) -> list[str]:
    """What is named; else the arm and the names that vary inside arms; else the one number that varies."""
    if by:
        refuse_absent(scores, [by])
        return [by]
    trials = scores.trials
    free = {key for _, arm in trials.groupby("arm") for key in varying_keys(arm)}
    names = [key for key in scores.names if key in free]
    keys = ["arm", *names] if trials["arm"].nunique() > 1 else names
    few = [key for key in scores.numbers if trials[key].nunique() <= MOST_GROUPS]
    return keys or (few if len(scores.numbers) == 1 else [])


@dataclass(frozen=True)
class _Groups:
    """Labels with the rows of their trials, in the order of the keys' values; `found` counts those left out too."""

    shown: list[tuple[str, pd.DataFrame]]
    found: int
    notes: list[str]


def _groups(scores: RunScores, rows: pd.DataFrame, keys: list[str]) -> _Groups:
    """Those with most trials."""
    trials = scores.trials[scores.trials["trial_id"].isin(rows["trial_id"])]
    divided = [places(scores, key, trials[key]) for key in keys]
    codes = [tuple(some.codes[i] for some in divided) for i in range(len(trials))]
    counts = Counter(code for code in codes if -1 not in code)
    kept = sorted(sorted(counts, key=lambda code: (-counts[code], code))[:MOST_GROUPS])
    members = pd.Series(codes, index=trials["trial_id"], dtype=object)
    shown = [(_name(scores, divided, code), _of(rows, members, code)) for code in kept]
    return _Groups(shown, len(counts), [some.note for some in divided])


def _of(rows: pd.DataFrame, members: pd.Series, code: tuple[int, ...]) -> pd.DataFrame:
    return rows[rows["trial_id"].isin(members.index[[member == code for member in members]])]


def _name(scores: RunScores, divided: list[Places], code: tuple[int, ...]) -> str:
    """A name says what it is; a number or a truth is told with its key."""
    pairs = [(some.key, some.labels[place]) for some, place in zip(divided, code, strict=True)]
    alone = [key == "arm" or (key.endswith(".name") and label != MISSING) for key, label in pairs]
    return " · ".join(
        label if plain else f"{words(key)} {label}" for (key, label), plain in zip(pairs, alone, strict=True)
    )


def _course(label: str, rows: pd.DataFrame) -> Course:
    """Trials may have reported at different steps: between its own rows each is taken as a straight line."""
    steps = np.unique(rows["step"])
    if len(steps) > MOST_STEPS:
        steps = steps[np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)]
    each = [
        np.interp(steps, trial["step"], trial["value"], left=np.nan, right=np.nan)
        for _, trial in rows.groupby("trial_id")
    ]
    return Course(label, steps, np.array(each))


# ---- drawing


def _draw_courses(axes: Axes, courses: list[Course]) -> None:
    """Means over all spreads, so that none is covered."""
    lines = 1 < sum(course.trials for course in courses) <= MOST_LINES
    for course, (colour, _) in zip(courses, _styles(), strict=False):
        _draw_spread(axes, course, colour, lines)
    for course, (colour, line) in zip(courses, _styles(), strict=False):
        marker = "o" if len(course.steps) == 1 else None
        label = f"{course.label} (n = {course.trials})".strip()
        axes.plot(course.steps, course.mean, line, color=colour, linewidth=2, marker=marker, label=label)


def _styles() -> Iterator[tuple[str, str]]:
    """As many as there may be groups: when colours end, dashes tell the lines apart."""
    return ((colour, line) for line in ("-", "--") for colour in PALETTE)


def _draw_spread(axes: Axes, course: Course, colour: str, lines: bool) -> None:
    if lines:
        marker = "." if len(course.steps) == 1 else None
        axes.plot(course.steps, course.each.T, color=colour, linewidth=0.7, alpha=0.35, marker=marker)
    low, high, has_sd = course.mean - course.sd, course.mean + course.sd, np.isfinite(course.sd)
    if len(course.steps) == 1:
        axes.vlines(course.steps[has_sd], low[has_sd], high[has_sd], color=colour, alpha=0.3, linewidth=3)
    else:
        axes.fill_between(course.steps, low, high, where=has_sd, color=colour, alpha=0.15, linewidth=0)


def _label(axes: Axes, scores: RunScores, metric: str, courses: list[Course]) -> None:
    better = scores.better(metric)
    axes.set(xlabel="training step", ylabel=f"{words(metric)} ({better})")
    lowest = min(float(np.nanmin(course.each)) for course in courses)
    highest = max(float(np.nanmax(course.each)) for course in courses)
    if better.startswith("lower") and lowest > 0 and highest > LOG_SPAN * lowest:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.8 * lowest)  # a band may reach below 0, which this axis cannot
    tidy(axes)


def _legend(figure: Figure, axes: Axes, courses: list[Course]) -> None:
    """Below, where long names have room."""
    if len(courses) > 1:
        longest = max(len(course.label) for course in courses)
        columns = int(np.clip(80 // (longest + 12), 1, 3))
        figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center",
                      ncols=columns)  # fmt: skip
        figure.set_size_inches(WIDTH, 4.2 + 0.2 * -(-len(courses) // columns))


def _explained(scores: RunScores, courses: list[Course], groups: _Groups) -> str:
    trials = sum(course.trials for course in courses)
    short = sum(int(np.isnan(course.each[:, -1]).sum()) for course in courses)
    broken = len(scores.results.trials) - len(scores.trials)
    many = f"Line: the mean over n trials{'' if len(courses) > 1 else f' (n = {trials})'}; band: ± a standard deviation"
    parts = [
        f"{many}{'; thin: each trial' if trials <= MOST_LINES else ''}." if trials > 1 else "The only trial (n = 1).",
        f"Trials that end before others of their line ({short}) count only as far as they came." if short else "",
        f"Of {groups.found} groups the {MOST_GROUPS} with most trials are shown." if groups.found > MOST_GROUPS else "",
        *groups.notes,
        f"Left out: trials that failed or diverged ({broken})." if broken else "",
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


KIND = Kind(name="curves", choose=choose, draw=draw)
