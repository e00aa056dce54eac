"""A sweep as a job of a running cluster (Ray Jobs): it goes on without the machine that sent it.

What is sent is the resolved sweep, so that no file of this machine is needed there, and a user's own plug-ins if asked.
No key is sent: a job's settings can be read by whoever sees the dashboard.
"""

import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from disentune.driver.ray_internals import has_no_agent
from disentune.environment import versions, without_secrets
from disentune.errors import CRASHED, INTERRUPTED, ConfigError, first_line
from disentune.files import documents
from disentune.files.storage import place, without_password
from disentune.spec.sweepfile import SweepFile

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
SWEEP_FILE = "disentune-sweep.yaml"
STOP_WAIT_S = 300
"""How long Ray waits for a stopped job before it kills it; trials write their checkpoints in that time."""
ANSWER_S = 10.0
AGENT_S = 60.0
"""How long a head that was just started is given until it takes jobs."""
LOST_S = 600.0
"""How long a lost connection is tried again while a job is followed."""
MOST_MB = 100
LEFT_OUT = (".*", "venv", "__pycache__", "*.pyc", "node_modules", "runs", "wandb")
"""Hidden files may hold keys, and no plug-in is one."""
TOKEN = "put the head's ~/.ray/auth_token there on this machine, and: export RAY_AUTH_MODE=token"
_PLUGIN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_RAYS_OWN_LINE = re.compile(r"Running entrypoint for job |.*\sINFO job_manager\.py:\d+ -- ")


# ---- the cluster


def url_of(address: str) -> str:
    """The address of a cluster's dashboard, which takes jobs."""
    if address == "auto":
        return DEFAULT_ADDRESS
    if not re.fullmatch(r"https?://[^/?#@]+/*", address):
        raise ConfigError(
            f"--address {without_password(address)}: must be the dashboard of the cluster's head, for example "
            f"{DEFAULT_ADDRESS}; `ray dashboard cluster.yaml` brings it there"
        )
    return address.rstrip("/")


def connected(address: str) -> Any:
    """A client of the cluster's jobs that has been answered. Raises ConfigError with what to do."""
    url = url_of(address)
    _assert_answers(url)
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)
    try:
        with _without("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # which Ray would prefer to what it is given
            client = JobSubmissionClient(url)
        client.list_jobs()
    except AuthenticationError as error:
        wants = "wants a token, and none was sent" if "required" in str(error) else "refuses this machine's token"
        raise ConfigError(f"--address {url}: the cluster {wants}; {TOKEN}") from None
    except (requests.RequestException, ConnectionError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"--address {url}: no Ray dashboard answers there ({first_line(error)})") from None
    _assert_same_ray(url, client._server_ray_version)  # which it has asked for by itself
    return client


def _assert_answers(url: str) -> None:
    """Without this a host that swallows packets, or a server that is none of Ray's, is waited for without end."""
    import requests

    try:
        requests.get(f"{url}/api/version", timeout=ANSWER_S)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--address {url}: nothing answers there ({_why(error)}); is the head up, and its dashboard brought "
            "here with `ray dashboard cluster.yaml`?"
        ) from None


def _why(error: Exception) -> str:
    """Of the many words of an HTTP client those of the system."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer in {ANSWER_S:g} s"
    found = re.search(r"\[Errno -?\d+\] [\w ]+", str(error))
    return found[0] if found else first_line(error)


def _assert_same_ray(url: str, version: str | None) -> None:
    here = versions()["ray"]
    if version and version != here:
        raise ConfigError(
            f"--address {url}: the cluster runs Ray {version}, this machine {here}; install the same version on both"
        )


@contextmanager
def _without(*names: str) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


# ---- what is sent


def assert_storage(storage: str | None) -> None:
    """None: the head's environment says it."""
    if storage is None:
        return
    if isinstance(where := place(storage), Path) and not where.is_absolute():
        raise ConfigError(
            f"--storage {storage}: must be a path from / that every node sees, or s3://bucket/folder: the cluster "
            "has no part in this machine's folders"
        )


def assert_plugins_sent(sweep: SweepFile, working_dir: Path | None) -> None:
    """A user's own plug-ins must be in what is sent, or be installed like any package."""
    for plugin in sorted(_plugins(sweep.resolved()["arms"])):
        file = _file_of(plugin.partition(":")[0])
        if file is None or "site-packages" in file.parts or "dist-packages" in file.parts:
            continue
        if working_dir is None or not file.is_relative_to(working_dir.resolve()):
            folder = _import_folder(plugin, file)
            raise ConfigError(
                f"{sweep.file} uses '{plugin}' of {file}, which the cluster does not have; send it with "
                f"--working-dir {folder}"
            )


