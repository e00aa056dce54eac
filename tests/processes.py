"""Helpers of tests that start real commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE_S = 240


class Commands:
    """Runs `disentune` commands in a folder; a Ray session started here lives in a temporary folder of its own."""

    def __init__(self, folder: Path, ray_folder: str):
        self.folder = folder
        self.environment = {**os.environ, "RAY_TMPDIR": ray_folder, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        self.started: list[subprocess.Popen] = []

    def start(self, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("disentune")), *arguments],
            cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output

    def json(self, *arguments: str) -> object:
        done = subprocess.run(
            [sys.executable, "-m", "disentune.cli", *arguments, "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)


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
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain for {what}"
        time.sleep(0.02)


def rows_on_disk(run: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in run.glob("trials/*/rows.jsonl"))
