"""Starts a process beside the driver that reads the ledger and streams it to W&B. Neither can harm the other."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from disentune.runs.ledger import Run
from disentune.tracking.connection import Connection

QUIET_S, FLUSH_S = 3.0, 180.0
"""How long the end of a session waits for the rest to be sent: silently, and at most."""


class Streaming:
    """Receives hints about trials that have news. A hint never waits. A lost hint costs only time: after the last one
    (however the driver ends) the process goes through the whole ledger."""

    def __init__(self, run: Run, connection: Connection | None, say: Callable[[str], None]):
        self.run, self.connection, self.say = run, connection, say
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Streaming":
        if self.connection is not None:
            self.process = _started(self.run)
        return self

    def hint(self, trial_id: str) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):  # the buffer is full, or the process has ended
                os.write(self.process.stdin.fileno(), f"{trial_id}\n".encode())

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Waits for the rest to be sent, unless the driver has to end immediately."""
        if self.process is None or self.process.stdin is None:
            return
        with suppress(OSError):
            self.process.stdin.close()
        if kind is None or issubclass(kind, Exception):
            self._wait()

    def _wait(self) -> None:
        assert self.process is not None
        try:
            self._wait_aloud(self.process)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        except KeyboardInterrupt:
            self.say("W&B: sending the rest in the background")

    def _wait_aloud(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            process.wait(QUIET_S)
        except subprocess.TimeoutExpired:
            self.say("W&B: sending the remaining rows; press Ctrl-C to send them in the background")
            process.wait(FLUSH_S)


def _started(run: Run) -> "subprocess.Popen[bytes]":
    """Starts the process in a session of its own, so that Ctrl-C reaches only the driver."""
    command = [sys.executable, "-P", "-m", "disentune.tracking", str(run.path)]  # -P: no imports from here
    with open(run.tracking_log, "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process
