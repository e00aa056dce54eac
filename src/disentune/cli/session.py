"""A session of a run on the command line: what is said before, during and after it."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from disentune.cli import wandb
from disentune.cli.runs import show_failures, show_notes
from disentune.cli.terminal import lasting_output, out, patient_progress, progress_bar, quoted
from disentune.errors import INTERRUPTED
from disentune.files.storage import shown
from disentune.sessions.session import stopped_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from disentune.cli.progress import LiveProgress
    from disentune.data.prepared.download import Progress
    from disentune.driver.sweep import Ending
    from disentune.files.storage import Place
    from disentune.results.tables import Results
    from disentune.runs.ledger import Run
    from disentune.runs.preview import Cost, Plan
    from disentune.sessions.session import Say, Wanted
    from disentune.spec.settings import Objective
    from disentune.spec.sweepfile import SweepFile
    from disentune.tracking.connection import Connection


MOST_SLOTS = 1_000_000
"""Maximum number of trials at a time on one machine, however few resources each claims."""


def show_plan_of(planned: Plan, estimate: Cost, run: Run, sweep: SweepFile) -> None:
    from disentune.cli.display import show_plan

    resources = sweep.settings.resources
    slots = int(min((os.cpu_count() or 1) // resources.cpu, MOST_SLOTS)) if not resources.gpu else None
    show_plan(
        out,
        planned,
        estimate,
        shown(run.path),
        min(slots, resources.concurrent or slots) if slots else None,
    )


def command_again(run: Run, wanted: Wanted) -> str:
    """What continues a run."""
    same = ["disentune", *sys.argv[1:]]
    return shlex.join(same if wanted.only or wanted.limit else ["disentune", "resume", shown(run.path)])


class Terminal:
    """Shows sessions on the terminal. `again` is the command that continues when one is stopped."""

    def __init__(self, again: str = ""):
        self.again = again

    def say(self, text: str) -> None:
        out.print(text, markup=False)

    def waiting(self) -> AbstractContextManager[Say]:
        return patient_progress()

    def preparing(self) -> AbstractContextManager[Progress]:
        return progress_bar()

    def during(self, run: Run) -> AbstractContextManager[None]:
        return lasting_output(run.output_log)

    def plan(self, planned: Plan, estimate: Cost, run: Run, sweep: SweepFile) -> None:
        show_plan_of(planned, estimate, run, sweep)

    def place(self, connection: Connection, run: Run) -> None:
        self.say(connection.line(quoted(run.path)))

    @contextmanager
    def live(self, run: Run) -> Iterator[LiveProgress]:
        from disentune.cli.progress import LiveProgress

        try:
            with LiveProgress(out, run) as progress:
                yield progress
        except KeyboardInterrupt:
            text = "ended immediately; the work since the last checkpoints is lost"
            self.say(f"{text}. Continue with:\n  {self.again}")
            raise typer.Exit(INTERRUPTED) from None

    def end(self, run: Run, ending: Ending, connection: Connection | None, is_stage: bool) -> None:
        if connection is not None:
            wandb.show_arrival(run, connection, quoted(run.path))
        if ending.interrupted:
            self.say(f"{stopped_line(run, ending)}. Continue with:\n  {self.again}")
        else:
            _summary(run, is_stage)


def _summary(run: Run, is_stage: bool) -> None:
    """The table, the figure and, unless another stage follows, what to try next."""
    from disentune.cli.display import frame_table
    from disentune.results import tables

    loaded = tables.read(run)
    tables.write_parquet(loaded)
    states = loaded.trials["status"].value_counts()
    out.print(", ".join(f"{count} {state}" for state, count in states.items()))
    objective = tables.objective_or_default(loaded)
    if not loaded.rows.empty:
        which = tables.at_of(objective)
        table = tables.aggregate(loaded, None, objective.metric, which)
        at = tables.steps_in_words(loaded, objective.metric) if which == "last" else ""
        out.print(f"\n[bold]{escape(objective.metric)}[/], {which} value of each trial{at}{tables.over_seeds(table)}:")
        columns = [key for key in table if key != "arm" or tables.told_arm(table)]
        out.print(frame_table(table, columns, 30))
        show_notes(table)
        show_failures(loaded)
        out.print(f"\nfigure: {shown(_figure(loaded, objective))}", markup=False)
    out.print(f"rows:   {shown(run.parquet_path)}\n", markup=False)
    if not is_stage:
        _show_next(run, "failed" in states)


def _show_next(run: Run, has_failed: bool) -> None:
    here = quoted(run.path)
    out.print("next:", markup=False)
    out.print(f"  disentune report {here}", markup=False)
    out.print(f"  disentune results {here}", markup=False)
    if has_failed:
        out.print(f"  disentune resume {here} --retry-failed", markup=False)


def _figure(loaded: Results, objective: Objective) -> Place:
    from disentune.report.summary import summary_figure

    path = loaded.run.summary_path
    summary_figure(loaded, objective, path)
    return path
