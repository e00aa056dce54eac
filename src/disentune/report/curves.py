"""A number over the training steps: mean and spread of the trials that differ by seed only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disentune.report.canvas import LOG_SPAN, PALETTE, tidy, words
from disentune.report.design import Layout, lay_out
from disentune.report.groups import (
    FEWEST_SPREAD,
    Shown,
    combined,
    heighten,
    listed,
    outer_labels_only,
    panelled,
    shown,
    titled,
)
from disentune.report.kind import Caption, Kind
from disentune.report.places import refuse_absent
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.summary import layout_of
from disentune.spec.figures import Curves

MOST_GROUPS = 8
MOST_LINES = 60
"""Up to this many trials are also drawn individually; more would only clutter the figure."""
MOST_STEPS = 400
"""Points of the line of a mean; more would not be visible."""


@dataclass(frozen=True)
class Course:
    """A group of trials. `each` has one row per trial and one column per step: NaN before its first row and after its
    last."""

    label: str
    steps: np.ndarray
    each: np.ndarray

    @property
    def trials(self) -> int:
        return len(self.each)

    @property
    def is_shared(self) -> np.ndarray:
        """Steps at which every trial has a number. A mean over fewer would jump where one of them ends."""
        found: np.ndarray = np.isfinite(self.each).all(axis=0)
        return found

    @property
    def mean(self) -> np.ndarray:
        """NaN where not every trial has a number, as are deviations."""
        found: np.ndarray = self.each.mean(axis=0)
        return found

    @property
    def sd(self) -> np.ndarray:
        """The sample standard deviation; NaN with fewer than three trials."""
        if self.trials < FEWEST_SPREAD:
            return np.full(len(self.steps), np.nan)
        found: np.ndarray = self.each.std(axis=0, ddof=1)
        return found

    @property
    def beyond(self) -> np.ndarray:
        """As `each`, only after the last step that all trials share, and at that step."""
        last = np.flatnonzero(self.is_shared)[-1:]
        return np.where(np.arange(len(self.steps)) >= (last[0] if len(last) else 0), self.each, np.nan)


def choose(scores: RunScores) -> list[Curves]:
    """Curves of the objective if the summary has no room for every group, and of the loss if all trials have the same
    loss, because different losses cannot be compared."""
    comparable = not any(key.startswith("recon.") or key == "loss_scale" for key in scores.varying)
    try:
        told = layout_of(scores, scores.scored_design(None)) is not None
    except NothingToDraw:
        return []
    objective = scores.objective.metric
    metrics = [*([] if told else [objective]), *(["loss"] if comparable and objective != "loss" else [])]
    return [Curves(metric=metric) for metric in metrics if _is_course(scores, metric)]


def draw(figure: Figure, scores: RunScores, spec: Curves) -> Caption:
    metric = spec.metric or scores.objective.metric
    rows = _rows(scores, metric)
    layout = _layout(scores, rows, spec.by)
    trials = scores.trials[scores.trials["trial_id"].isin(rows["trial_id"])]
    trials = trials.assign(series=combined(trials, layout.series))
    series = shown(scores, layout.series, trials["series"], MOST_GROUPS)
    trials = trials[trials["series"].isin(series.values)]
    drawn = []
    for axes, own in panelled(figure, scores, trials, layout.panels):
        courses = list(_courses(rows, own, series))
        _draw_courses(axes, courses, mixed=bool(layout.mixed))
        _label(axes, scores, metric, courses)
        outer_labels_only(axes)
        drawn += courses
    _legend(figure, series, drawn)
    by = titled(layout.shown)
    title = f"{words(metric)} during training" + (f", by {by}" if by else "")
    return Caption(title[0].upper() + title[1:], _explained(scores, drawn, layout, series))


# ---- rows


def _is_course(scores: RunScores, metric: str) -> bool:
    """Whether lines over replicates can be drawn."""
    try:
        rows = _rows(scores, metric)
        return bool(rows["step"].nunique() > 1) and not _layout(scores, rows, None).mixed
    except NothingToDraw:
        return False


def _rows(scores: RunScores, metric: str) -> pd.DataFrame:
    """trial_id, step, value, sorted by step; without failed trials and rows without a number."""
    rows = scores.results.rows
    if metric not in rows or metric in ("trial_id", "step"):
        raise NothingToDraw(f"no trial has reported {metric} yet")
    kept = rows[rows["trial_id"].isin(scores.trials["trial_id"]) & np.isfinite(rows[metric])]
    if kept.empty:
        raise NothingToDraw(f"no trial has reported {metric} yet")
    return kept[["trial_id", "step"]].assign(value=kept[metric]).sort_values(["trial_id", "step"], ignore_index=True)


def _layout(scores: RunScores, rows: pd.DataFrame, by: str | None) -> Layout:
    """Each line is for trials that differ only by seed, unless `by` requests the marginal of a full crossing."""
    if by is not None:
        refuse_absent(scores, [by])
    return lay_out(scores.design.of(rows["trial_id"].unique()), None, by, most_series=MOST_GROUPS)


def _courses(rows: pd.DataFrame, trials: pd.DataFrame, series: Shown) -> Iterator[Course]:
    """Groups in the order of the series, including empty ones, so that colours stay the same."""
    for value, text in zip(series.values, series.labels, strict=True):
        ids = trials["trial_id"][trials["series"] == value]
        yield _course(text, rows[rows["trial_id"].isin(ids)])


def _course(label: str, rows: pd.DataFrame) -> Course:
    """Trials may report at different steps, so each is interpolated linearly between its own rows."""
    steps = np.unique(rows["step"])
    if len(steps) > MOST_STEPS:
        steps = steps[np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)]
    each = [
        np.interp(steps, trial["step"], trial["value"], left=np.nan, right=np.nan)
        for _, trial in rows.groupby("trial_id")
    ]
    return Course(label, steps, np.array(each).reshape(len(each), len(steps)))


# ---- drawing


def _draw_courses(axes: Axes, courses: list[Course], mixed: bool) -> None:
    """Draws means on top of all bands, so that none is hidden. Trials that differ in more than the seed have no
    mean."""
    total = sum(course.trials for course in courses)
    lines = mixed or total <= MOST_LINES
    for course, (colour, _) in zip(courses, _styles(), strict=False):
        if course.trials:
            _draw_spread(axes, course, colour, lines, band=not mixed)
    for course, (colour, line) in zip(courses, _styles(), strict=False):
        if course.trials and not mixed:
            marker = "o" if course.is_shared.sum() == 1 else None
            axes.plot(
                course.steps, course.mean, line, color=colour, linewidth=2, marker=marker, label=course.label or "mean"
            )


def _styles() -> Iterator[tuple[str, str]]:
    """As many line styles as there may be groups: when colours run out, dashes distinguish the lines."""
    return ((colour, line) for line in ("-", "--") for colour in PALETTE)


def _draw_spread(axes: Axes, course: Course, colour: str, lines: bool, band: bool) -> None:
    if lines and (course.trials > 1 or not band):
        marker = "." if len(course.steps) == 1 else None
        axes.plot(course.steps, course.each.T, color=colour, linewidth=0.8, alpha=0.5, marker=marker)
    elif not course.is_shared.all():
        axes.plot(course.steps, course.beyond.T, color=colour, linewidth=0.8, alpha=0.5)
    low, high, has_sd = course.mean - course.sd, course.mean + course.sd, np.isfinite(course.sd)
    if not band or not has_sd.any():
        return
    if has_sd.sum() == 1:
        axes.vlines(course.steps[has_sd], low[has_sd], high[has_sd], color=colour, alpha=0.4, linewidth=3)
    else:
        axes.fill_between(course.steps, low, high, where=has_sd, color=colour, alpha=0.2, linewidth=0)


def _label(axes: Axes, scores: RunScores, metric: str, courses: list[Course]) -> None:
    better, present = scores.better(metric), [course for course in courses if course.trials]
    axes.set(xlabel="training step", ylabel=f"{words(metric)} ({better})")
    lowest = min(float(np.nanmin(course.each)) for course in present)
    highest = max(float(np.nanmax(course.each)) for course in present)
    if better.startswith("lower") and lowest > 0 and highest > LOG_SPAN * lowest:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.8 * lowest)  # a band may reach below 0, which this axis cannot
    tidy(axes)


def _legend(figure: Figure, series: Shown, courses: list[Course]) -> None:
    """A legend below the axes, where there is room for long names; n is the number of trials behind a line."""
    if not series.keys:
        return
    counts = {text: [one.trials for one in courses if one.label == text and one.trials] for text in series.labels}
    texts = [f" {text} (n = {_in_range(some)})" for text, some in counts.items()]
    styles: Any = list(_styles())[: len(texts)]
    handles = [Line2D([], [], color=colour, linestyle=line, linewidth=2) for colour, line in styles]
    columns = int(np.clip(80 // (max(map(len, texts)) + 5), 1, 3))
    figure.legend(handles, texts, frameon=False, fontsize=9, loc="outside lower center", ncols=columns,
                  title=series.title)  # fmt: skip
    heighten(figure, 0.2 * -(-len(texts) // columns) + 0.15)


def _in_range(counts: list[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least} to {most}"


def _explained(scores: RunScores, courses: list[Course], layout: Layout, series: Shown) -> str:
    trials = sum(course.trials for course in courses)
    short = sum(int(np.isnan(course.each[:, -1]).sum()) for course in courses if course.trials and not layout.mixed)
    broken = len(scores.results.trials) - len(scores.trials)
    bands = any(np.isfinite(course.sd).any() for course in courses if course.trials)
    parts = [
        _lines(trials, layout, bands, single=all(course.trials <= 1 for course in courses)),
        f"{short} {'trial ends' if short == 1 else 'trials end'} before others of the same line: means stop there, "
        "so that they compare trials of equal budget, and thin lines continue." if short else "",
        f"The {len(series.values)} of {series.total} groups with the most trials are shown."
        if len(series.values) < series.total else "",
        f"Not shown: trials that failed or diverged ({broken}).".strip() if broken else "",
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


def _lines(trials: int, layout: Layout, bands: bool, single: bool) -> str:
    if trials == 1:
        return "The only trial (n = 1)."
    if single and not layout.mixed:
        return f"Each line is a trial (n = {trials})."
    if layout.mixed:
        return f"Each line is a trial (n = {trials}); they differ in {listed(layout.mixed)}, so no mean is drawn."
    count = "" if layout.series or layout.panels else f" (n = {trials})"
    over = f" that also differ in {listed(layout.averaged)}, a full crossing" if layout.averaged else ""
    band = f"; band: ± one standard deviation (for at least {FEWEST_SPREAD} trials)" if bands else ""
    return f"Line: the mean over n trials{count}{over}{band}{'; thin: each trial' if trials <= MOST_LINES else ''}."


KIND = Kind(
    name="curves",
    question="How does the number develop during training, and has it settled?",
    choose=choose,
    draw=draw,
)
