"""Keeps a sweep's driver alive on a cluster's head.

Usage: `python -m disentune.cluster.supervisor -- run SWEEP --address auto ...`.

After `--` comes a `disentune` command that can be repeated, `run` or `resume`: the ledger records what is done. The
supervisor restarts the command when it crashes (exit code 70, or a signal) and, with more patience, when the storage
does not answer (75). Every other exit code is final. SIGTERM and SIGINT are passed on, and the driver ends when its
supervisor does.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from disentune.environment import versions, without_secrets
from disentune.errors import CRASHED, DONE, INTERRUPTED, SOME_FAILED, UNAVAILABLE, WRONG_INPUT

ENDINGS = (DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED)
"""Exit codes of a driver that ended as intended."""
MOST_CRASHES = 5
"""Consecutive crashes without a new row in the ledger."""
LONGEST_PAUSE_S = 60.0
LONGEST_OUTAGE_S, STEADY_S = 6 * 3600.0, 600.0
"""How long to wait in total during one outage, and how long a driver must run before an outage counts as a new one."""
DRIVER = (sys.executable, "-m", "disentune.cli")
STORAGE = "DISENTUNE_STORAGE"
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _say(text: str) -> None:
    sys.stderr.write(f"{without_secrets(text)}\n")


class Supervisor:
    """Runs one driver at a time, until one ends as intended or is asked to stop."""

    def __init__(
        self,
        arguments: Sequence[str],
        rows: Callable[[], int],
        driver: Sequence[str] = DRIVER,
        say: Callable[[str], None] = _say,
    ):
        self.command, self.rows, self.say = [*driver, *arguments], rows, say
        self.child: subprocess.Popen[bytes] | None = None
        self.stop_signal = 0
        self.crashes, self.known_rows = 0, -1
        self.lived_s, self.outages, self.waited_s = 0.0, 0, 0.0

    def run(self) -> int:
        """The exit code of the last driver, or 128 plus the number of the signal that ended it, as in a shell."""
        self._listen()
        while True:
            code = self._driven()
            if code in ENDINGS:
                return code
            if self.stop_signal:
                return INTERRUPTED
            if not (self._waits_out() if code == UNAVAILABLE else self._survives(_reason(code))):
                return code if code > 0 else 128 - code
            if self.stop_signal:
                return INTERRUPTED

    def _listen(self) -> None:
        wanted = (signal.SIGTERM, signal.SIGINT)
        for number in wanted:
            signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)  # Ray blocks one of them in the processes that it starts

    def _pass_on(self, number: int, frame: Any) -> None:
        self.stop_signal = number
        if self.child is not None:
            self.child.send_signal(number)

    def _driven(self) -> int:
        self.child = subprocess.Popen(self.command, preexec_fn=_ends_with(os.getpid()))
        if self.stop_signal:  # it came before the driver was started
            self.child.send_signal(self.stop_signal)
        began = time.monotonic()
        code = self.child.wait()
        self.child, self.lived_s = None, time.monotonic() - began
        return code

    def _waits_out(self) -> bool:
        """Pauses; returns False when the outage has lasted too long."""
        if self.lived_s > STEADY_S:
            self.outages, self.waited_s = 0, 0.0
        if self.waited_s > LONGEST_OUTAGE_S:
            self.say(f"supervisor: the storage has not answered for {self.waited_s:.0f} s; giving up")
            return False
        pause = min(2.0**self.outages, LONGEST_PAUSE_S)
        self.say(f"supervisor: the storage does not answer; restarting the driver in {pause:g} s")
        self.outages, self.waited_s = self.outages + 1, self.waited_s + pause + self.lived_s
        self._pause(pause)
        return True

    def _survives(self, reason: str) -> bool:
        """Counts the crash and pauses; returns False after too many. Failed trials are retried only once."""
        self.command = [word for word in self.command if word != "--retry-failed"]
        rows = self._rows_now()
        self.crashes = 1 if rows > self.known_rows else self.crashes + 1
        self.known_rows = max(rows, self.known_rows)
        if self.crashes >= MOST_CRASHES:
            self.say(f"supervisor: the driver {reason}, {self.crashes} times in a row without a new row; giving up")
            return False
        pause = min(2.0 ** (self.crashes - 1), LONGEST_PAUSE_S)
        self.say(f"supervisor: the driver {reason}; restarting in {pause:g} s (crash {self.crashes} of {MOST_CRASHES})")
        self._pause(pause)
        return True

    def _rows_now(self) -> int:
        """The number of rows; unreadable rows count as no progress."""
        try:
            return self.rows()
        except Exception as error:  # whatever it is, the driver must be restarted
            self.say(
                f"supervisor: cannot count the rows of the run: {type(error).__name__}: {str(error).strip()[:200]}"
            )
            return self.known_rows

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stop_signal and time.monotonic() < until:
            time.sleep(0.05)


def _reason(code: int) -> str:
    if code == CRASHED:
        return "crashed (its traceback is above)"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _ends_with(parent: int) -> Callable[[], None]:
    """Called in the child before it becomes the driver: requests SIGTERM when the supervisor dies, for any reason, so
    that the driver writes its checkpoints, ends, and releases the run's lock."""

    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
            if os.getppid() != parent:  # the supervisor has died in between
                os._exit(CRASHED)

    return prepare


