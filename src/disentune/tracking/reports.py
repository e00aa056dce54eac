"""A W&B Report of a run: its question, its best trials, and the figures of the page as W&B's own panels.

The panels show what was streamed; the tables come from the rows of the run. Without a server, the specification of the
same report is written to a file.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import wandb_workspaces.expr as expr
import wandb_workspaces.reports.v2 as wr

from disentune.environment import without_secrets
from disentune.report.canvas import wants_log, words
from disentune.report.kinds import KINDS
from disentune.report.page import Drawing
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import Results, at_of, objective_or_default, ranked
from disentune.runs.json_files import write_json
from disentune.tracking import summary
from disentune.tracking.connection import HOW_TO_LOG_IN, Connection, own_entity, trouble

BEST = 10
"""Rows in the table of the best trials."""
MOST_ROWS = 30
"""Rows of any other table; the summary run has all of them."""
SHEETS = ("reconstructions", "outside", "traversals", "animation", "distances", "law", "plane")
MEDIA = [f"evaluation/{sheet}" for sheet in SHEETS]
MOST_AXES = 8


# ---- the report


@dataclass(frozen=True)
class Made:
    """Where the report is: `url` at W&B, or the file with its specification and the reason."""

    url: str = ""
    file: str = ""
    reason: str = ""


def make(results: Results, connection: Connection, drawn: Sequence[Drawing] = ()) -> Made:
    """Creates the report at W&B, and the summary run with the figures of the page (`drawn`); if that fails, writes the
    report's specification to the run's folder."""
    reason = trouble(connection) if connection.online else f"no key; {HOW_TO_LOG_IN}"
    if not reason:
        try:
            entity = connection.entity or own_entity(connection)
            with _server(connection.url):
                tables = summary.tables_of(_scores(results))
                summary.send(results.run, connection, tables, drawn)
                saved = _report(results, connection, tables, entity, drawn).save()
            return Made(url=saved.url)
        except Exception as error:  # the client raises all kinds of exceptions
            reason = without_secrets(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]
    path = results.run.wandb_report_path
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, specification(results, connection))
    return Made(file=str(path), reason=reason)


@contextmanager
def _server(url: str) -> Iterator[None]:
    """Sets the server, so that a settings file in the working folder cannot send the key elsewhere."""
    before = os.environ.get("WANDB_BASE_URL")
    os.environ["WANDB_BASE_URL"] = url
    try:
        yield
    finally:
        os.environ.pop("WANDB_BASE_URL")
        if before is not None:
            os.environ["WANDB_BASE_URL"] = before


def specification(results: Results, connection: Connection) -> dict[str, Any]:
    """The report as W&B stores it."""
    model = _report(results, connection, summary.tables_of(_scores(results)))._to_model()
    spec = json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
    return {"title": model.display_name, "description": model.description, "project": connection.project,
            "entity": connection.entity or "", "spec": spec}  # fmt: skip


def _scores(results: Results) -> RunScores:
    return RunScores(results, objective_or_default(results))


def _report(
    results: Results,
    connection: Connection,
    tables: Sequence[summary.SummaryTable],
    entity: str = "",
    drawn: Sequence[Drawing] = (),
) -> wr.Report:
    """Asks the server if there is an entity."""
    scores = _scores(results)
    where: dict[str, Any] = (
        {"entity": entity, "project": connection.project} if entity else {}
    )  # else each run set asks the server
    runs = wr.Runset(name=connection.group, filters=[expr.Metric("Group") == connection.group], **where)
    question = results.run.sweep().question or "The sweep states no question."
    return wr.Report(
        project=connection.project,
        entity=entity or connection.entity or "",
        title=f"disentune {results.run.name}",
        description=question[:250],
        blocks=[
            wr.H1(question),
            wr.P(f"{_counts(results)}. Objective: {scores.objective.metric}, {scores.better(None)}."),
            wr.H2("Best trials"),
            wr.MarkdownBlock(_best_table(scores)),
            *(block for table in tables for block in _table_blocks(table)),
            wr.H2("Figures"),
            wr.PanelGrid(runsets=[runs], panels=_panels(scores)),
            *_page_blocks(results, drawn, where),
        ],
    )


def _counts(results: Results) -> str:
    states = results.trials["status"].value_counts() if len(results.records) else {}
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "no trials yet"


def _best_table(scores: RunScores) -> str:
    objective = scores.objective
    if objective.metric not in scores.results.rows:
        return f"No trial has reported {objective.metric} yet."
    best = ranked(scores.results, objective.metric, objective.mode, at_of(objective)).head(BEST)
    columns = ["trial_id", "arm", "seed", *scores.varying, objective.metric]
    return _markdown(best[columns])


def _table_blocks(table: summary.SummaryTable) -> list[Any]:
    shown, count = table.frame.head(MOST_ROWS), len(table.frame)
    notes = [*table.notes, *([f"{len(shown)} of {count} rows; the summary run has all."] if count > len(shown) else [])]
    return [wr.H2(table.title), wr.MarkdownBlock(_markdown(shown)), *map(wr.P, notes)]


def _page_blocks(results: Results, drawn: Sequence[Drawing], where: dict[str, Any]) -> list[Any]:
    """The figures of the page, which the summary run holds."""
    if not (keys := summary.figure_keys(drawn)):
        return []
    own = wr.Runset(name="summary", filters=[expr.Metric("ID") == summary.id_of(results.run)], **where)
    panel = wr.MediaBrowser(title="Figures of the page", media_keys=keys)
    return [wr.H2("Figures of the page"), wr.PanelGrid(runsets=[own], panels=[panel])]


def _markdown(frame: pd.DataFrame) -> str:
    columns = [str(key) for key in frame]
    rows = [[_cell(value) for value in line] for line in [columns, *frame.itertuples(index=False)]]
    lines = [rows[0], ["---"] * len(columns), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    """The text of a table cell, with everything escaped that would end the cell or start markup."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return "".join(f"\\{sign}" if sign in "|\\`*_[]<>" else sign for sign in text.replace("\n", " "))


# ---- a figure as a panel


def _panels(scores: RunScores) -> list[Any]:
    asked = scores.results.run.sweep().settings.figures
    specs = asked if asked is not None else [spec for kind in KINDS.values() for spec in _chosen(kind.choose, scores)]
    return [panel for spec in specs for panel in PANELS[spec.name](scores, spec)]


def _chosen(choose: Callable[[RunScores], list[Any]], scores: RunScores) -> list[Any]:
    try:
        return choose(scores)
    except NothingToDraw:
        return []


def _metric(scores: RunScores, spec: Any) -> str:
    return spec.metric or scores.objective.metric


def _first(*candidates: str | None) -> str | None:
    return next((key for key in candidates if key), None)


def _name_key(scores: RunScores) -> str:
    known = [key for key in ("framework.name", "dataset.name", "recon.name") if key in scores.names]
    return next(iter([*known, *scores.names]), "arm")


def _is_wide(scores: RunScores, key: str) -> bool:
    """Whether a number needs a logarithmic axis."""
    return key in scores.trials and scores.is_number(key) and wants_log(scores.trials[key].dropna().astype(float))


def _bars(scores: RunScores, spec: Any) -> list[Any]:
    metric = _metric(scores, spec)
    keys = [_first(spec.x, _name_key(scores)), getattr(spec, "split", None) or getattr(spec, "by", None)]
    return [
        wr.BarPlot(
            title=f"{words(metric)} by {words(key)}", metrics=[wr.SummaryMetric(metric)], orientation="v",
            groupby=wr.Config(key), groupby_aggfunc="mean", groupby_rangefunc="stddev",
        )
        for key in dict.fromkeys(filter(None, keys))
    ]  # fmt: skip


def _scatter(scores: RunScores, spec: Any) -> list[Any]:
    metric, x = _metric(scores, spec), _first(spec.x, *scores.numbers)
    if x is None:
        return []
    title = f"{words(metric)} against {words(x)}"
    axes: dict[str, Any] = {"x": wr.Config(x), "y": wr.SummaryMetric(metric), "log_x": _is_wide(scores, x)}
    return [wr.ScatterPlot(title=title, regression=True, **axes)]


def _heat(scores: RunScores, spec: Any) -> list[Any]:
    keys = [key for key in (spec.x, spec.y, *scores.numbers, *scores.names) if key]
    x, y = (*dict.fromkeys(keys), None, None)[:2]
    if x is None or y is None:
        return []
    metric = _metric(scores, spec)
    scales: dict[str, Any] = {"log_x": _is_wide(scores, x), "log_y": _is_wide(scores, y)}
    title = f"{words(metric)} by {words(x)} and {words(y)}"
    return [wr.ScatterPlot(title=title, x=wr.Config(x), y=wr.Config(y), z=wr.SummaryMetric(metric), **scales)]


def _parallel(scores: RunScores, spec: Any) -> list[Any]:
    keys = [key for key in spec.keys or scores.varying if key not in ("arm", "seed")][:MOST_AXES]
    columns = [wr.ParallelCoordinatesPlotColumn(wr.Config(key), words(key), log=_is_wide(scores, key)) for key in keys]
    score = wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(_metric(scores, spec)))
    return [wr.ParallelCoordinatesPlot(columns=[*columns, score], title="Every trial")] if columns else []


def _curves(scores: RunScores, spec: Any) -> list[Any]:
    metric = _metric(scores, spec)
    by: dict[str, Any] = {
        "groupby": wr.Config(spec.by or "arm"),
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
    }
    return [wr.LinePlot(title=f"{words(metric)} over training", x="step", y=[metric], **by)]


def _capacity(scores: RunScores, spec: Any) -> list[Any]:
    """W&B has no number for each factor, only their mean."""
    return [wr.LinePlot(title="KL per factor against the capacity", x="watch_capacity", y=["kl_per_factor"])]


def _learning_order(scores: RunScores, spec: Any) -> list[Any]:
    """W&B has no number for each factor, only their mean."""
    return [wr.LinePlot(title="Factor information over training", x="step", y=["factor_information"])]


def _importance(scores: RunScores, spec: Any) -> list[Any]:
    return [wr.ParameterImportancePlot(with_respect_to=_metric(scores, spec))]


def _rankings(scores: RunScores, spec: Any) -> list[Any]:
    """W&B has no correlation matrix; with one axis per metric, trials that rank alike are parallel."""
    columns = [wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(key)) for key in spec.metrics or scores.metrics]
    return [wr.ParallelCoordinatesPlot(columns=columns[:MOST_AXES], title="How metrics rank trials")]


def _summary(scores: RunScores, spec: Any) -> list[Any]:
    """The outcome of each arm, and how it developed."""
    metric = _metric(scores, spec)
    bars = wr.BarPlot(
        title=f"{words(metric)} by arm", metrics=[wr.SummaryMetric(metric)], orientation="v",
        groupby=wr.Config("arm"), groupby_aggfunc="mean", groupby_rangefunc="stddev",
    )  # fmt: skip
    return [bars, wr.LinePlot(title=f"{words(metric)} over training", x="step", y=[metric])]


def _two_metrics(scores: RunScores, spec: Any) -> list[Any]:
    y = spec.y or scores.objective.metric
    x = spec.x or next((metric for metric in scores.metrics if metric != y), None)
    if x is None:
        return []
    return [wr.ScatterPlot(title=f"{words(y)} against {words(x)}", x=wr.SummaryMetric(x), y=wr.SummaryMetric(y))]


def _history(scores: RunScores, spec: Any) -> list[Any]:
    """W&B does not know the number of a point, but when its run began."""
    metric = _metric(scores, spec)
    axes: dict[str, Any] = {"x": wr.Metric("CreatedTimestamp"), "y": wr.SummaryMetric(metric)}
    higher = scores.better(metric).startswith("higher")
    title = f"{words(metric)} by start of the trial"
    return [wr.ScatterPlot(title=title, running_ymax=higher, running_ymin=not higher, **axes)]


def _rungs(scores: RunScores, spec: Any) -> list[Any]:
    return [wr.BarPlot(title="Steps of each trial", metrics=[wr.SummaryMetric("step")])]


def _media(scores: RunScores, spec: Any) -> list[Any]:
    return [wr.MediaBrowser(title="What models see", media_keys=MEDIA)]


PANELS: dict[str, Callable[[RunScores, Any], list[Any]]] = {
    "summary": _summary,
    "violins": _bars,
    "trend": _scatter,
    "grouped": _bars,
    "strength": _scatter,
    "heat_map": _heat,
    "parallel": _parallel,
    "correlations": _rankings,
    "curves": _curves,
    "capacity": _capacity,
    "learning_order": _learning_order,
    "importance": _importance,
    "analysis": _rankings,
    "scatter": _two_metrics,
    "history": _history,
    "rungs": _rungs,
    "pictures": _media,
    "planes": _media,
    "manipulation": _media,
    "density": _media,
}
