"""`disentune plan`, `run` and `resume`: what a sweep would do, doing it, and what is said at its end."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from disentune.cli import wandb
from disentune.cli.options import (
    Address,
    AsJson,
    Limit,
    Name,
    Only,
    Retry,
    RunName,
    Sets,
    Storage,
    SweepPath,
    assert_run_name,
)
from disentune.cli.runs import show_failures
from disentune.cli.terminal import lasting_output, out, patient_progress, print_json, progress_bar, quoted
from disentune.errors import INTERRUPTED, ConfigError
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disentune.driver.sweep import Ending
    from disentune.files.storage import Place
    from disentune.plugin import Source
    from disentune.results.tables import Results
    from disentune.runs.ledger import Run
    from disentune.runs.preview import Cost, Plan
    from disentune.spec.settings import Objective
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile
    from disentune.tracking.connection import Connection


def _run_folder(storage: str, sweep_name: str, name: str) -> Run:
    from disentune.files.storage import assert_reachable, place
    from disentune.runs.ledger import Run, assert_own_files

    assert_run_name(name)
    where = place(storage)
    assert_reachable(where)
    run = Run((where / sweep_name / name).absolute())
    assert_own_files(run)
    return run


def plan(
    sweep: SweepPath,
    set_: Sets = None,
    only: Only = None,
    limit: Limit = None,
    name: Name = "main",
    storage: Storage = DEFAULT_STORAGE,
    probe: Annotated[bool, typer.Option("--probe", help="Train a few steps of each arm to estimate the time.")] = False,
    as_json: AsJson = False,
) -> None:
    """What a run would do: trials, what is done, disk, time, and every mistake in the files at once.

    Example: disentune plan sweeps/quickstart.yaml --probe
    """
    from disentune.data.prepared.store import command_of
    from disentune.results.inspection import EVIDENCE, arm_orders
    from disentune.runs.preview import cost, unprepared
    from disentune.spec import space

    try:
        with patient_progress() as say:
            asked = space.read(sweep, set_ or (), say)
        run = _run_folder(storage, asked.sweep.name, name)
        planned = _planned(asked, run, only, limit)
        missing = unprepared(planned)
        if missing and probe:
            raise ConfigError(f"--probe needs the data: {'; '.join(command_of(source) for source in missing)}")
    except ConfigError as error:
        if as_json:
            print_json(_unplannable(sweep, error))
            raise typer.Exit(2) from None
        raise
    with patient_progress() as say:
        estimate = cost(asked, planned, probe, say) if probe or not as_json else None
    if as_json:
        timing = {"seconds": estimate.seconds, "disk_bytes": estimate.disk} if estimate else {}
        print_json(planned.as_json() | timing)
        return
    assert estimate is not None
    _show_plan(planned, estimate, run, asked.sweep, arm_orders(asked))
    out.print(EVIDENCE, markup=False)
    for source in missing:
        text = f"{source.key} is not prepared; a run does it first. Or do it now: {command_of(source)}"
        out.print(f"note: {text}", markup=False)


def _unplannable(sweep: Path, error: ConfigError) -> dict[str, Any]:
    problems = [f"{problem.where} {problem.text}" for problem in error.problems] or [str(error)]
    counts = dict.fromkeys(("trials", "done", "continuing", "new"), 0)
    return {"sweep": sweep.stem, **counts, "arms": [], "problems": problems}


MOST_SLOTS = 1_000_000
"""Of one machine, however little a trial claims to take."""


def _show_plan(planned: Plan, estimate: Cost, run: Run, sweep: SweepFile, orders: dict[str, str] | None = None) -> None:
    from disentune.cli.display import show_plan

    resources = sweep.settings.resources
    slots = int(min((os.cpu_count() or 1) // resources.cpu, MOST_SLOTS)) if not resources.gpu else None
    show_plan(
        out,
        planned,
        estimate,
        shown(run.path),
        min(slots, resources.concurrent or slots) if slots else None,
        orders,
    )


def run(
    sweep: SweepPath,
    set_: Sets = None,
    only: Only = None,
    limit: Limit = None,
    name: Name = "main",
    storage: Storage = DEFAULT_STORAGE,
    address: Address = None,
    retry_failed: Retry = False,
) -> None:
    """Runs a sweep, or continues it: finished trials are kept, and a sweep that has grown runs only its new points.

    Examples: disentune run sweeps/quickstart.yaml; disentune run sweeps/quickstart.yaml --set seeds=5 --name five
    """
    from disentune.spec import space

    with patient_progress() as say:
        asked = space.read(sweep, set_ or (), say)
    _run(_run_folder(storage, asked.sweep.name, name), asked, only, limit, address, retry_failed)


def resume(
    run: RunName,
    limit: Limit = None,
    storage: Storage = DEFAULT_STORAGE,
    address: Address = None,
    retry_failed: Retry = False,
) -> None:
    """Continues an interrupted run; only its folder is needed.

    Example: disentune resume runs/quickstart/main
    """
    from disentune.runs.ledger import find_run
    from disentune.spec import space

    found = find_run(run, storage)
    with patient_progress() as say:
        asked = space.check(found.sweep(), say)
    _run(found, asked, None, limit, address, retry_failed)


def _planned(asked: SweepPoints, run: Run, only: str | None, limit: int | None, retry_failed: bool = False) -> Plan:
    from disentune.runs.choice import filters_allowed
    from disentune.runs.preview import make_plan

    filters_allowed(asked.sweep, only is not None, limit is not None)
    with patient_progress() as say:
        planned = make_plan(asked, run, only or None, limit, retry_failed, say)
    if only and not limit and not planned.trials:
        raise ConfigError(f"--only {only}: no trial of the sweep is selected")
    return planned


def _run(
    run: Run, asked: SweepPoints, only: str | None, limit: int | None, address: str | None, retry_failed: bool
) -> None:
    from disentune.files.storage import assert_writable
    from disentune.runs.preview import cost, unprepared
    from disentune.tracking.connection import connection

    sweep = asked.sweep
    place = connection(sweep.settings.wandb, sweep.name, run.name)
    planned = _planned(asked, run, only, limit, retry_failed)
    missing = unprepared(planned) if not address else []  # else each node prepares its own
    with patient_progress() as say:
        estimate = cost(asked, planned, probe=False, say=say)
    assert_writable(run.path)
    with lasting_output(run.output_log):
        _show_plan(planned, estimate, run, sweep)
        _prepare_data(missing)
        if place is not None:
            out.print(place.line(quoted(run.path)), markup=False)
        again = shlex.join(["disentune", *sys.argv[1:]] if only or limit else ["disentune", "resume", shown(run.path)])
        _end_session(run, _session(run, asked, planned, address, retry_failed, place, again), place, again)


def _session(
    run: Run,
    asked: SweepPoints,
    planned: Plan,
    address: str | None,
    retry_failed: bool,
    place: Connection | None,
    again: str,
) -> Ending:
    from disentune.cli.progress import LiveProgress
    from disentune.driver.sweep import LaunchRequest, launch

    objective = asked.sweep.settings.objective
    try:
        with LiveProgress(
            out, objective.metric if objective else None, planned.new + len(planned.continuing)
        ) as progress:
            return launch(
                LaunchRequest(run, asked, planned.choice, progress, address, retry_failed, place, _say, planned.sources)
            )
    except KeyboardInterrupt:
        text = "ended at once; the work since the last checkpoints is lost"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        raise typer.Exit(INTERRUPTED) from None


def _end_session(run: Run, ending: Ending, place: Connection | None, again: str) -> None:
    if place is not None:
        wandb.show_arrival(run, place, quoted(run.path))
    if ending.interrupted:
        text = f"stopped ({ending.interrupted}); {_checkpointed(run)}"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        by_budget = ending.interrupted.startswith("stop.")
        raise typer.Exit(0 if by_budget else INTERRUPTED)
    _summary(run)
    raise typer.Exit(1 if ending.failed else 0)


def _checkpointed(run: Run) -> str:
    """How many of the trials that have begun and not ended have something to continue from."""
    open_ = [folder for folder in run.known_trials("status.json").values() if not folder.status().final]
    begun = [folder for folder in open_ if folder.status().attempts]
    safe = sum(bool(folder.checkpoints.steps()) for folder in begun)
    if not begun:
        return "no trial was under way"
    if safe == len(begun):
        return "every trial is checkpointed"
    return f"{safe} of {len(begun)} begun trials have a checkpoint, the others start again"


def _say(text: str) -> None:
    out.print(text, markup=False)


def _prepare_data(missing: Sequence[Source]) -> None:
    from disentune.data.prepared.preparing import prepare

    for source in missing:
        with progress_bar() as say:
            about = prepare(source, say=say)
        out.print(f"prepared {source.key}: {about.count:,} images", markup=False)


def _summary(run: Run) -> None:
    """The table, the figure and what to try next."""
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
        out.print(frame_table(table, list(table.columns), 30))
        show_failures(loaded)
        out.print(f"\nfigure: {shown(_figure(loaded, objective))}", markup=False)
    here = quoted(run.path)
    out.print(f"rows:   {shown(run.parquet_path)}\n\nnext:", markup=False)
    out.print(f"  disentune report {here}", markup=False)
    out.print(f"  disentune results {here}", markup=False)


def _figure(loaded: Results, objective: Objective) -> Place:
    from disentune.report.summary import summary_figure

    path = loaded.run.summary_path
    summary_figure(loaded, objective, path)
    return path
