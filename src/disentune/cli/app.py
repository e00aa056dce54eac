"""The command line: list, plan, run, resume, status, results, report, inspect, sync, score, data, train and more."""

import atexit
import gc
import json
import os
import shlex
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from disentune.cli import cluster, data, inspect, report, submit, wandb
from disentune.cli.terminal import (
    DEFAULT_STORAGE,
    OUTPUT,
    PLAIN_INTERVAL_S,
    AsJson,
    SpelledOut,
    Storage,
    discard,
    err,
    lasting_output,
    name_standard_output,
    open_standard_streams,
    out,
    patient_progress,
    print_json,
    progress_bar,
)
from disentune.environment import cleaned_values
from disentune.errors import (
    CRASHED,
    DONE,
    INTERRUPTED,
    UNAVAILABLE,
    WRONG_INPUT,
    ConfigError,
    DisentuneError,
    Unavailable,
)
from disentune.files.storage import shown

app = typer.Typer(
    name="disentune",
    help="Distributed sweeps for disentanglement research: one file in, one trustworthy table out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app)
app.command()(report.report)
app.command()(inspect.inspect)
app.command()(wandb.sync)
app.command()(submit.submit)
app.add_typer(cluster.app)


SweepPath = Annotated[Path, typer.Argument(help="The sweep file, for example sweeps/quickstart.yaml.")]
RunName = Annotated[str, typer.Argument(help="A run: its folder, sweep/run, or the sweep's name.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Change a key: training.steps=100, seeds=1. May be repeated.")
]
Only = Annotated[
    str | None,
    typer.Option(help="Only the trials for which this holds: \"framework.name == 'beta_vae' and seed < 2\"."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="At most this many unfinished trials.")]
Name = Annotated[str, typer.Option(help="Name of the run; the same name goes on with it.")]
Address = Annotated[str | None, typer.Option(help="Ray cluster to join: auto, or its address. Default: a local Ray.")]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")]


class At(StrEnum):
    last = "last"
    max = "max"
    min = "min"


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 some trials failed, 2 wrong input, 130 interrupted, 70 a crash of our own, 75
    the storage or Ray does not answer."""
    open_standard_streams()
    name_standard_output()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until a sweep runs, both just end the command
    atexit.register(gc.freeze)  # else Python looks at half a million objects of libraries once more before it ends
    try:
        code = _carried_out()
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        discard(sys.stdout)
        code = DONE
    except OSError as error:  # permissions, a full disk: the machine's state, not a bug of ours
        code = _told(error)
    sys.exit(_printed(code))


def _carried_out() -> Any:
    """The exit code of the command."""
    try:
        app()
    except SystemExit as end:
        return end.code
    except DisentuneError as error:
        _complain(str(error))
        return UNAVAILABLE if isinstance(error, Unavailable) else WRONG_INPUT
    except KeyboardInterrupt:
        _complain("interrupted; continue a run that had begun with: disentune resume RUN")
        return INTERRUPTED
    except OSError:
        raise
    except Exception:  # a bug, or the cluster's trouble: a supervisor goes on from the ledger
        _complain(traceback.format_exc().rstrip("\n"))
        return CRASHED
    return DONE


def _complain(text: str) -> None:
    """Prints to standard error; where that cannot be written, the exit code says enough."""
    with suppress(OSError):
        err.print(text, markup=False)


def _told(error: OSError) -> int:
    from disentune.files.storage import TRANSIENT

    _complain(_trouble(error))
    return UNAVAILABLE if error.errno in TRANSIENT else WRONG_INPUT  # an outage may end


def _printed(code: Any) -> Any:
    """The exit code, after all output was written; Python itself would end with a traceback and 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        discard(sys.stdout)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            return code or _told(error)
    return code


def _trouble(error: OSError) -> str:
    from disentune.files.storage import advice

    if error.filename == OUTPUT:
        return f"{OUTPUT} cannot be written: {error.strerror}"
    text = f"{error.filename or 'the storage'}: {error.strerror or error}"
    return f"{text}; {advice(error)}" if advice(error) else text


# ---- list


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="frameworks, models, recons, datasets, metrics or figures.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What can be named in a sweep file.

    Examples: disentune list; disentune list frameworks
    """
    from disentune.errors import unknown
    from disentune.metrics import METRICS
    from disentune.plugin import summary
    from disentune.spec.config import PLUGIN_SECTIONS

    catalogues = {f"{section}s": catalogue for section, catalogue in PLUGIN_SECTIONS.items()} | {"metrics": METRICS}
    if kind is not None and kind not in (*catalogues, "figures"):
        raise ConfigError(unknown("kind of plug-in", kind, [*catalogues, "figures"]))
    shown = {key: catalogue for key, catalogue in catalogues.items() if kind in (None, key)}
    listing = {key: {plugin.name: summary(plugin) for plugin in catalogue} for key, catalogue in shown.items()}
    if kind in (None, "figures"):
        listing["figures"] = _figures()
    if as_json:
        print_json(listing)
        return
    for title, catalogue in shown.items():
        out.print(f"[bold]{title}[/]")
        width = max(len(name) for name in catalogue.names())
        for plugin in sorted(catalogue, key=lambda plugin: plugin.name):
            lines = [*_line_and_paper(listing[title][plugin.name]), _parameters(plugin)]
            for number, line in enumerate(line for line in lines if line):
                out.print(f"  {'' if number else plugin.name:<{width}}  {line}", markup=False)
    if "figures" in listing:
        out.print("[bold]figures[/]")
        width = max(map(len, listing["figures"]))
        for name, text in listing["figures"].items():
            out.print(f"  {name:<{width}}  {text}", markup=False)
    if kind == "metrics":
        out.print("udr and udr_spearman compare the trials of a run: disentune score RUN", markup=False)


def _figures() -> dict[str, str]:
    """What `figures:` of a sweep may name, with the keys of each."""
    from disentune.spec.figures import FIGURES

    keys = {name: ", ".join(key for key in kind.model_fields if key != "name") for name, kind in FIGURES.items()}
    return {name: f"{' '.join((kind.__doc__ or '').split())} ({keys[name]})" for name, kind in FIGURES.items()}


def _line_and_paper(summary: str) -> list[str]:
    """`Title: paper: line` apart, the line first; another summary whole."""
    parts = summary.split(": ", 2)
    return [parts[2], parts[1]] if len(parts) == 3 else [summary]


def _parameters(plugin: Any) -> str:
    fields = plugin.params.model_fields.items()
    return ", ".join(f"{name} (required)" if f.is_required() else f"{name}={_yaml(f.default)}" for name, f in fields)


def _yaml(default: Any) -> Any:
    """As one would write it in a sweep: a named choice by its name alone."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return getattr(default, "name", default)


# ---- plan and run


def _run_folder(storage: str, sweep_name: str, name: str) -> Any:
    from disentune.files.storage import assert_reachable, place
    from disentune.runs.ledger import Run, assert_own_files
    from disentune.spec.sweepfile import NAME

    if not NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name!r}: must have letters, digits, '_', '-' or '.', and begin with one of the first"
        )
    where = place(storage)
    assert_reachable(where)
    run = Run((where / sweep_name / name).absolute())
    assert_own_files(run)
    return run


