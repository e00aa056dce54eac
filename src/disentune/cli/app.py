"""The command line: every command, and its exit code."""

import atexit
import gc
import signal
import sys
import traceback
from contextlib import suppress
from inspect import getdoc
from typing import Annotated

import typer

from disentune.cli import (
    analyse,
    archive,
    catalogue,
    clean,
    cluster,
    compare,
    dashboard,
    data,
    inspect,
    listing,
    models,
    new,
    quickstart,
    report,
    runs,
    score,
    stop,
    submit,
    sweeps,
    train,
    verify,
    wandb,
)
from disentune.cli.terminal import OUTPUT, discard, err, name_standard_output, open_standard_streams, out
from disentune.errors import CRASHED, DONE, INTERRUPTED, UNAVAILABLE, WRONG_INPUT, DisentuneError, Unavailable

EXIT_CODES = (
    "Exit codes: 0 success, 1 some trials failed, 2 wrong input, 70 a bug in disentune, 75 the storage or Ray does not "
    "answer, 130 interrupted."
)


def help_text(written: str) -> str:
    """The help of a command, with prose on one line per paragraph so that it fills the terminal; lists keep theirs."""
    return "\n\n".join(part if _is_list(part) else " ".join(part.split("\n")) for part in written.split("\n\n"))


def _is_list(paragraph: str) -> bool:
    return paragraph.startswith(("\b", "Examples:\n"))


app = typer.Typer(
    name="disentune",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

START, RUN, LOOK, KEEP = "Start", "Run", "Look at results", "Keep and move runs"
OTHER = "Cluster, data and W&B"
app.command(rich_help_panel=START)(quickstart.quickstart)
app.command(rich_help_panel=START)(new.new)
app.command("list", rich_help_panel=START)(catalogue.list_)
app.command(rich_help_panel=RUN)(sweeps.plan)
app.command(rich_help_panel=RUN, help=inspect.HELP)(inspect.inspect)
app.command(rich_help_panel=RUN)(sweeps.run)
app.command(rich_help_panel=RUN)(sweeps.resume)
app.command(rich_help_panel=RUN)(stop.stop)
app.command(rich_help_panel=RUN)(train.train)
app.command(rich_help_panel=LOOK)(listing.runs)
app.command(rich_help_panel=LOOK)(runs.status)
app.command(rich_help_panel=LOOK)(runs.results)
app.command(rich_help_panel=LOOK)(compare.compare)
app.command(rich_help_panel=LOOK)(analyse.analyse)
app.command(rich_help_panel=LOOK)(report.report)
app.command(rich_help_panel=LOOK)(score.score)
app.command(rich_help_panel=LOOK)(dashboard.dashboard)
app.command(rich_help_panel=LOOK)(models.export)
app.command(rich_help_panel=LOOK)(models.encode)
app.command(rich_help_panel=KEEP)(verify.verify)
app.command(rich_help_panel=KEEP)(clean.clean)
app.command(rich_help_panel=KEEP)(archive.archive)
app.command(rich_help_panel=KEEP)(archive.restore)
app.add_typer(data.app, rich_help_panel=OTHER)
app.add_typer(cluster.app, rich_help_panel=OTHER)
app.command(rich_help_panel=OTHER)(submit.submit)
app.command(rich_help_panel=OTHER)(wandb.sync)
for _part in (app, data.app, cluster.app):
    for _command in _part.registered_commands:
        _command.help = help_text(_command.help or getdoc(_command.callback) or "")


def _show_version(asked: bool) -> None:
    if asked:
        from disentune.environment import versions

        found = versions()
        others = ", ".join(f"{name} {found[name.lower()]}" for name in ("Python", "ray", "torch"))
        out.print(f"disentune {found['disentune']} ({others})", markup=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Distributed sweeps for disentanglement research: one file in, one trustworthy table out."""


ExitCode = int | str | None
"""What `sys.exit` accepts."""


def main() -> None:
    """Entry point of the command; EXIT_CODES lists how it ends."""
    open_standard_streams()
    name_standard_output()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # same as Ctrl-C, until a sweep handles both itself
    atexit.register(gc.freeze)  # otherwise the last collection visits half a million objects of libraries
    code: ExitCode
    try:
        code = _run_command()
    except BrokenPipeError:  # the reader of the pipe, such as head, has closed it
        discard(sys.stdout)
        code = DONE
    except OSError as error:  # permissions, a full disk: a problem of the machine, not a bug
        code = _report(error)
    sys.exit(_flushed(code))


def _run_command() -> ExitCode:
    """Runs the command of the command line and gives its exit code."""
    try:
        app()
    except SystemExit as end:
        return end.code
    except DisentuneError as error:
        _print_error(str(error))
        return UNAVAILABLE if isinstance(error, Unavailable) else WRONG_INPUT
    except KeyboardInterrupt:
        _print_error("interrupted; continue a run with: disentune resume RUN")
        return INTERRUPTED
    except OSError:
        raise
    except Exception:  # a bug or a cluster problem; a supervisor restarts from the ledger
        _print_error(traceback.format_exc().rstrip("\n"))
        return CRASHED
    return DONE


def _print_error(text: str) -> None:
    """Prints to standard error, if it can be written; the exit code reports the error in any case."""
    with suppress(OSError):
        err.print(text, markup=False)


def _report(error: OSError) -> int:
    """Prints the error and gives the exit code: an outage may end, so the same command may succeed later."""
    from disentune.files.storage import TRANSIENT

    _print_error(_message(error))
    return UNAVAILABLE if error.errno in TRANSIENT else WRONG_INPUT


def _flushed(code: ExitCode) -> ExitCode:
    """The exit code after all output has been written; Python itself would end with a traceback and 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        discard(sys.stdout)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            return code or _report(error)
    return code


def _message(error: OSError) -> str:
    from disentune.files.storage import advice

    if error.filename == OUTPUT:
        return f"{OUTPUT} cannot be written: {error.strerror}"
    text = f"{error.filename or 'the storage'}: {error.strerror or error}"
    return f"{text}; {advice(error)}" if advice(error) else text
