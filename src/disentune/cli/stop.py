"""`disentune stop`: asks a running sweep, also one on another machine, to checkpoint and end."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import RunName, Storage
from disentune.cli.terminal import PLAIN_INTERVAL_S, out, quoted
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from disentune.runs.ledger import Run

TERMINAL_INTERVAL_S = 1.0


def stop(
    run: RunName,
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress until the run has ended.")] = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Asks a running sweep to write its checkpoints and end, as Ctrl-C does there; works from any machine.

    Nothing is lost: `disentune resume` continues where the trials stopped. The
    command that runs the sweep ends with exit code 130, and a supervisor on a
    cluster does not restart it.

    Examples: disentune stop quickstart; disentune stop s3://bucket/runs/quickstart/main --wait
    """
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    if not found.is_running():
        out.print(f"{shown(found.path)} is not running, so there is nothing to stop", markup=False)
        out.print(f"see how far it is: disentune status {quoted(found.path)}", markup=False)
        return
    asked = found.stop_reason()
    if asked is None:
        found.ask_to_stop(f"disentune stop on {socket.gethostname()}")
        out.print(f"asked {shown(found.path)} to stop: its trials write their checkpoints and end", markup=False)
    else:
        out.print(f"{shown(found.path)} is already stopping ({asked})", markup=False)
    if wait:
        with suppress(KeyboardInterrupt):  # ends the waiting; the request stays
            _wait(found)
        return
    out.print(f"follow it with: disentune status {quoted(found.path)} --watch", markup=False)
    _show_next(found)


def _show_next(run: Run) -> None:
    out.print(f"continue later with: disentune resume {quoted(run.path)}", markup=False)


def _wait(run: Run) -> None:
    """Until no driver holds the run; the last picture says how to continue."""
    from disentune.cli.watching import watch
    from disentune.results.watch import looks

    every_s = TERMINAL_INTERVAL_S if out.is_terminal else PLAIN_INTERVAL_S
    watch(out, looks(run, every_s), shown(run.path))