@app.command()
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


def _show_plan(planned: Any, estimate: Any, run: Any, sweep: Any, orders: dict[str, str] | None = None) -> None:
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


@app.command()
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
    """Runs a sweep, or goes on with it: finished trials are not done again, a grown sweep runs only its new points.

    Examples: disentune run sweeps/quickstart.yaml; disentune run sweeps/quickstart.yaml --set seeds=5 --name five
    """
    from disentune.spec import space

    with patient_progress() as say:
        asked = space.read(sweep, set_ or (), say)
    _run(_run_folder(storage, asked.sweep.name, name), asked, only, limit, address, retry_failed)


@app.command()
def resume(
    run: RunName,
    limit: Limit = None,
    storage: Storage = DEFAULT_STORAGE,
    address: Address = None,
    retry_failed: Retry = False,
) -> None:
    """Goes on with an interrupted run from its folder alone.

    Example: disentune resume runs/quickstart/main
    """
    from disentune.runs.ledger import find_run
    from disentune.spec import space

    found = find_run(run, storage)
    with patient_progress() as say:
        asked = space.check(found.sweep(), say)
    _run(found, asked, None, limit, address, retry_failed)


def _planned(asked: Any, run: Any, only: str | None, limit: int | None, retry_failed: bool = False) -> Any:
    from disentune.runs.choice import filters_allowed
    from disentune.runs.preview import make_plan

    filters_allowed(asked.sweep, only is not None, limit is not None)
    with patient_progress() as say:
        planned = make_plan(asked, run, only or None, limit, retry_failed, say)
    if only and not limit and not planned.trials:
        raise ConfigError(f"--only {only}: no trial of the sweep is selected")
    return planned


