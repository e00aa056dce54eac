"""`disentune submit`: sends a sweep as a job to a cluster, where it runs without the machine that sent it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import Limit, Name, Retry, Sets, SweepPath
from disentune.cli.stages import read_stages
from disentune.cli.terminal import err, out
from disentune.errors import INTERRUPTED, ConfigError
from disentune.sessions.study import assert_run_name

if TYPE_CHECKING:
    from disentune.cluster.submission import Job
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile


def submit(
    sweep: SweepPath,
    address: Annotated[
        str, typer.Option(envvar="RAY_API_SERVER_ADDRESS", help="The dashboard of the cluster's head.")
    ] = "http://127.0.0.1:8265",
    set_: Sets = None,
    only: Annotated[str | None, typer.Option(help="Only trials that match, as for run.")] = None,
    limit: Limit = None,
    name: Name = "main",
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="DISENTUNE_STORAGE",
            help="Where runs are stored: a path on every node, or s3://... Default: the head's DISENTUNE_STORAGE.",
        ),
    ] = None,
    retry_failed: Retry = False,
    working_dir: Annotated[Path | None, typer.Option(help="Folder with your own plug-ins, sent with the job.")] = None,
    follow: Annotated[bool, typer.Option(help="Show the job's output until it ends.")] = True,
) -> None:
    """Sends a sweep to a running cluster, where it runs without this machine.

    Mistakes in the files are reported before anything is sent. On the head the sweep runs under a supervisor
    that restarts it after a crash. Ctrl-C only stops following the output. The sweeps that
    it needs are sent along and run first, in the same job; --set, --only and --limit apply to the sweep itself.

    Example: disentune submit sweeps/quickstart.yaml --address http://127.0.0.1:8265 --storage s3://bucket/runs
    """
    from disentune.cluster import submission
    from disentune.cluster.token import token_notes

    if working_dir is not None:
        working_dir = working_dir.resolve()
        submission.assert_small(working_dir)
        sys.path.insert(0, str(working_dir))  # the cluster imports plug-ins from there
    stages = read_stages(sweep, set_ or (), name, only)
    asked = stages[-1].asked
    read = asked.sweep
    assert_run_name(name)
    submission.assert_storage(storage)
    before = "".join(f"{_trials(stage.asked, None, None)} trials of {stage.name}, then " for stage in stages[:-1])
    trials = _trials(asked, only, limit)
    submission.assert_plugins_sent(read, working_dir)
    job = submission.Job(read, name, storage, _arguments(only, limit, retry_failed), working_dir)
    client = submission.connected(address)
    id = submission.submit(client, job)
    url = submission.url_of(address)
    out.print(f"job {id}: {job.run}, {before}{trials} trials, at {url}", markup=False)
    _show_commands(id, url, job)
    _note_wandb(read)
    for note in token_notes():
        err.print(f"note: {note}", markup=False)
    if follow:
        raise typer.Exit(_followed(client, id, url, job))


def _followed(client: object, id: str, url: str, job: Job) -> int:
    """Shows the job's output until it ends; the exit code."""
    from disentune.cluster import submission

    try:
        return submission.follow(client, id, submission.show_line, lambda text: err.print(text, markup=False))
    except KeyboardInterrupt:
        out.print("\nno longer following; the job continues:", markup=False)
        _show_commands(id, url, job)
        return INTERRUPTED


def _arguments(only: str | None, limit: int | None, retry_failed: bool) -> list[str]:
    arguments = ["--only", only] if only is not None else []
    arguments += ["--limit", str(limit)] if limit is not None else []
    return arguments + (["--retry-failed"] if retry_failed else [])


def _trials(asked: SweepPoints, only: str | None, limit: int | None) -> int:
    """The number of requested trials, as far as it is known without the run. The points have been checked already; this
    builds a model of each arm and checks the filters."""
    from disentune.runs.choice import filters_allowed
    from disentune.runs.preview import cost, plan_afresh

    filters_allowed(asked.sweep, only is not None, limit is not None)
    plan = plan_afresh(asked, only)
    if only is not None and not plan.trials:
        raise ConfigError(f"--only {only!r}: selects no trial of the sweep")
    cost(asked, plan, probe=False)
    return min(plan.trials, limit or plan.trials)


def _show_commands(id: str, url: str, job: Job) -> None:
    out.print(f"  follow: ray job logs {id} --follow --address {url}", markup=False)
    out.print(f"  stop:   ray job stop {id} --address {url}   (its trials write checkpoints first)", markup=False)
    where = shlex.quote(f"{job.storage.rstrip('/')}/{job.run}") if job.storage else f"{job.run} --storage ..."
    out.print(f"  status: disentune status {where}", markup=False)


def _note_wandb(sweep: SweepFile) -> None:
    """The API key is not sent, because the dashboard shows a job's environment."""
    from disentune.tracking.connection import connection

    if sweep.settings.wandb is None or not os.environ.get("WANDB_API_KEY"):
        return
    streamed = connection(sweep.settings.wandb, sweep.name, "")
    if streamed is not None and streamed.online:
        out.print(
            "W&B: this machine's API key is not sent; copy it to the head once, by ssh: "
            "ray rsync-up cluster.yaml ~/.netrc '~/.netrc'",
            markup=False,
        )
