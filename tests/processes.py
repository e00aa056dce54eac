"""Helpers of tests that start real commands."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import psutil

SCRIPT = Path(sys.executable).with_name("disentune")
USUAL_S = 240.0
"""Many times what any step of a test takes on a machine that has nothing else to do."""


def patience_s(usual_s: float = USUAL_S) -> float:
    """How long to wait for something before it counts as hung: longer while others use the machine's cores too."""
    return usual_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


PIPE_S = patience_s(20)
"""How long a test lets somebody wait for a pipe."""


class Commands:
    """Runs `disentune` commands in a folder; a Ray session started here lives in a temporary folder of its own."""

    def __init__(self, folder: Path, ray_folder: str, script: Path):
        self.folder, self.script = folder, script
        self.environment = {**os.environ, "RAY_TMPDIR": ray_folder, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        self.started: list[subprocess.Popen] = []

    def start(self, *arguments: str, into: int | IO = subprocess.PIPE, program: Sequence[str] = ()) -> subprocess.Popen:
        process = subprocess.Popen(
            [*(program or [str(self.script)]), *arguments],
            cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdout=into, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=patience_s())
        return process.returncode, output

    def json(self, *arguments: str) -> object:
        done = subprocess.run(
            [sys.executable, "-m", "disentune.cli", *arguments, "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=patience_s(), check=True,
        )  # fmt: skip
        return json.loads(done.stdout)


@contextlib.contextmanager
def commands_in(folder: Path, script: Path = SCRIPT) -> Iterator[Commands]:
    """Commands that leave nothing behind: no process and no file of a Ray session."""
    ray_folder = tempfile.mkdtemp(prefix="dt-", dir="/tmp")  # short: a socket's path has at most 107 characters
    made = Commands(folder, ray_folder, script)
    try:
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                kill(family(process))
            process.wait(timeout=patience_s())
        left = [one for one in psutil.process_iter(["cmdline"]) if ray_folder in " ".join(one.info["cmdline"] or [])]
        psutil.wait_procs(left, timeout=patience_s(30))
        kill(left)
        for process in made.started:
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(ray_folder, ignore_errors=True)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """A started command and all that it started."""
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)


def wait_until(condition: Callable[[], object], what: str) -> None:
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < patience_s(), f"waited {waited:.0f} s in vain for {what}"
        time.sleep(0.02)


def rows_on_disk(run: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in run.glob("trials/*/rows.jsonl"))


@contextlib.contextmanager
def little_memory(more_bytes: int) -> Iterator[None]:
    """This process may take so much more than it has; what is above fails at once, and harms nobody else."""
    before, taken = resource.getrlimit(resource.RLIMIT_AS), psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (taken + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def unblocked(pipe: Path) -> Iterator[None]:
    """Whoever waits for the pipe reads its end after a while, so that the test fails instead of waiting."""

    done = threading.Event()

    def end() -> None:
        done.wait(PIPE_S)
        while not done.wait(0.1):
            with contextlib.suppress(OSError):  # nobody waits
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