def _run(run: Any, asked: Any, only: str | None, limit: int | None, address: str | None, retry_failed: bool) -> None:
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
            out.print(place.line(_quoted(run.path)), markup=False)
        again = shlex.join(["disentune", *sys.argv[1:]] if only or limit else ["disentune", "resume", shown(run.path)])
        _end_session(run, _session(run, asked, planned, address, retry_failed, place, again), place, again)


def _session(
    run: Any, asked: Any, planned: Any, address: str | None, retry_failed: bool, place: Any, again: str
) -> Any:
    from disentune.cli.display import LiveProgress
    from disentune.driver.sweep import launch

    objective = asked.sweep.settings.objective
    try:
        with LiveProgress(out, objective and objective.metric, planned.new + len(planned.continuing)) as progress:
            return launch(run, asked, planned.choice, progress, address, retry_failed, place, _say, planned.sources)
    except KeyboardInterrupt:
        text = "ended at once; the work since the last checkpoints is lost"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        raise typer.Exit(INTERRUPTED) from None


def _end_session(run: Any, ending: Any, place: Any, again: str) -> None:
    if place is not None:
        wandb.show_arrival(run, place, _quoted(run.path))
    if ending.interrupted:
        text = f"stopped ({ending.interrupted}); {_checkpointed(run)}"
        out.print(f"{text}. Continue with:\n  {again}", markup=False)
        by_budget = ending.interrupted.startswith("stop.")
        raise typer.Exit(0 if by_budget else INTERRUPTED)
    _summary(run)
    raise typer.Exit(1 if ending.failed else 0)


def _checkpointed(run: Any) -> str:
    """How many of the trials that have begun and not ended have something to continue from."""
    open_ = [folder for folder in run.known_trials("status.json").values() if not folder.status().final]
    begun = [folder for folder in open_ if folder.status().attempts]
    safe = sum(bool(folder.checkpoints.steps()) for folder in begun)
    if not begun:
        return "no trial was under way"
    if safe == len(begun):
        return "every trial is checkpointed"
    return f"{safe} of {len(begun)} begun trials have a checkpoint, the others start again"


def _quoted(path: Any) -> str:
    """A path for a command that the user may copy."""
    return shlex.quote(shown(path))


def _say(text: str) -> None:
    out.print(text, markup=False)


def _prepare_data(missing: list[Any]) -> None:
    from disentune.data.prepared.preparing import prepare

    for source in missing:
        with progress_bar() as say:
            about = prepare(source, say=say)
        out.print(f"prepared {source.key}: {about.count:,} images", markup=False)


def _summary(run: Any) -> None:
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
        _show_failures(loaded)
        out.print(f"\nfigure: {shown(_figure(loaded, objective))}", markup=False)
    here = _quoted(run.path)
    out.print(f"rows:   {shown(run.parquet_path)}\n\nnext:", markup=False)
    out.print(f"  disentune report {here}", markup=False)
    out.print(f"  disentune results {here}", markup=False)


def _figure(loaded: Any, objective: Any) -> Any:
    from disentune.report.summary import summary_figure

    path = loaded.run.summary_path
    summary_figure(loaded, objective, path)
    return path


# ---- looking


