"""A W&B Report of a run: its question, its best trials, and the figures of the page as W&B's own panels.

The panels draw from what was streamed; the tables in it are ours, from the rows. Without a server the same report is
written as its specification.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import wandb_workspaces.expr as expr
import wandb_workspaces.reports.v2 as wr

from disentune.environment import without_secrets
from disentune.report.canvas import LOG_SPAN, words
from disentune.report.kinds import KINDS
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import Results, at_of, objective_or_default, ranked
from disentune.runs.json_files import write_json
from disentune.tracking.connection import HOW_TO_LOG_IN, Connection, own_entity, trouble

BEST = 10
"""Trials in the table of the best."""
MEDIA = ["evaluation/reconstructions", "evaluation/traversals", "evaluation/distances"]
MOST_AXES = 8


# ---- the report


@dataclass(frozen=True)
class Made:
    """Where the report is: `url` at W&B, or the file of its specification and why it is only there."""

    url: str = ""
    file: str = ""
    reason: str = ""


def make(results: Results, connection: Connection) -> Made:
    """Creates the report at W&B; where that cannot be, writes its specification into the run's folder."""
    reason = trouble(connection) if connection.online else f"no key; {HOW_TO_LOG_IN}"
    if not reason:
        try:
            entity = connection.entity or own_entity(connection)
            with _server(connection.url):
                saved = _report(results, connection, entity, online=True).save()
            return Made(url=saved.url)
        except Exception as error:  # the client raises whatever its server's answer led it to
            reason = without_secrets(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300]
    path = results.run.wandb_report_path
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, specification(results, connection))
    return Made(file=str(path), reason=reason)


@contextmanager
def _server(url: str) -> Iterator[None]:
    """A settings file in the working folder, which the client reads too, does not say who gets the key."""
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
    model = _report(results, connection, connection.entity or "", online=False)._to_model()
    spec = json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
    return {"title": model.display_name, "description": model.description, "project": connection.project,
            "entity": connection.entity or "", "spec": spec}  # fmt: skip


def _report(results: Results, connection: Connection, entity: str, online: bool) -> wr.Report:
    scores = RunScores(results, objective_or_default(results))
    where: dict[str, Any] = (
        {"entity": entity, "project": connection.project} if online else {}
    )  # else each run set asks the server
    runs = wr.Runset(name=connection.group, filters=[expr.Metric("Group") == connection.group], **where)
    question = results.run.sweep().question or "No question is written in the sweep."
    return wr.Report(
        project=connection.project,
        entity=entity,
        title=f"disentune {results.run.name}",
        description=question[:250],
        blocks=[
            wr.H1(question),
            wr.P(f"{_counts(results)}. Objective: {scores.objective.metric}, {scores.better(None)}."),
            wr.H2("Best trials"),
            wr.MarkdownBlock(_best_table(scores)),
            wr.H2("Figures"),
            wr.PanelGrid(runsets=[runs], panels=_panels(scores)),
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
    rows = [[_cell(value) for value in line] for line in [columns, *best[columns].itertuples(index=False)]]
    lines = [rows[0], ["---"] * len(columns), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    """Nothing in it ends a cell or begins markup."""
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
    """Whether a number wants a logarithmic axis."""
    if key not in scores.trials or not scores.is_number(key):
        return False
    found = scores.trials[key].dropna().astype(float)
    return bool(len(found) and found.min() > 0 and found.max() / found.min() > LOG_SPAN)


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


def _importance(scores: RunScores, spec: Any) -> list[Any]:
    return [wr.ParameterImportancePlot(with_respect_to=_metric(scores, spec))]


def _rankings(scores: RunScores, spec: Any) -> list[Any]:
    """W&B has no matrix of correlations: the metrics as axes show which trials they rank alike."""
    columns = [wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(key)) for key in spec.metrics or scores.metrics]
    return [wr.ParallelCoordinatesPlot(columns=columns[:MOST_AXES], title="How metrics rank trials")]


def _media(scores: RunScores, spec: Any) -> list[Any]:
    return [wr.MediaBrowser(title="What models see", media_keys=MEDIA)]


PANELS: dict[str, Callable[[RunScores, Any], list[Any]]] = {
    "violins": _bars,
    "trend": _scatter,
    "grouped": _bars,
    "strength": _scatter,
    "heat_map": _heat,
    "parallel": _parallel,
    "correlations": _rankings,
    "curves": _curves,
    "importance": _importance,
    "pictures": _media,
}
