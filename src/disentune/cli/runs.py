"""`disentune status` and `results`: the progress of a run's trials, and the table of their scores."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from disentune.cli.options import AsJson, OnlyTrials, RunName, Storage
from disentune.cli.terminal import PLAIN_INTERVAL_S, SpelledOut, err, out, print_json, quoted
from disentune.environment import cleaned_values, secrets
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from disentune.results.tables import Results
    from disentune.runs.ledger import Run
    from disentune.runs.trial_folder import Status, TrialFolder

# ---- status


def status(
    run: RunName,
    watch: Annotated[bool, typer.Option("--watch", help="Update until the run ends.")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds between updates of --watch; default: 2, or 10 without a terminal."),
    ] = None,
    storage: Storage = DEFAULT_STORAGE,
    as_json: AsJson = False,
) -> None:
    """Shows how far each trial of a run is, why it ended, and the best score so far.

    --watch shows a live display, read from the run's folder, in any terminal
    on any machine that can read the folder: progress, time left, running trials, errors.
    Ctrl-C stops watching, not the run. In a pipe it prints a line every few seconds;
    with --json, one object per line.

    Examples: disentune status runs/quickstart/main; disentune status quickstart --watch
    """
    if every is not None and not watch:
        raise ConfigError(f"--every {every:g}: only with --watch; add --watch, or omit it")
    if every is not None and not SHORTEST_S <= every <= LONGEST_S:
        raise ConfigError(f"--every {every:g}: must be from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    if not watch and as_json:
        _print_status(run, storage)
        return
    if not watch:
        show_steadily(find(run, storage), "status", [], _show_now)
        return
    with suppress(KeyboardInterrupt):  # the usual way to end it
        _watch(run, storage, every, as_json)


def find(run: str, storage: str) -> Run:
    from disentune.runs.ledger import find_run

    return find_run(run, storage)


def show_steadily(run: Run, question: str, about: list[Any], show: Callable[[Run], None]) -> None:
    """Prints what `show` prints on the two consoles; as long as nothing in the run changes, without calling it."""
    from disentune.results.steady import steady

    def printed() -> list[str]:
        with out.capture() as said, err.capture() as noted:
            show(run)
        return [said.get(), noted.get()]

    looks = [(one.width, one.is_terminal, one.color_system, one.encoding) for one in (out, err)]
    said, noted = steady(run, question, [about, os.getcwd(), looks, sorted(secrets())], printed)
    for console, text in ((err, noted), (out, said)):
        console.file.write(text)
        console.file.flush()


def _print_status(run: str, storage: str) -> None:
    from disentune.results.watch import Watcher

    found = find(run, storage)
    watcher = Watcher(found, remembers=True)
    live, picture = found.is_running(), watcher.look()
    trials = watcher.statuses(live)
    for note in picture.notes:
        err.print(f"note: {note}", markup=False)
    listed = [_status_json(*trial) for trial in trials]
    print_json({"running": live, "trials": listed, "dropped": sorted(found.dropped())})


def _show_now(found: Run) -> None:
    from disentune.cli.display import aside
    from disentune.cli.watching import show_status
    from disentune.results.watch import Watcher

    watcher = Watcher(found, remembers=True)
    live, picture = found.is_running(), watcher.look()
    trials = watcher.statuses(live)
    show_status(out, shown(found.path), live, trials, picture)
    if dropped := found.dropped():
        out.print(aside(len(dropped)), markup=False)
    if not live and any(not state.final for _, state, _ in trials):
        out.print(f"continue with: disentune resume {quoted(found.path)}", markup=False)
    if not live and any(state.state == "failed" for _, state, _ in trials):
        out.print(f"next: disentune resume {quoted(found.path)} --retry-failed", markup=False)


SHORTEST_S, LONGEST_S = 0.1, 86400.0
TERMINAL_INTERVAL_S = 2.0


def _watch(run: str, storage: str, every: float | None, as_json: bool) -> None:
    from disentune.cli import watching
    from disentune.results.watch import as_json as picture_json
    from disentune.results.watch import looks
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    usual = TERMINAL_INTERVAL_S if out.is_terminal else PLAIN_INTERVAL_S
    pictures = looks(found, usual if every is None else every)
    if not as_json:
        watching.watch(out, pictures, shown(found.path))
        return
    for picture in pictures:
        cleaned = cleaned_values(picture_json(picture, shown(found.path)))
        print(json.dumps(cleaned, allow_nan=False), flush=True)  # noqa: T201


def _status_json(folder: TrialFolder, status: Status, steps: int) -> dict[str, Any]:
    return {"trial_id": folder.id, "arms": list(folder.arms()), "steps": steps, **asdict(status)}


# ---- results


class At(StrEnum):
    last = "last"
    max = "max"
    min = "min"


def results(
    run: RunName,
    by: Annotated[list[str] | None, typer.Option(help="Group by this key instead of every key that varies.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to rank by; default: the sweep's objective.")] = None,
    only: OnlyTrials = None,
    at: Annotated[
        At | None,
        typer.Option(help="Which value of each trial counts; default: as the sweep's objective says, else the last."),
    ] = None,
    trials: Annotated[bool, typer.Option("--trials", help="One line per trial instead of one per group.")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print every row as CSV, with control characters escaped.")
    ] = False,
    as_json: AsJson = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write results.parquet and print its path.")] = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Shows the scores of a run, best first: mean and spread of each group of trials.

    The trials of a group differ by seed only, unless --by names other keys to group by.

    Examples: disentune results quickstart; disentune results quickstart --by framework.name --metric mig --at max
    """
    if only is not None and parquet:
        raise ConfigError("--only cannot be combined with --parquet: results.parquet holds every trial; use --csv")
    by = None if by is None else list(dict.fromkeys(by))
    asked = Asked(by, metric, only, at, trials)
    if as_json or csv or parquet:
        _print_rows(find(run, storage), asked, as_json, csv)
    else:
        about = [by, metric, only, at, trials]
        show_steadily(find(run, storage), "results", about, lambda found: _show_table(found, asked))