def _plugins(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        return set().union(*map(_plugins, tree.values()))
    if isinstance(tree, list | tuple):
        return set().union(*map(_plugins, tree))
    return {tree} if isinstance(tree, str) and _PLUGIN.fullmatch(tree) else set()


def _file_of(module: str) -> Path | None:
    try:
        found = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(found.origin).resolve() if found is not None and found.origin else None


def _import_folder(plugin: str, file: Path) -> Path:
    """The folder from which its module is imported: `lab/vae.py` of `lab.vae` is imported from above `lab`."""
    depth = plugin.partition(":")[0].count(".") + (file.name == "__init__.py")
    return file.parents[depth]


@contextmanager
def packed(sweep: SweepFile | None, working_dir: Path | None) -> Iterator[Path]:
    """A folder that holds the resolved sweep, and what is in the user's own folder."""
    with tempfile.TemporaryDirectory(prefix="disentune-submit-") as name:
        folder = Path(name) / "job"
        if working_dir is None:
            folder.mkdir()
        else:
            assert_small(working_dir)
            _copy(working_dir, folder)
        if sweep is not None:
            with open(folder / SWEEP_FILE, "w") as file:
                documents.dump(sweep.resolved(), file)
        yield folder


def _copy(source: Path, target: Path) -> None:
    _assert_no_hidden_targets(source)
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), ignore_dangling_symlinks=True)
    except shutil.Error as error:
        path, _, why = error.args[0][0]
        raise ConfigError(f"--working-dir {source}: {path} cannot be sent: {why}") from None


def _assert_no_hidden_targets(folder: Path) -> None:
    """What a link points to is sent; keys lie in hidden places."""
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    for parent, folders, files in os.walk(folder):
        folders[:] = set(folders) - left_out(parent, folders)
        for path in (Path(parent) / one for one in {*folders, *files} - left_out(parent, [*folders, *files])):
            target = Path(os.path.realpath(path))
            hidden = any(part.startswith(".") for part in target.parts)
            if path.is_symlink() and hidden and not target.is_relative_to(os.path.realpath(folder)):
                raise ConfigError(f"--working-dir {folder}: {path} is a link to {target}, which is hidden and not sent")


def assert_small(folder: Path) -> None:
    """Links count as what they point to, for that is what is sent."""
    if not folder.is_dir():
        raise ConfigError(f"--working-dir {folder}: is no folder")
    left_out, sizes = shutil.ignore_patterns(*LEFT_OUT), Counter[str]()
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = set(folders) - left_out(parent, folders)
        top = Path(parent).relative_to(folder).parts[:1]
        for one in set(files) - left_out(parent, files):
            with suppress(OSError):  # a link to nowhere, or to itself
                sizes[top[0] if top else one] += (Path(parent) / one).stat().st_size
        if sizes.total() > MOST_MB * 1e6:
            ((largest, size),) = sizes.most_common(1)
            raise ConfigError(
                f"--working-dir {folder}: more than {MOST_MB} MB are not sent; the largest in it is '{largest}' "
                f"({size / 1e6:,.0f} MB); name a folder that holds the plug-ins alone"
            )


# ---- jobs


@dataclass(frozen=True)
class Job:
    """What is asked for; `arguments` are of `disentune run`, without the sweep and the storage."""

    sweep: SweepFile
    name: str
    storage: str | None
    arguments: Sequence[str] = ()
    working_dir: Path | None = None

    @property
    def run(self) -> str:
        return f"{self.sweep.name}/{self.name}"

    def entrypoint(self) -> str:
        storage = ["--storage", self.storage] if self.storage else []
        command = ["run", SWEEP_FILE, "--address", "auto", "--name", self.name, *storage, *self.arguments]
        supervisor = ["-m", "disentune.cluster.supervisor", "--sent-by", json.dumps(versions())]
        return python_on_the_head([*supervisor, "--", *command])


def python_on_the_head(arguments: Sequence[str]) -> str:
    """A shell's line that says what is wrong where Python or disentune is not to be found, instead of failing as a
    sweep may fail."""
    complaint = "the head finds no python that has disentune; its setup must install it for whoever runs ray start"
    look = f"python -c 'import disentune' || {{ echo {shlex.quote(complaint)}; exit 2; }}"
    return f"{look}; exec {shlex.join(['python', *arguments])}"


