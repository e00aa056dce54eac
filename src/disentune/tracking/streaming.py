"""The driver's side of W&B: a process beside it that reads the ledger and streams it. Neither can harm the other."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from disentune.runs.ledger import Run
from disentune.tracking.connection import Connection

QUIET_S, FLUSH_S = 3.0, 180.0
"""How long the end of a session waits for what is still to be sent: without a word, and at most."""


class Streaming:
    """Told of trials that have news. Telling never waits: a hint that is lost costs only time, for at the end of the
    hints (however the driver ends) the process goes through the whole ledger."""

    def __init__(self, run: Run, connection: Connection | None, say: Callable[[str], None]):
        self.run, self.connection, self.say = run, connection, say
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Streaming":
        if self.connection is not None:
            self.process = _started(self.run)
        return self

    def hint(self, trial_id: str) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):  # its buffer is full, or it has ended
                os.write(self.process.stdin.fileno(), f"{trial_id}\n".encode())

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Waits for the rest to be sent, unless the driver was told to end at once."""
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
            self.say("it is sent in the background, as far as the server takes it")

    def _wait_aloud(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            process.wait(QUIET_S)
        except subprocess.TimeoutExpired:
            self.say("W&B: sending what is left; Ctrl-C does not wait for it")
            process.wait(FLUSH_S)


def _started(run: Run) -> "subprocess.Popen[bytes]":
    """In a session of its own: Ctrl-C is for the driver."""
    command = [sys.executable, "-P", "-m", "disentune.tracking", str(run.path)]  # nothing of the working folder
    with open(run.tracking_log, "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process
