"""One session of one run: its plan, its data, the trials on Ray, and what is said at its end."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from disentune.cli import wandb
from disentune.cli.runs import show_failures, show_steps_note
from disentune.cli.terminal import lasting_output, out, patient_progress, progress_bar, quoted
from disentune.errors import INTERRUPTED, ConfigError
from disentune.files.storage import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disentune.cli.progress import LiveProgress
    from disentune.driver.sweep import Ending, LaunchRequest
    from disentune.files.storage import Place
    from disentune.plugin import Source
    from disentune.results.tables import Results
    from disentune.runs.ledger import Run
    from disentune.runs.preview import Cost, Plan
    from disentune.runs.trial_folder import TrialFolder
    from disentune.spec.settings import Objective
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile
    from disentune.tracking.connection import Connection


@dataclass(frozen=True)
class Wanted:
    """The options of a command that plans or runs a sweep."""

    only: str | None = None
    limit: int | None = None
    address: str | None = None
    retry_failed: bool = False
    drop: bool = False


def planned_trials(asked: SweepPoints, run: Run, wanted: Wanted) -> Plan:
    from disentune.runs.choice import filters_allowed
    from disentune.runs.preview import make_plan

    only, limit = wanted.only, wanted.limit
    filters_allowed(asked.sweep, only is not None, limit is not None)
    with patient_progress() as say:
        planned = make_plan(asked, run, only, limit, wanted.retry_failed, say, wanted.drop)
    if only is not None and not limit and not planned.trials:
        raise ConfigError(f"--only {only!r}: selects no trial of the sweep")
    return planned


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


def carry_out(run: Run, asked: SweepPoints, wanted: Wanted, again: str = "", is_stage: bool = False) -> int:
    """Runs what is unfinished and says how it ended; returns how many trials failed. `again` is the command that
    continues when the session is stopped; a stage of a study says less at its end."""
    from disentune.cli.progress import LiveProgress
    from disentune.driver.sweep import LaunchRequest
    from disentune.files.storage import assert_writable
    from disentune.runs.preview import cost, unprepared
    from disentune.tracking.connection import connection

    sweep, again = asked.sweep, again or command_again(run, wanted)
    run.assert_free()
    place = connection(sweep.settings.wandb, sweep.name, run.name)
    planned = planned_trials(asked, run, wanted)
    missing = unprepared(planned) if not wanted.address else []  # else each node prepares its own
    with patient_progress() as say:
        estimate = cost(asked, planned, probe=False, say=say)
    assert_writable(run.path)
    with lasting_output(run.output_log):
        show_plan_of(planned, estimate, run, sweep)
        _prepare_data(missing)
        if place is not None:
            out.print(place.line(quoted(run.path)), markup=False)
        progress = LiveProgress(out, run)
        request = LaunchRequest(
            run, asked, planned.choice, progress, wanted.address, wanted.retry_failed, place, _say, planned.sources,
            planned.transfers, progress.beat, progress.is_drawn,
        )  # fmt: skip
        ending = _session(request, progress, again)
        _say_end(run, ending, place, again)
        _summary(run, is_stage)
        return ending.failed


def _session(request: LaunchRequest, progress: LiveProgress, again: str) -> Ending:
    from disentune.driver.sweep import launch

    try:
        with progress:
            return launch(request)
    except KeyboardInterrupt:
        text = "ended immediately; the work since the last checkpoints is lost"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        raise typer.Exit(INTERRUPTED) from None


def _say_end(run: Run, ending: Ending, place: Connection | None, again: str) -> None:
    """Ends the command when the session was stopped."""
    if place is not None:
        wandb.show_arrival(run, place, quoted(run.path))
    if ending.interrupted:
        text = f"stopped ({ending.interrupted}); {_checkpointed(run)}"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        by_budget = ending.interrupted.startswith("stop.")
        raise typer.Exit(0 if by_budget else INTERRUPTED)


def _checkpointed(run: Run) -> str:
    """How many of the started, unfinished trials have a checkpoint."""
    open_ = [folder for folder in run.known_trials("status.json").values() if not folder.status().final]
    begun = [folder for folder in open_ if _has_trained(folder)]
    safe = sum(bool(folder.checkpoints.steps()) for folder in begun)
    if not begun:
        return "no trial was running"
    if safe == len(begun):
        return "every trial that had started has a checkpoint"
    return f"{safe} of {len(begun)} started trials have a checkpoint; the others start again"


def _has_trained(folder: TrialFolder) -> bool:
    """Whether there is work to lose. A trial that got a slot after the stop request has none; one whose worker died
    still has the state `running`."""
    status = folder.status()
    return status.step > 0 or status.state == "running" or bool(status.faults) or bool(folder.checkpoints.steps())


def _say(text: str) -> None:
    out.print(text, markup=False)


def _prepare_data(missing: Sequence[Source]) -> None:
    from disentune.data.prepared.preparing import prepare

    for source in missing:
        with progress_bar() as say:
            about = prepare(source, say=say)
        out.print(f"prepared {source.key}: {about.count:,} images", markup=False)


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
        table = tables.aggregate(loaded, None, objective.metric)
        at = tables.steps_in_words(loaded, objective.metric)
        out.print(f"\n[bold]{escape(objective.metric)}[/], last value of each trial{at}, over seeds:")
        columns = [key for key in table if key != "arm" or tables.told_arm(table)]
        out.print(frame_table(table, columns, 30))
        show_steps_note(table)
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
