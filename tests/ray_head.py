"""A Ray head of a test's own, with ports and a folder that no other uses."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from processes import family, kill, patience_s, wait_until

BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    """All held until all are known, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass(frozen=True)
class Head:
    gcs: str
    dashboard: str
    environment: dict[str, str]
    """Of a user who may use the cluster."""


@contextlib.contextmanager
def ray_head(token: str = "", cpus: int = 2) -> Iterator[Head]:
    """A head that takes jobs; all its processes are gone afterwards."""
    port, dashboard, agent, grpc, client = free_ports(5)
    folder = tempfile.mkdtemp(prefix="rh", dir="/tmp")  # short: the path of a socket has 107 letters
    mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    dropped = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN_PATH", "DISENTUNE_STORAGE")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    environment = kept | mode | {"PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "COLUMNS": "300"}
    with open(f"{folder}/head.log", "w") as log:
        process = subprocess.Popen(
            [BIN / "ray", "start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}",
             f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}",
             f"--ray-client-server-port={client}", f"--temp-dir={folder}", f"--num-cpus={cpus}",
             "--include-dashboard=true", "--dashboard-host=127.0.0.1", "--disable-usage-stats"],
            env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{dashboard}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(url), "the head's dashboard")
        assert process.poll() is None, Path(f"{folder}/head.log").read_text()
        yield Head(f"127.0.0.1:{port}", url, environment)
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen) -> None:
    started = family(process)
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s(30))
    kill(started)
    process.wait()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/version", timeout=5).status_code in (200, 401)
    except requests.RequestException:
        return False


@contextlib.contextmanager
def ray_node(head: Head, *before: str, cpus: int = 1, gpus: int = 0, **environment: str) -> Iterator[None]:
    """One more node on this machine; `before` stands before its command."""
    agent, grpc = free_ports(2)
    process = subprocess.Popen(
        [*before, BIN / "ray", "start", "--block", f"--address={head.gcs}", f"--num-cpus={cpus}", f"--num-gpus={gpus}",
         f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}", "--disable-usage-stats"],
        env=head.environment | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        _end(process)
