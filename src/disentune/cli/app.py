"""The command line: list, plan, run, resume, status, results, report, inspect, sync, score, data, train and more."""

import atexit
import gc
import signal
import sys
import traceback
from contextlib import suppress

import typer

from disentune.cli import catalogue, cluster, data, inspect, report, runs, score, submit, sweeps, train, wandb
from disentune.cli.terminal import OUTPUT, discard, err, name_standard_output, open_standard_streams
from disentune.errors import CRASHED, DONE, INTERRUPTED, UNAVAILABLE, WRONG_INPUT, DisentuneError, Unavailable

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
app.command(help=inspect.HELP)(inspect.inspect)
app.command()(wandb.sync)
app.command()(submit.submit)
app.command("list")(catalogue.list_)
app.command()(sweeps.plan)
app.command()(sweeps.run)
app.command()(sweeps.resume)
app.command()(runs.status)
app.command()(runs.results)
app.command()(score.score)
app.command()(train.train)
app.add_typer(cluster.app)

ExitCode = int | str | None
"""What `sys.exit` takes."""


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 some trials failed, 2 wrong input, 130 interrupted, 70 a crash of our own, 75
    the storage or Ray does not answer."""
    open_standard_streams()
    name_standard_output()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until a sweep runs, both just end the command
    atexit.register(gc.freeze)  # else Python looks at half a million objects of libraries once more before it ends
    code: ExitCode
    try:
        code = _carried_out()
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        discard(sys.stdout)
        code = DONE
    except OSError as error:  # permissions, a full disk: the machine's state, not a bug of ours
        code = _told(error)
    sys.exit(_printed(code))


def _carried_out() -> ExitCode:
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
    except Exception:  # a bug, or trouble in the cluster: a supervisor restarts from the ledger
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


def _printed(code: ExitCode) -> ExitCode:
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
