"""The W&B run that sums up a group: how its arms differ, its analyses, and the figures of the page.

It has one id for each run of a sweep, so that a later report updates it.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import wandb
from PIL import Image

from disentune.environment import cleaner
from disentune.report import analysis
from disentune.report.canvas import words
from disentune.report.differences import differences
from disentune.report.page import Drawing
from disentune.report.scores import RunScores
from disentune.runs.ledger import Run
from disentune.tracking.connection import Connection
from disentune.tracking.sending import opened

JOB_TYPE = "summary"


@dataclass(frozen=True)
class SummaryTable:
    """A table of the summary run and of the report."""

    key: str
    """`comparison`, or `analysis/NAME`."""
    title: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


def tables_of(scores: RunScores) -> list[SummaryTable]:
    """The table of `compare` between arms, or between values of another key, and the analyses that suit the run."""
    found = []
    if compared := differences(scores.results, scores.objective):
        title = f"{words(scores.objective.metric)} by {words(compared.by)}: differences of means with 95 % intervals"
        found.append(SummaryTable("comparison", title, compared.table, compared.notes))
    for spec in analysis.choose(scores):
        found.append(SummaryTable(f"analysis/{spec.analysis}", words(spec.analysis), analysis.rows_of(scores, spec)))
    return found


def id_of(run: Run) -> str:
    """Differs from every trial's id."""
    return f"summary-{hashlib.sha256(run.name.encode()).hexdigest()[:16]}"


def figure_keys(drawn: Sequence[Drawing]) -> list[str]:
    return [f"figures/{one.file}" for one in drawn if one.png]


def send(run: Run, connection: Connection, tables: Sequence[SummaryTable], drawn: Sequence[Drawing]) -> None:
    """Raises what the client raises."""
    with TemporaryDirectory() as folder:
        stream = opened({**_identity(run, connection), "dir": folder}, connection.url)
        try:
            shown = [wandb.Image(Image.open(io.BytesIO(one.png)), caption=one.title) for one in drawn if one.png]
            media = dict(zip(figure_keys(drawn), shown, strict=True))
            stream.log({table.key: wandb.Table(dataframe=_plain(table.frame)) for table in tables} | media)
        finally:
            stream.finish()


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that are not numbers as texts, without secrets: W&B refuses columns of several kinds."""
    clean, plain = cleaner(), frame.reset_index(drop=True)
    for key in plain:
        if not pd.api.types.is_numeric_dtype(plain[key]):
            plain[key] = [clean(str(value)) for value in plain[key]]
    return plain


def _identity(run: Run, connection: Connection) -> dict[str, Any]:
    sweep = run.sweep()
    return {
        "id": id_of(run),
        "project": connection.project,
        "entity": connection.entity,
        "group": connection.group,
        "name": f"summary of {run.name}",
        "job_type": JOB_TYPE,
        "tags": list(connection.tags),
        "notes": sweep.question,
        "config": {"sweep": sweep.name, "run": run.name},
        "mode": "online",
        "resume": "allow",
        "reinit": "create_new",
    }
