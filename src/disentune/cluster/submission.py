"""Sends a sweep as a job to a running cluster (Ray Jobs), where it runs without the machine that sent it.

It sends the resolved sweep, so that the cluster needs no file of this machine, and on request the user's own plug-ins.
It sends no key: anyone who can open the dashboard can read a job's settings.
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
"""How long Ray waits before it kills a stopped job; trials write their checkpoints in that time."""
ANSWER_S = 10.0
AGENT_S = 60.0
"""How long a head that has just started may take until it accepts jobs."""
LOST_S = 600.0
"""How long to retry a lost connection while following a job."""
MOST_MB = 100
LEFT_OUT = (".*", "venv", "__pycache__", "*.pyc", "node_modules", "runs", "wandb")
"""Hidden files may hold keys, and a plug-in is never hidden."""
TOKEN = "copy the head's ~/.ray/auth_token to this machine, and: export RAY_AUTH_MODE=token"
_PLUGIN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_RAYS_OWN_LINE = re.compile(r"Running entrypoint for job |.*\sINFO job_manager\.py:\d+ -- ")


# ---- the cluster


def url_of(address: str) -> str:
    """The address of a cluster's dashboard, which accepts jobs."""
    if address == "auto":
        return DEFAULT_ADDRESS
    if not re.fullmatch(r"https?://[^/?#@]+/*", address):
        raise ConfigError(
            f"--address {without_password(address)}: must be the dashboard of the cluster's head, for example "
            f"{DEFAULT_ADDRESS}, to which `ray dashboard cluster.yaml` forwards it"
        )
    return address.rstrip("/")


def connected(address: str) -> Any:
    """A client for the cluster's jobs, after a first answer. Raises ConfigError that says what to do."""
    url = url_of(address)
    _assert_answers(url)
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)
    try:
        with _without("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # Ray would prefer these to the given address
            client = JobSubmissionClient(url)
        client.list_jobs()
    except AuthenticationError as error:
        wants = "requires a token, and none was sent" if "required" in str(error) else "refuses this machine's token"
        raise ConfigError(f"--address {url}: the cluster {wants}; {TOKEN}") from None
    except (requests.RequestException, ConnectionError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"--address {url}: no Ray dashboard answers there ({first_line(error)})") from None
    _assert_same_ray(url, client._server_ray_version)  # which the client has already queried
    return client


def _assert_answers(url: str) -> None:
    """Fails fast: Ray would wait forever for a host that drops packets, or a server that is not Ray's."""
    import requests

    try:
        requests.get(f"{url}/api/version", timeout=ANSWER_S)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--address {url}: nothing answers there ({_why(error)}); check that the head is up and that "
            "`ray dashboard cluster.yaml` is forwarding its dashboard"
        ) from None


def _why(error: Exception) -> str:
    """The system's reason, from the long message of an HTTP client."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer in {ANSWER_S:g} s"
    found = re.search(r"\[Errno -?\d+\] [\w ]+", str(error))
    return found[0] if found else first_line(error)


def _assert_same_ray(url: str, version: str | None) -> None:
    here = versions()["ray"]
    if version and version != here:
        raise ConfigError(
            f"--address {url}: the cluster has Ray {version}, this machine {here}; install the same version on both"
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
    """Raises ConfigError for a relative path. None means that the head's environment sets the storage."""
    if storage is None:
        return
    if isinstance(where := place(storage), Path) and not where.is_absolute():
        raise ConfigError(
            f"--storage {storage}: must be an absolute path that every node sees, or s3://bucket/folder; the cluster "
            "cannot use folders of this machine"
        )


