"""`disentune plan`, `run` and `resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disentune.cli.options import (
    Address,
    AsJson,
    Drop,
    Limit,
    Name,
    Only,
    Retry,
    RunName,
    Sets,
    Storage,
    SweepPath,
)
from disentune.cli.session import show_plan_of
from disentune.cli.stages import carry_out_study, read_chain, read_stages, show_stages, stages_json, study_of
from disentune.cli.terminal import out, patient_progress, print_json
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE
from disentune.sessions.session import Wanted
from disentune.sessions.study import looked_at, planned_study, run_folder

if TYPE_CHECKING:
    from disentune.runs.ledger import Run
    from disentune.runs.preview import Plan
    from disentune.runs.stages import Stage


def _read(path: Path, sets: list[str] | None, only: str | None, storage: str, name: str) -> tuple[Run, list[Stage]]:
    """The run that a sweep file is about, and the stages of the sweep."""
    stages = read_stages(path, sets or (), name, only)
    return run_folder(storage, stages[-1].name, name), stages


def plan(
    sweep: SweepPath,
    set_: Sets = None,
    only: Only = None,
    limit: Limit = None,
    drop: Drop = False,
    name: Name = "main",
    storage: Storage = DEFAULT_STORAGE,
    probe: Annotated[bool, typer.Option("--probe", help="Train a few steps of each arm to estimate the time.")] = False,
    as_json: AsJson = False,
) -> None:
    """Shows what a run would do: trials, disk space, time; and every mistake in the files at once.

    For a sweep that needs others, shows every stage; --set, --only, --limit
    and --drop apply to the sweep itself.

    Example: disentune plan sweeps/quickstart.yaml --probe
    """
    from disentune.data.prepared.store import command_of
    from disentune.learn.cuda import is_available as has_gpu
    from disentune.runs.preview import cost, unprepared

    planned = None
    try:
        study = study_of(*_read(sweep, set_, only, storage, name), Wanted(only, limit, drop=drop))
        looks = looked_at(study)
        planned, asked = planned_study(study, looks), looks.asked
        missing = unprepared(planned)
        if missing and probe:
            commands = "; ".join(command_of(source) for source in missing)
            raise ConfigError(f"--probe: the data must be prepared first: {commands}")
        if probe and not looks.ready:
            raise ConfigError(f"--probe: the sweeps that {study.sweep.name} needs must be finished first")
    except ConfigError as error:
        if as_json:
            print_json(_with_problems(sweep, planned, error))
            raise typer.Exit(2) from None
        raise
    with patient_progress() as say:
        estimate = cost(asked, planned, probe, say) if probe or not as_json else None
    if as_json:
        timing = {"seconds": estimate.seconds, "disk_bytes": estimate.disk} if estimate else {}
        print_json(planned.as_json() | timing | stages_json(study, looks, planned))
        return
    assert estimate is not None
    if study.has_needs:
        show_stages(looks.before, study)
    show_plan_of(planned, estimate, study.run, asked.sweep)
    if asked.sweep.settings.resources.gpu and not has_gpu():
        advice = "run with --address of a cluster that has one, or submit the sweep"
        out.print(f"note: resources.gpu: this machine has no GPU; {advice}", markup=False)
    for source in missing:
        text = f"{source.key} is not prepared; a run prepares it first. To do it now: {command_of(source)}"
        out.print(f"note: {text}", markup=False)


def _with_problems(sweep: Path, planned: Plan | None, error: ConfigError) -> dict[str, Any]:
    """The counts are those of the plan if the sweep itself is right, for example when only its data is missing."""
    problems = [f"{problem.where} {problem.text}" for problem in error.problems] or [str(error)]
    if planned is not None:
        return planned.as_json() | {"problems": problems}
    counts = dict.fromkeys(("trials", "done", "continuing", "new"), 0)
    return {"sweep": sweep.stem, **counts, "arms": [], "problems": problems}


def run(
    sweep: SweepPath,
    set_: Sets = None,
    only: Only = None,
    limit: Limit = None,
    drop: Drop = False,
    name: Name = "main",
    storage: Storage = DEFAULT_STORAGE,
    address: Address = None,
    retry_failed: Retry = False,
) -> None:
    """Runs a sweep, or continues it: finished trials are kept, and an extended sweep runs only its new points.

    The sweeps that it needs (`needs:`) come first, each in a run of its own with
    the same name; --set, --only, --limit and --drop apply to the sweep itself.
    Trials that another run in the same storage has finished are copied from it
    instead of trained. --drop sets aside trials that a smaller or changed sweep no
    longer contains; the old sweep file restores them.

    Examples: disentune run sweeps/quickstart.yaml; disentune run sweeps/quickstart.yaml --set seeds=5 --name five
    """
    wanted = Wanted(only, limit, address, retry_failed, drop)
    carry_out_study(study_of(*_read(sweep, set_, only, storage, name), wanted))


def resume(
    run: RunName,
    limit: Limit = None,
    storage: Storage = DEFAULT_STORAGE,
    address: Address = None,
    retry_failed: Retry = False,
) -> None:
    """Continues an interrupted run; needs only its folder. The runs that it needs are continued first.

    Example: disentune resume runs/quickstart/main
    """
    from disentune.runs.ledger import find_run
    from disentune.runs.stages import begun

    found = find_run(run, storage)
    chain = begun(found)
    stages = read_chain(found.sweep() if chain is None else chain.asked)
    carry_out_study(study_of(found, stages, Wanted(limit=limit, address=address, retry_failed=retry_failed)))