@app.command()
def status(
    run: RunName,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again until no driver runs it.")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds between looks of --watch; default: 2, or 10 without a terminal."),
    ] = None,
    storage: Storage = DEFAULT_STORAGE,
    as_json: AsJson = False,
) -> None:
    """How far each trial of a run is, why it ended, and the best so far.

    With --watch a live picture from the run's folder alone, in any terminal and
    on any machine that sees it: progress, time left, running trials, errors.
    Ctrl-C ends the watching, not the run. Into a pipe: a line every few seconds,
    with --json one object a line.

    Examples: disentune status runs/quickstart/main; disentune status quickstart --watch
    """
    if every is not None and not watch:
        raise ConfigError(f"--every {every:g}: goes with --watch alone")
    if every is not None and not SHORTEST_S <= every <= LONGEST_S:
        raise ConfigError(f"--every {every:g}: must be from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    if watch:
        with suppress(KeyboardInterrupt):  # the usual way to end it
            _watch(run, storage, every, as_json)
        return
    from disentune.cli.display import show_status
    from disentune.results.watch import Watcher
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    folders = found.known_trials("config.json", "status.json").values()
    trials = [(folder, folder.status(), folder.tree()["training"]["steps"]) for folder in folders]
    live, picture = found.is_running(), Watcher(found).look()
    if as_json:
        for note in picture.notes:
            err.print(f"note: {note}", markup=False)
        print_json({"running": live, "trials": [_status_json(*trial) for trial in trials]})
        return
    show_status(out, shown(found.path), live, trials, picture)
    if not live and any(not state.final for _, state, _ in trials):
        out.print(f"continue with: disentune resume {_quoted(found.path)}", markup=False)


SHORTEST_S, LONGEST_S = 0.1, 86400.0
TERMINAL_INTERVAL_S = 2.0


def _watch(run: str, storage: str, every: float | None, as_json: bool) -> None:
    from disentune.cli import display
    from disentune.results.watch import as_json as picture_json
    from disentune.results.watch import looks
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    usual = TERMINAL_INTERVAL_S if out.is_terminal else PLAIN_INTERVAL_S
    pictures = looks(found, usual if every is None else every)
    if not as_json:
        display.watch(out, pictures, shown(found.path))
        return
    for picture in pictures:
        cleaned = cleaned_values(picture_json(picture, shown(found.path)))
        print(json.dumps(cleaned, allow_nan=False), flush=True)  # noqa: T201


def _status_json(folder: Any, status: Any, steps: int) -> dict[str, Any]:
    return {"trial_id": folder.id, "arms": list(folder.arms()), "steps": steps, **asdict(status)}


@app.command()
def results(
    run: RunName,
    by: Annotated[list[str] | None, typer.Option(help="Group by this key instead of every one that varies.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to rank by; default: the sweep's objective.")] = None,
    at: Annotated[At, typer.Option(help="Which of a trial's rows counts.")] = At.last,
    trials: Annotated[bool, typer.Option("--trials", help="One line a trial instead of one a group.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print every row as CSV, control characters spelled out.")] = False,
    as_json: AsJson = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write results.parquet and print its path.")] = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """The table of a run, best first: mean and spread of each group of trials.

    The trials of a group differ by seed only, unless --by names other keys to group by.

    Examples: disentune results quickstart; disentune results quickstart --by framework.name --metric mig --at max
    """
    from disentune.results import tables as tables
    from disentune.runs.ledger import find_run

    by = None if by is None else list(dict.fromkeys(by))
    loaded = tables.read(find_run(run, storage))
    for note in loaded.notes:
        err.print(f"note: {note}", markup=False)
    if as_json:
        print_json(tables.as_json(loaded))
    elif csv:
        loaded.rows.to_csv(SpelledOut(), index=False)
    elif parquet:
        out.print(shown(tables.write_parquet(loaded)), markup=False)
    elif loaded.rows.empty:
        out.print("no rows yet")
    else:
        _show_results(loaded, by, metric, at, trials)


def _show_results(loaded: Any, by: list[str] | None, metric: str | None, at: At, trials: bool) -> None:
    from disentune.cli.display import frame_table
    from disentune.results import tables as tables

    chosen = metric or tables.objective_or_default(loaded).metric
    if trials:
        frame = tables.ranked(loaded, chosen, tables.mode_of(loaded, chosen), at.value)
        columns = ["trial_id", "arm", "seed", "status", "step", *tables.varying_keys(frame), chosen]
    else:
        frame = tables.aggregate(loaded, by or None, chosen, at.value)
        frame.insert(0, "#", range(1, len(frame) + 1))
        columns = list(frame.columns)
    at_steps = tables.steps_in_words(loaded, chosen) if at is At.last else ""
    out.print(f"[bold]{escape(chosen)}[/], {at.value} value of each trial{at_steps}")
    out.print(frame_table(frame, list(dict.fromkeys(columns))))
    if not trials and metric is None:
        _show_overview(tables.overview(loaded, by or None, chosen, at.value))
    _show_failures(loaded)


def _show_failures(loaded: Any) -> None:
    """Metrics that could not score, which no table shows."""
    from disentune.results.tables import failures

    for name, (count, reason) in failures(loaded).items():
        out.print(f"note: {name} has no score in {count} of {len(loaded.records)} trials: {reason}", markup=False)


MOST_GROUPS = 10
"""Columns of the overview that a terminal holds."""


def _show_overview(table: Any) -> None:
    """Every other metric, one line each."""
    from disentune.cli.display import frame_table

    if table.empty:
        return
    shown = list(table.columns[: MOST_GROUPS + 1])
    cut = f" (the first {MOST_GROUPS})" if len(shown) < len(table.columns) else ""
    out.print(f"\n[bold]every other metric[/], mean of each line # above{cut}:")
    out.print(frame_table(table, shown, len(table)))


class Size(StrEnum):
    full = "full"
    fast = "fast"


@app.command()
def score(
    what: Annotated[str, typer.Argument(metavar="CODES.npz|RUN", help="A file of arrays, or a run: as for results.")],
    metrics: Annotated[
        str | None,
        typer.Option(help="Names, with commas. Default: all that the arrays suffice for; for a run, udr."),
    ] = None,
    size: Annotated[Size, typer.Option(help="The published sizes of metrics, or smaller ones.")] = Size.full,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter: mig.bins=30. May be repeated.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the metrics' draws; default: 0, and for a run each trial's own.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="UDR among the trials that agree in this key (all: among all) instead of by seed alone."),
    ] = None,
    as_json: AsJson = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Scores your own arrays, or a run's trials again by their last checkpoints.

    Arrays: np.savez("codes.npz", codes=codes, factors=factors) makes the file.
    codes (rows, latents) must be there; whole-numbered factors (rows, factors),
    logvars (rows, latents), images (rows, ...) serve the metrics that need them.

    A run: nothing is trained or written. Besides all metrics there are udr and
    udr_spearman: how well trials agree with each other, known factors or not.

    Examples:
    disentune score codes.npz
    disentune score codes.npz --metrics mig,dci --set mig.bins=30 --json
    disentune score quickstart --metrics udr,mig
    disentune score quickstart --by dataset.spacing
    """
    by = None if by is None else list(dict.fromkeys(by))
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise ConfigError(f"--metrics '{metrics}': must name a metric, for example --metrics mig,dci")
    path = Path(what)
    if path.suffix in (".npz", ".npy") or path.is_file():
        if by:
            raise ConfigError(f"--by {by[0]}: groups the trials of a run, but {what} holds arrays; leave it away")
        _score_arrays(path, names, set_ or [], seed or 0, size.value, as_json)
        return
    if seed is not None:
        raise ConfigError(f"--seed {seed}: a run's trials are scored with their own seeds; leave it away")
    _score_run(what, storage, names or ["udr"], set_ or [], size.value, by, as_json)


def _score_arrays(path: Path, names: list[str] | None, sets: list[str], seed: int, size: Any, as_json: bool) -> None:
    from disentune.cli.display import score_lines
    from disentune.results import arrays

    table, names_there = arrays.read_arrays(path)
    sufficient, left_out = arrays.sufficient(names_there) if names is None else (names, {})
    asked = arrays.asked(sufficient, sets, size)
    keys = [key for one in asked for key in one.metric.keys]
    widths = max((len(one.name) for one in asked), default=0), max((len(key) for key in keys), default=0)
    outcomes = []
    for outcome in arrays.scores_of_arrays(asked, table, names_there, seed):
        outcomes.append(outcome)
        if not as_json:
            name = outcome.asked.name
            out.print(score_lines(name, outcome.numbers, outcome.reason, outcome.seconds, widths), markup=False)
            out.file.flush()
    if as_json:
        print_json(arrays.arrays_as_json(outcomes, left_out, len(table.codes), seed, size))
    elif left_out:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
        out.print(f"left out: {reasons}", markup=False)
    scored = any(outcome.numbers for outcome in outcomes)
    failed = names is not None and any(outcome.reason for outcome in outcomes)
    raise typer.Exit(0 if scored and not failed else 1)


def _score_run(
    what: str, storage: str, names: list[str], sets: list[str], size: Any, by: list[str] | None, as_json: bool
) -> None:
    from disentune.cli.display import followed, frame_table
    from disentune.results import arrays, rescore
    from disentune.runs.ledger import find_run

    found, notes = find_run(what, storage), list[str]()
    compared = [name for name in dict.fromkeys(names) if name in arrays.UDR]
    asked = arrays.asked([name for name in names if name not in arrays.UDR], sets, size)
    if by and not compared:
        raise ConfigError(f"--by {by[0]}: groups trials for UDR alone; add udr to --metrics")
    scores = rescore.scores_of_run(
        found, asked, compared, [] if by == ["all"] else by, say=notes.append,
        follow=lambda trials: followed(err, trials, "scoring trials"),
    )  # fmt: skip
    notes += [f"{one.trial_id}, {name}: {reason}" for one in scores.trials for name, reason in one.reasons.items()]
    if as_json:
        print_json(rescore.run_as_json(scores, asked, notes, size))
    else:
        out.print(frame_table(scores.frame, list(scores.frame.columns)))
        for note in notes:
            out.print(f"note: {note}", markup=False)
    failed = any(trial.reasons for trial in scores.trials) or not set(compared) <= set(scores.numbers)
    raise typer.Exit(0 if scores.numbers and not failed else 1)


@app.command()
def train(
    what: Annotated[
        str, typer.Argument(metavar="SWEEP|TRIAL", help="The sweep file, or a trial's folder: runs/x/main/trials/ID.")
    ],
    set_: Sets = None,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """Trains one trial here, without Ray and without writing files.

    Of a sweep the first trial that --only selects. Of a trial's folder exactly
    that trial; at its end the rows are compared, to the bit, with the recorded ones.

    Examples:
    disentune train sweeps/quickstart.yaml --only "arm == 'rescued'" --set training.steps=300
    disentune train runs/quickstart/main/trials/0123456789ab
    """
    from disentune.files.storage import assert_reachable, place
    from disentune.spec import space

    path = place(what)
    assert_reachable(path)
    if not isinstance(path, Path) or path.is_dir() or path.name == "config.json":
        _repeat(path.parent if path.name == "config.json" else path, set_, only, as_json)
        return
    asked = space.read(path, set_ or ())
    _, diverged = _trained(_first_selected(asked, only), asked.sweep.settings, as_json)
    raise typer.Exit(1 if diverged else 0)


def _trained(config: Any, settings: Any, as_json: bool, contents: list[str] | None = None) -> tuple[list[Any], str]:
    """Trains to the end, or until the loss diverges; gives the rows, and how it diverged."""
    from disentune.data.prepared.store import use_root
    from disentune.learn import process
    from disentune.learn.training import Training
    from disentune.runs.segment import divergence

    use_root(settings.data.root)
    _assert_device(config)
    process.prepare(config.training.threads, config.training.device)
    err.print(f"trial {config.id}: {config.training.steps} steps", markup=False)
    training, rows = Training(config, None, settings.data.on_device), list[Any]()
    if contents and contents != training.contents:
        text = f"trial {config.id} was trained on other contents of '{config.dataset.name}' than are prepared here"
        raise ConfigError(f"{text}; prepare the old ones again to repeat it")
    for progress in training.run():
        if progress.row is None:
            continue
        _show_row(progress.row, as_json)
        if cause := divergence(progress.row, settings.stop.divergence):
            err.print(f"diverged: {cause}", markup=False)
            return rows, cause
        rows.append(progress.row)
    return rows, ""


def _show_row(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(cleaned_values(row)), flush=True)  # noqa: T201
    else:
        numbers = "  ".join(f"{key} {value:.4g}" for key, value in row["metrics"].items())
        out.print(f"step {row['step']:>6}  {numbers}", markup=False)


def _assert_device(config: Any) -> None:
    from disentune.learn import cuda

    if config.training.device == "cuda" and not cuda.is_available():
        raise ConfigError(f"trial {config.id} trains on a GPU (training.device: cuda), and this machine has none")


# ---- repeating a trial


def _repeat(path: Any, sets: list[str] | None, only: str | None, as_json: bool) -> None:
    """Trains a recorded trial again; exits with 1 when anything comes out otherwise, or the loss diverges."""
    from disentune.runs.ledger import trial_at
    from disentune.spec.settings import Settings

    if sets:
        raise ConfigError(f"--set {sets[0]}: would make another trial than {path}; name the sweep file to change it")
    if only is not None:
        raise ConfigError(f"--only {only}: chooses a trial of a sweep, but {path} is one; leave it away")
    folder, run = trial_at(path)
    config, recorded, status = folder.config(), folder.rows(), folder.status()
    _refuse_population(run, folder.id, recorded)
    settings = run.sweep().settings if run.exists() else Settings()
    rows, diverged = _trained(config, settings, as_json, status.contents)
    difference = _first_difference(rows, recorded) or _other_ending(status, diverged)
    (err if as_json else out).print(difference or _agreement(rows, recorded, status), markup=False)
    if difference:
        _show_other_environment(run, config)
    raise typer.Exit(1 if difference or diverged else 0)


def _refuse_population(run: Any, trial_id: str, recorded: list[dict[str, Any]]) -> None:
    steps = [row["step"] for row in recorded if row.get("overrides")]
    steps += [generation["step"] for generation in run.generations() if trial_id in generation["moves"]]
    if steps:
        raise ConfigError(
            f"trial {trial_id} cannot be repeated by itself: by step {min(steps)} population based training had given "
            "it the weights of another trial and changed its values; only the whole run repeats it"
        )


def _first_difference(rows: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> str:
    """Of what was computed, among the steps that are recorded; empty when all is equal."""
    here, there = ({row["step"]: _numbers(row) for row in some} for some in (rows, recorded))
    for step in sorted(here.keys() | there.keys()):
        if step > max(there, default=0):
            break
        if step not in here or step not in there:
            return f"differs first at step {step}: it has a row {'here' if step in here else 'recorded'} alone"
        for key in here[step] | there[step]:
            mine, theirs = here[step].get(key, "nothing"), there[step].get(key, "nothing")
            if mine != theirs:
                return f"differs first at step {step}: {key} is {mine:.60} here, but {theirs:.60} is recorded"
    return ""


def _numbers(row: dict[str, Any]) -> dict[str, str]:
    """Every digit of what was measured, as rows are written; how long it took is not among it."""
    details = {f"details.{key}": value for key, value in row.get("details", {}).items()}
    return {key: json.dumps(value) for key, value in (row["metrics"] | details).items()}


def _other_ending(status: Any, diverged: str) -> str:
    """How it diverged otherwise than recorded; empty when it did not. Rows tell of any other ending."""
    if status.state != "diverged" or status.cause == diverged:
        return ""
    return f"differs at its end: {diverged or 'the loss stayed sound'} here, but {status.cause} is recorded"


def _agreement(rows: list[dict[str, Any]], recorded: list[dict[str, Any]], status: Any) -> str:
    ending = "; it diverged as recorded" if status.state == "diverged" else ""
    if not recorded:
        return f"no row is recorded to compare with{ending}"
    if len(recorded) == len(rows):
        return f"all {len(rows)} rows equal the recorded ones to the bit{ending}"
    last = recorded[-1]["step"]
    return f"{len(recorded)} of {len(rows)} rows equal the recorded ones to the bit; none is recorded after step {last}"


def _show_other_environment(run: Any, config: Any) -> None:
    from disentune.environment import differences
    from disentune.runs.ledger import environment_with
    from disentune.spec.config import own_plugins

    here = environment_with(own_plugins(config.tree()))
    if changed := dict.fromkeys(text for then in run.environments() for text in differences(then, here)):
        err.print(f"note: the run began with another environment: {', '.join(changed)}", markup=False)


def _first_selected(asked: Any, only: str | None) -> Any:
    """The first point, or corner of a model-based search, that the expression selects."""
    from disentune.runs.choice import selected_by
    from disentune.spec import space

    corners = (space.Point(config.with_seed(asked.sweep.seeds[0]), (arm,)) for arm, config in asked.unseeded)
    points = asked.points or tuple(corners)
    selected = selected_by(asked.sweep, only or None)
    for point in points:
        if selected is None or selected({**point.config.tree(), "arm": point.arms}):
            return point.config
    raise ConfigError(f"--only {only}: none of the {len(points)} trials is selected")
