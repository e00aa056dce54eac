"""Real commands in real processes, with a Ray of their own that leaves nothing behind."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from processes import PATIENCE_S, Commands, family, kill


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    ray_folder = tempfile.mkdtemp(prefix="dt-", dir="/tmp")  # short: a socket's path has at most 107 characters
    made = Commands(tmp_path, ray_folder)
    yield made
    for process in made.started:
        if process.poll() is None:
            kill(family(process))
        process.wait(timeout=PATIENCE_S)
        if process.stdout:
            process.stdout.close()
    left = [one for one in psutil.process_iter(["cmdline"]) if ray_folder in " ".join(one.info["cmdline"] or [])]
    psutil.wait_procs(left, timeout=30)
    kill(left)
    shutil.rmtree(ray_folder, ignore_errors=True)