def assert_plugins_sent(sweep: SweepFile, working_dir: Path | None) -> None:
    """Raises ConfigError unless the user's own plug-ins are sent or installed like any package."""
    for needed in sweep.needs.values():
        assert_plugins_sent(needed, working_dir)
    for plugin in sorted(_plugins(sweep.resolved()["arms"])):
        file = _file_of(plugin.partition(":")[0])
        if file is None or "site-packages" in file.parts or "dist-packages" in file.parts:
            continue
        if working_dir is None or not file.is_relative_to(working_dir.resolve()):
            folder = _import_folder(plugin, file)
            raise ConfigError(
                f"{sweep.file} uses '{plugin}' from {file}, which the cluster does not have; send it with "
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
    """The folder from which a plug-in's module is imported: for `lab.vae` in `lab/vae.py`, the parent of `lab`."""
    depth = plugin.partition(":")[0].count(".") + (file.name == "__init__.py")
    return file.parents[depth]


@contextmanager
def packed(sweep: SweepFile | None, working_dir: Path | None) -> Iterator[Path]:
    """A temporary folder with the resolved sweep, which has the sweeps that it needs in it, and a copy of the user's
    own folder."""
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
    """Refuses links to hidden files, which may hold keys: the target of a link would be sent."""
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    for parent, folders, files in os.walk(folder):
        folders[:] = set(folders) - left_out(parent, folders)
        for path in (Path(parent) / one for one in {*folders, *files} - left_out(parent, [*folders, *files])):
            target = Path(os.path.realpath(path))
            hidden = any(part.startswith(".") for part in target.parts)
            if path.is_symlink() and hidden and not target.is_relative_to(os.path.realpath(folder)):
                raise ConfigError(f"--working-dir {folder}: {path} links to the hidden file {target}; remove the link")


def assert_small(folder: Path) -> None:
    """Raises ConfigError for a folder that is too large. A link counts as its target, which is what would be sent."""
    if not folder.is_dir():
        raise ConfigError(f"--working-dir {folder}: is not a folder")
    left_out, sizes = shutil.ignore_patterns(*LEFT_OUT), Counter[str]()
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = set(folders) - left_out(parent, folders)
        top = Path(parent).relative_to(folder).parts[:1]
        for one in set(files) - left_out(parent, files):
            with suppress(OSError):  # a broken link, or a link to itself
                sizes[top[0] if top else one] += (Path(parent) / one).stat().st_size
        if sizes.total() > MOST_MB * 1e6:
            ((largest, size),) = sizes.most_common(1)
            raise ConfigError(
                f"--working-dir {folder}: is larger than {MOST_MB} MB, mostly because of '{largest}' "
                f"({size / 1e6:,.0f} MB); use a folder that holds only the plug-ins"
            )


# ---- jobs


@dataclass(frozen=True)
class Job:
    """A sweep to submit; `arguments` are those of `disentune run`, without the sweep and the storage."""

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
    """A shell command for the head, which prints a clear error if Python or disentune is missing there."""
    complaint = "disentune is not installed for the python on the head; install it for the user that runs ray start"
    look = f"python -c 'import disentune' || {{ echo {shlex.quote(complaint)}; exit 2; }}"
    return f"{look}; exec {shlex.join(['python', *arguments])}"


def submit(client: Any, job: Job) -> str:
    """Sends a job and returns its id. Raises ConfigError when another job is already running the same run."""
    jobs = client.list_jobs()
    refuse_second(job, jobs)
    base = f"disentune-{job.sweep.name}-{job.name}"
    taken = {one.submission_id for one in jobs}
    number = next(number for number in range(1, len(taken) + 2) if f"{base}-{number}" not in taken)
    metadata = {"disentune_run": job.run, "disentune_storage": job.storage or ""}
    return _sent(client, job.sweep, job.working_dir, job.entrypoint(), f"{base}-{number}", metadata)


def refuse_second(job: Job, jobs: Sequence[Any]) -> None:
    """Two jobs sent at the same moment get the same id, which Ray refuses; after that, the run's own lock protects
    it."""
    for one in jobs:
        metadata = one.metadata or {}
        places = {metadata.get("disentune_storage"), job.storage} - {None, ""}  # an unknown one may be the same
        if metadata.get("disentune_run") == job.run and len(places) < 2 and not one.status.is_terminal():
            raise ConfigError(
                f"{job.run} is already being run by job {one.submission_id}; wait for that job, stop it, or choose "
                "another --name"
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
                    raise ConfigError(f"the cluster did not accept the job: {_refusal(error)}") from None


def _refusal(error: Exception) -> str:
    if has_no_agent(str(error)):
        return f"the head's dashboard agent has not started for {AGENT_S:g} s; is its port 52365 in use there?"
    return first_line(error)


def run_command(client: Any, arguments: Sequence[str], sweep: SweepFile | None, working_dir: Path | None) -> str:
    """Runs a `disentune` command as a job and returns its id."""
    return _sent(client, sweep, working_dir, python_on_the_head(["-m", "disentune.cli", *arguments]), None, {})


# ---- following


class _Lines:
    """Writes whole lines of a log that arrives in pieces, without Ray's own; call `again` to read it from the start."""

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
    """Writes a job's log until the job ends, and returns the exit code of its command if Ray knows it. A lost
    connection is retried; raises ConfigError when that fails for too long."""
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
                say(f"lost the connection to the cluster ({first_line(error)}); the job continues; reconnecting")
            if now - lost_since > LOST_S:
                raise ConfigError(
                    f"job {id} may still be running, but the cluster has not answered for {LOST_S:g} s"
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
    if code is None:  # the command never started
        say(f"the job failed before its command started: {first_line(info.message or info.error_type or '')}")
        return CRASHED
    found: int = code if code > 0 else 128 - code
    return found


def show_line(line: str) -> None:
    sys.stdout.write(f"{without_secrets(line)}\n")
    sys.stdout.flush()