def submit(client: Any, job: Job) -> str:
    """Sends it and gives the job's id. ConfigError when the run is being run already."""
    jobs = client.list_jobs()
    refuse_second(job, jobs)
    base = f"disentune-{job.sweep.name}-{job.name}"
    taken = {one.submission_id for one in jobs}
    number = next(number for number in range(1, len(taken) + 2) if f"{base}-{number}" not in taken)
    metadata = {"disentune_run": job.run, "disentune_storage": job.storage or ""}
    return _sent(client, job.sweep, job.working_dir, job.entrypoint(), f"{base}-{number}", metadata)


def refuse_second(job: Job, jobs: Sequence[Any]) -> None:
    """Two that are sent at the same moment get the same id, which Ray refuses; the run's own lock is the last guard."""
    for one in jobs:
        told = one.metadata or {}
        places = {told.get("disentune_storage"), job.storage} - {None, ""}  # which is not told may be the same
        if told.get("disentune_run") == job.run and len(places) < 2 and not one.status.is_terminal():
            raise ConfigError(
                f"{job.run} is being run already, by job {one.submission_id}; wait for it, stop it, or choose another "
                "--name"
            )


def _sent(
    client: Any,
    sweep: SweepFile | None,
    working_dir: Path | None,
    entrypoint: str,
    id: str | None,
    metadata: dict[str, str],
) -> str:
    with packed(sweep, working_dir) as folder:
        environment = {"working_dir": str(folder), "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}}
        deadline = time.monotonic() + AGENT_S
        while True:
            try:
                found: str = client.submit_job(
                    entrypoint=entrypoint, runtime_env=environment, submission_id=id, metadata=metadata
                )
                return found
            except (RuntimeError, ValueError, OSError) as error:
                if not has_no_agent(str(error)) or time.monotonic() > deadline:
                    raise ConfigError(f"the cluster does not take the job: {_refusal(error)}") from None


def _refusal(error: Exception) -> str:
    if has_no_agent(str(error)):
        return f"for {AGENT_S:g} s the head's dashboard agent has not been up; is its port 52365 taken there?"
    return first_line(error)


def run_command(client: Any, arguments: Sequence[str], sweep: SweepFile | None, working_dir: Path | None) -> str:
    """A command of `disentune` as a job; gives its id."""
    return _sent(client, sweep, working_dir, python_on_the_head(["-m", "disentune.cli", *arguments]), None, {})


# ---- following


class _Lines:
    """Whole lines of a log that is read in pieces, without Ray's own; `again` when it is read from the start."""

    def __init__(self, write: Callable[[str], None]):
        self.write, self.seen, self.passed, self.rest = write, 0, 0, ""

    def again(self) -> None:
        self.passed = 0

    def add(self, text: str) -> None:
        new = text[max(0, self.seen - self.passed) :]
        self.passed += len(text)
        self.seen = max(self.seen, self.passed)
        *lines, self.rest = (self.rest + new).split("\n")
        for line in lines:
            if not _RAYS_OWN_LINE.match(line):
                self.write(line)


def follow(client: Any, id: str, write: Callable[[str], None], say: Callable[[str], None]) -> int:
    """Writes a job's log until the job ends; gives the exit code of its command as far as Ray tells it. A lost
    connection is made again. ConfigError when that does not help."""
    import aiohttp
    import requests

    lines, lost_since = _Lines(write), None
    while True:
        try:
            asyncio.run(_tail(client, id, lines))
            info = client.get_job_info(id)
            lost_since = None
            if info.status.is_terminal():
                return _exit_code(info, say)
        except (aiohttp.ClientError, requests.RequestException, OSError, RuntimeError) as error:
            now = time.monotonic()
            if lost_since is None:
                lost_since = now
                say(f"the connection to the cluster is lost ({first_line(error)}); the job goes on; trying again")
            if now - lost_since > LOST_S:
                raise ConfigError(
                    f"job {id} may still run, but its cluster has not answered for {LOST_S:g} s"
                ) from None
        time.sleep(1)


async def _tail(client: Any, id: str, lines: _Lines) -> None:
    lines.again()
    async for text in client.tail_job_logs(id):
        lines.add(text)


def _exit_code(info: Any, say: Callable[[str], None]) -> int:
    status, code = info.status.name, info.driver_exit_code
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return INTERRUPTED
    if code is None:  # it never began
        say(f"the job failed before its command began: {first_line(info.message or info.error_type or '')}")
        return CRASHED
    found: int = code if code > 0 else 128 - code
    return found


def show_line(line: str) -> None:
    sys.stdout.write(f"{without_secrets(line)}\n")
    sys.stdout.flush()