class Asked(NamedTuple):
    """The options of `results` for people."""

    by: list[str] | None
    metric: str | None
    only: str | None
    at: At | None
    trials: bool


def _read(run: Run, only: str | None) -> tuple[Results, Results]:
    """Every trial, and those that `only` keeps; prints the notes."""
    from disentune.results import tables

    every = tables.read(run)
    loaded = tables.only(every, only)
    for note in loaded.notes:
        err.print(f"note: {note}", markup=False)
    if only is not None:
        err.print(f"note: --only keeps {len(loaded.records)} of {len(every.records)} trials")
    return every, loaded


def _print_rows(run: Run, asked: Asked, as_json: bool, csv: bool) -> None:
    from disentune.results import tables

    _, loaded = _read(run, asked.only)
    if as_json:
        print_json(tables.as_json(loaded))
    elif csv:
        loaded.rows.to_csv(SpelledOut(), index=False)
    else:
        out.print(shown(tables.write_parquet(loaded)), markup=False)


def _show_table(run: Run, asked: Asked) -> None:
    every, loaded = _read(run, asked.only)
    if loaded.rows.empty:
        out.print("no rows yet" if every.rows.empty else "--only selects no trial")
    else:
        _show_results(loaded, asked.by, asked.metric, asked.at, asked.trials)


def _show_results(loaded: Results, by: list[str] | None, metric: str | None, at: At | None, trials: bool) -> None:
    from disentune.analysis.statistics import INTERVAL, intervals
    from disentune.cli.display import frame_table
    from disentune.results import tables

    objective = tables.objective_or_default(loaded)
    chosen = metric or objective.metric
    which = at.value if at else tables.at_of(objective, chosen)
    if trials:
        frame = tables.ranked(loaded, chosen, tables.mode_of(loaded, chosen), which)
        columns = ["trial_id", *tables.told_arm(frame), "seed", "status", "step", *tables.varying_keys(frame), chosen]
    else:
        frame = tables.aggregate(loaded, by or None, chosen, which)
        frame.insert(0, "#", range(1, len(frame) + 1))
        frame.insert(frame.columns.get_loc("mean") + 1, INTERVAL, intervals(frame))
        columns = [key for key in frame if key != "arm" or by or tables.told_arm(frame)]
    at_steps = tables.steps_in_words(loaded, chosen) if which == "last" else ""
    out.print(f"[bold]{escape(chosen)}[/], {which} value of each trial{at_steps}")
    out.print(frame_table(frame, list(dict.fromkeys(columns))))
    show_notes(frame)
    if not trials and metric is None:
        _show_overview(tables.overview(loaded, by or None, chosen, which))
    show_failures(loaded)


def show_notes(table: pd.DataFrame) -> None:
    """Explains columns that only some tables have."""
    from disentune.results.tables import MIN_STEP, SEEDS, SEEDS_NOTE, STEPS_NOTE

    for column, note in ((MIN_STEP, STEPS_NOTE), (SEEDS, SEEDS_NOTE)):
        if column in table:
            out.print(note, markup=False)


def show_failures(loaded: Results) -> None:
    """Notes on metrics that could not be computed, which the table does not show."""
    from disentune.results.tables import failures

    for name, (count, reason) in failures(loaded).items():
        out.print(f"note: {name} has no score in {count} of {len(loaded.records)} trials: {reason}", markup=False)


MOST_GROUPS = 10
"""The number of columns that fit on the terminal."""


def _show_overview(table: pd.DataFrame) -> None:
    """Every other metric, one line each."""
    from disentune.cli.display import frame_table

    if table.empty:
        return
    shown = list(table.columns[: MOST_GROUPS + 1])
    cut = f" (the first {MOST_GROUPS})" if len(shown) < len(table.columns) else ""
    out.print(f"\n[bold]other metrics[/], mean for each line # above{cut}:")
    out.print(frame_table(table, shown, len(table)))