# ---- the run that a command is about


def rows_of(arguments: Sequence[str]) -> int:
    """Rows in the ledgers of the run that a `run` or `resume` command is about, and of the runs that it needs."""
    from disentune.files.storage import place
    from disentune.runs.ledger import Run, find_run
    from disentune.runs.stages import begun, runs_of
    from disentune.spec.sweepfile import read_sweep

    asked = _parsed(arguments)
    if asked.command == "resume":
        run = find_run(asked.what, place(asked.storage))
        chain = begun(run)
        runs = runs_of(chain.asked, run) if chain is not None else [run]
    else:
        sweep = read_sweep(Path(asked.what), asked.set)
        runs = runs_of(sweep, Run(place(asked.storage) / sweep.name / asked.name))
    return sum(len(trial.rows()) for run in runs for trial in run.known_trials("rows.jsonl").values())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The parts of a command that identify its run; the driver itself reports mistakes in the command."""
    from disentune.files.storage import DEFAULT_STORAGE

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("command")
    parser.add_argument("what")
    parser.add_argument("--storage", default=os.environ.get(STORAGE, DEFAULT_STORAGE))
    parser.add_argument("--name", default="main")
    parser.add_argument("--set", action="append", default=[])
    for option in ("--only", "--limit", "--address"):
        parser.add_argument(option)
    parser.add_argument("--retry-failed", action="store_true")
    try:
        return parser.parse_args(list(arguments))
    except (argparse.ArgumentError, SystemExit) as error:
        raise ValueError(f"`{' '.join(arguments)}` is not a run or resume command") from error


# ---- versions of the sender and of the head


def mismatch(sent: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Differences in versions that stop a sweep, and differences that are only worth a note."""
    refused = [
        f"the sweep was sent with {name} {sent[name]}, but the head has {here[name]}; install the same version on both"
        for name in ("disentune", "ray") if sent.get(name) and sent[name] != here[name]
    ]  # fmt: skip
    if sent.get("commit") and here["commit"] and sent["commit"] != here["commit"]:
        noted = [f"the sweep was sent from disentune commit {sent['commit']}, but the head has commit {here['commit']}"]
    else:
        noted = []
    return refused, noted


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    own, arguments = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    usage = "%(prog)s -- run SWEEP --address auto ..."
    parser = argparse.ArgumentParser("python -m disentune.cluster.supervisor", usage=usage)
    parser.add_argument("--sent-by", type=json.loads, metavar="JSON", help="versions of the sender")
    sent = parser.parse_args(own).sent_by
    if not arguments:
        parser.error("the command to run must follow --")
    if sent is not None:
        refused, noted = mismatch(sent, versions())
        if "--storage" not in arguments and STORAGE not in os.environ:
            refused.append(f"no storage: {STORAGE} is not set on the head; use disentune submit --storage ...")
        for text in (*refused, *(f"note: {text}" for text in noted)):
            _say(text)
        if refused:
            return WRONG_INPUT
    return Supervisor(arguments, lambda: rows_of(arguments)).run()


if __name__ == "__main__":
    sys.exit(main())
