"""The run folder: the one truth about a sweep. Every path and every write of a run is here or in `trial_folder`.

Files are written aside, fsynced and renamed, or appended line by line; so a machine that dies at any moment leaves a
folder that can be read. Writing the same row or checkpoint twice changes nothing. In an object store every write is
one PUT of a whole object (storage.py), and a lease takes the place of the lock (lease.py).
"""

import fcntl
import io
import itertools
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from disentune.environment import environment, is_another
from disentune.errors import ConfigError, did_you_mean
from disentune.files import documents, lease, storage
from disentune.files.storage import (
    DEFAULT_STORAGE,
    Place,
    RemotePath,
    assert_reachable,
    make_folder,
    place,
    read_if_there,
    shown,
)
from disentune.files.writing import clear_asides, write_atomically
from disentune.runs.json_files import broken_seal, is_whole, read_json, sealed, write_json
from disentune.runs.sources import plugin_sources
from disentune.runs.trial_folder import CONFIG, ROWS, TrialFolder
from disentune.spec.config import (
    is_id,
)
from disentune.spec.sweepfile import SweepFile, read_sweep

LOCK_ATTEMPTS = 5
LOCAL_POLL_S, REMOTE_POLL_S = 0.0, 5.0
"""The least time between two looks at what a driver wants: each is several requests to an object store."""


def _is_generation(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("population"), str) or not is_whole(entry.get("step")):
        return False
    moves = entry.get("moves")
    return isinstance(moves, dict) and all(
        isinstance(move, dict) and isinstance(move.get("source"), str) and isinstance(move.get("values"), dict)
        for move in moves.values()
    )


@dataclass(frozen=True)
class Run:
    """One run of a sweep on disk: `runs/<sweep>/<run>/`."""

    path: Place

    @property
    def name(self) -> str:
        """As text; bytes of a folder's name that are none are spelled out."""
        return f"{self.path.parent.name}/{self.path.name}".encode(errors="backslashreplace").decode()

    @property
    def sweep_path(self) -> Place:
        return self.path / "sweep.yaml"

    @property
    def parquet_path(self) -> Place:
        return self.path / "results.parquet"

    @property
    def report_folder(self) -> Place:
        return self.path / "report"

    @property
    def report_page(self) -> Place:
        return self.report_folder / "index.html"

    @property
    def figures_folder(self) -> Place:
        """Of the report."""
        return self.report_folder / "figures"

    @property
    def summary_path(self) -> Place:
        """The figure that is drawn when a session ends."""
        return self.report_folder / "summary.png"

    @property
    def wandb_report_path(self) -> Place:
        """A report for W&B that could not be sent."""
        return self.report_folder / "wandb_report.json"

    @property
    def journal_path(self) -> Place:
        return self.path / "study.journal"

    @property
    def tracking_log(self) -> Path:
        """What the process that streams to W&B has to say."""
        return self._local_folder / "wandb.log"

    @property
    def output_log(self) -> Path:
        """What the command that drives the run has printed."""
        return self._local_folder / "run.log"

    @property
    def _local_folder(self) -> Path:
        """On this machine, also for a run that lies in an object store."""
        return self.path if isinstance(self.path, Path) else storage.scratch(self.path)

    @contextmanager
    def tracked(self, patience_s: float) -> Iterator[None]:
        """Holds the run's place at W&B for this process: two would tell the same rows."""
        lock = self.path / "wandb.lock"
        if isinstance(lock, RemotePath):
            with lease.held(lock, f"{self.path} is being streamed to W&B", patience_s):
                yield
            return
        with open(lock, "ab") as file:
            deadline = time.monotonic() + patience_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ConfigError(f"{self.path} is being streamed to W&B by another process") from None
                    time.sleep(0.2)
            yield

    def exists(self) -> bool:
        return self.sweep_path.exists()

    def seen(self, *names: str) -> "Run":
        """The run as it is now, for reading all of it: in an object store one listing, and the files of these names at
        once. Writes go to the run itself."""
        return Run(storage.viewed(self.path, names))

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self._trials_folder / trial_id)

    @property
    def _trials_folder(self) -> Place:
        return self.path / "trials"

    def known_trials(self, *names: str) -> dict[str, TrialFolder]:
        """By id, for reading: see `seen`."""
        return {folder.id: folder for folder in self.seen(*names).trials()}

    def trials(self) -> list[TrialFolder]:
        """Sorted by id. A folder whose creation was cut short has no config and does not count."""
        return [self.trial(name) for name in self._recorded(is_id)]

    def ignored(self) -> list[str]:
        """Names of folders beside the trials that hold a config too, such as a copy, and are no trials."""
        return self._recorded(lambda name: not is_id(name))

    def _recorded(self, has: Callable[[str], bool]) -> list[str]:
        """Names of folders with a config, sorted."""
        folder = self._trials_folder
        try:
            seen = storage.viewed(folder)
            paths = (path for path in seen.iterdir() if has(path.name)) if seen.is_dir() else ()
            return sorted(path.name for path in paths if path.is_dir() and TrialFolder(path).config_path.exists())
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read: {error.strerror}; choose another --storage") from None

    def notes(self) -> list[str]:
        """What someone who looks at the run or continues it has to know of its folder."""
        names = self.ignored()
        if not names:
            return []
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        where = shown(self._trials_folder)
        return [f"{where}: {listed} ignored, for a trial's folder is named by its id; keep copies elsewhere"]

    def sweep(self) -> SweepFile:
        return read_sweep(self.sweep_path)

    def record(self, sweep: SweepFile) -> None:
        """Keeps the resolved sweep; an earlier, different version stays beside it."""
        stream = io.StringIO()
        documents.dump(sweep.resolved(), stream)
        data = stream.getvalue().encode()
        before = read_if_there(self.sweep_path)
        if before is not None and before != data:
            names = (self.path / f"sweep-before-{number}.yaml" for number in itertools.count(1))
            write_atomically(next(path for path in names if not path.exists()), before)
        write_atomically(self.sweep_path, data)
        self._record_environment(environment_with(sweep.own_plugins()))

    def _record_environment(self, now: dict[str, Any]) -> None:
        """The first session's, and each later one that differs from the one before it."""
        if not self._environment_path.exists():
            write_json(self._environment_path, now)
            return
        known = self.environments()
        if is_another(known[-1], now):
            rows = {id: folder.rows() for id, folder in self.known_trials(CONFIG, ROWS).items()}
            after = {id: some[-1]["step"] for id, some in rows.items() if some}
            began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            write_json(self.sessions_path, [*known[1:], {"began": began, **now, "after": after}])

    @property
    def _environment_path(self) -> Place:
        return self.path / "environment.json"

    def environment(self) -> dict[str, Any]:
        """Of the run's first session; empty when the file was removed."""
        path = self._environment_path
        return _environment(read_json(path, VERSIONS_REMEDY, default={}), path)

    @property
    def sessions_path(self) -> Place:
        """Environments of later sessions that differ from the session before; `after` has the last step of each trial
        by then, so rows of later steps are theirs."""
        return self.path / "sessions.json"

    def environments(self) -> list[dict[str, Any]]:
        """Of the first session, and of each later one that was recorded."""
        later = read_json(self.sessions_path, VERSIONS_REMEDY, (list,), default=[])
        return [self.environment(), *(_environment(one, self.sessions_path) for one in later)]

    # generations of population based training

    @property
    def _population_path(self) -> Place:
        return self.path / "population.json"

    def generations(self) -> list[dict[str, Any]]:
        """Committed decisions, oldest first: {population, step, moves: {trial_id: {source, values}}}."""
        path = self._population_path
        remedy = "restore it from a backup, or remove it: unfinished populations then begin again"
        content = read_json(path, remedy, (dict, list), default=[])
        if isinstance(content, list):  # of an earlier version
            content = sealed({"generations": content})
        generations, damage = content.get("generations"), broken_seal(content, ("generations",))
        if not isinstance(generations, list) or not all(map(_is_generation, generations)):
            damage = "each entry has a step and moves"
        if damage:
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        found: list[dict[str, Any]] = generations
        return found

    def add_generation(self, generation: Mapping[str, Any]) -> None:
        self.set_generations([*self.generations(), dict(generation)])

    def set_generations(self, generations: list[dict[str, Any]]) -> None:
        write_json(self._population_path, sealed({"generations": generations}))

    # one driver at a time

    @property
    def _lock_path(self) -> Place:
        return self.path / "driver.lock"

    def session(self) -> str:
        """The token of the newest driver; a worker that holds an older one must not write."""
        return str(lease.content(read_if_there(self._lock_path)).get("session", ""))

    def locked(self) -> AbstractContextManager[str]:
        """Holds the run for this process and yields its session token; a second driver is refused by name."""
        return self._leased(self._lock_path) if isinstance(self._lock_path, RemotePath) else self._flocked()

    @contextmanager
    def _leased(self, path: RemotePath) -> Iterator[str]:
        """A dead driver's lease is waited out."""
        storage.assert_writable(self.path)
        with lease.held(path, f"{self.path} is already being run") as token:
            self.stop_path.unlink(missing_ok=True)
            yield token

    @contextmanager
    def _flocked(self) -> Iterator[str]:
        """The lock is the operating system's and ends with the process, however that ends."""
        assert isinstance(self._lock_path, Path)
        try:
            make_folder(self.path)
            file = open(self._lock_path, "a+b")  # noqa: SIM115 (held until the with block ends)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}; choose another --storage") from None
        with file:
            self._lock(file)
            token = secrets.token_hex(8)
            file.truncate(0)
            file.write(json.dumps({"session": token, "pid": os.getpid(), "host": socket.gethostname()}).encode())
            file.flush()
            os.fsync(file.fileno())
            self.stop_path.unlink(missing_ok=True)
            self._clear_litter()
            yield token

    def _clear_litter(self) -> None:
        """What killed writers left in the folders of the run and its trials. Checkpoints and pictures clear theirs."""
        trials = (folder.path for folder in self.trials())
        for folder in (self.path, self.report_folder, *trials):
            with suppress(OSError):
                clear_asides(Path(str(folder)))

    def _lock(self, file: BinaryIO) -> None:
        """Tries for a moment: `status` holds the lock for an instant to see whether a driver does."""
        for attempts_left in reversed(range(LOCK_ATTEMPTS)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not attempts_left:
                    holder = lease.holder(read_if_there(self._lock_path))
                    raise ConfigError(f"{self.path} is already being run {holder}; wait for it or stop it") from None
                time.sleep(0.05)
            except OSError as error:
                text = f"{self._lock_path} cannot be locked: {error.strerror}; choose another --storage"
                raise ConfigError(text) from None

    def is_running(self) -> bool:
        """Whether some driver holds the run now."""
        if isinstance(self._lock_path, RemotePath):
            return lease.is_held(self._lock_path)
        try:
            with open(self._lock_path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self._lock_path.exists()
        return False

    def began(self) -> float | None:
        """When the newest driver took the run; None without one."""
        if isinstance(self._lock_path, RemotePath):
            return lease.content(read_if_there(self._lock_path)).get("began")
        try:
            return self._lock_path.stat().st_mtime
        except FileNotFoundError:
            return None

    @property
    def poll_s(self) -> float:
        return REMOTE_POLL_S if isinstance(self.path, RemotePath) else LOCAL_POLL_S

    @property
    def stop_path(self) -> Place:
        """Exists while the driver asks its workers to checkpoint and end; holds the reason."""
        return self.path / "stop"

    def ask_to_stop(self, reason: str) -> None:
        write_atomically(self.stop_path, reason.encode())

    def stop_reason(self) -> str | None:
        """Why the driver asks its workers to end; None while it does not."""
        data = read_if_there(self.stop_path)
        return None if data is None else data.decode(errors="replace")


VERSIONS_REMEDY = "remove it: it only records versions"
_ENVIRONMENT_KINDS: dict[str, Any] = {"packages": dict, "plugins": dict, "commit": str | None, "source": str}


def environment_with(plugins: list[str]) -> dict[str, Any]:
    """The environment, and the sources of the user's own plug-ins that are named by these import paths."""
    sources = plugin_sources(plugins)
    return environment() | ({"plugins": sources} if sources else {})


def _environment(found: Any, path: Place) -> dict[str, Any]:
    """Raises ConfigError for what no session has recorded."""
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged (each entry must be a mapping); {VERSIONS_REMEDY}")
    for key, kind in _ENVIRONMENT_KINDS.items():
        if key in found and not isinstance(found[key], kind):
            raise ConfigError(f"{path} is damaged (`{key}` is {found[key]!r:.60}); {VERSIONS_REMEDY}")
    return found


DEFAULT_RUN = "main"


def find_run(text: str, storage: "str | Place" = DEFAULT_STORAGE) -> Run:
    """A run by its folder, by `sweep/run`, or by the sweep's name when it has one run (or one called main)."""
    where = place(storage)
    try:
        found = _found_run(text, where)
        if found is not None:
            assert_own_files(found)
            return found
        known = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in where.glob("*/*/sweep.yaml"))
    except OSError as error:
        raise ConfigError(f"no run '{text:.100}': {error.strerror}") from None
    listed = f" Known in {where}: {', '.join(known)}" if known else f" There are no runs in {where}"
    raise ConfigError(f"no run '{text}'.{did_you_mean(text, known)}{listed}")


DEPTH = 3
"""Of the folders in which files are written: the run's, trials/ and each trial's."""


_LOCK_OF_OPTUNA = re.compile(r"study\.journal\.lock([0-9a-f-]{36}\.rename)?")
"""A link that a search of an earlier version left when it was killed. Nothing opens it; the next driver removes it."""


def assert_own_files(run: Run) -> None:
    """A link in a run that came from elsewhere would let us write where it points to."""
    if isinstance(run.path, Path) and (link := _first_link(str(run.path), DEPTH, _LOCK_OF_OPTUNA)):
        raise ConfigError(
            f"{shown(Path(link))} is a link, and a run holds its own files; put the file itself there (the folder of "
            "the run as a whole may be a link)"
        )
    if isinstance(run.path, Path) and (other := _first_irregular(str(run.path), DEPTH)):
        raise ConfigError(f"{shown(Path(other))} is a pipe, a socket or a device, which no run holds; remove it")


def _first_irregular(folder: str, depth: int) -> str:
    """A pipe in the place of a file would be waited for, for ever."""
    with suppress(FileNotFoundError, NotADirectoryError):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.path)
        entries = [entry for entry in entries if not entry.is_symlink()]  # which `_first_link` judges
        irregular = [entry.path for entry in entries if not entry.is_file() and not entry.is_dir()]
        below = (_first_irregular(entry.path, depth - 1) for entry in entries if depth > 1 and entry.is_dir())
        return next(filter(None, itertools.chain(irregular, below)), "")
    return ""


def _first_link(folder: str, depth: int, passed_over: re.Pattern[str] | None = None) -> str:
    """What vanishes during the look is not there."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    known = passed_over.fullmatch if passed_over else lambda name: None
    links = sorted(entry.path for entry in entries if entry.is_symlink() and not known(entry.name))
    if there := [link for link in links if os.path.islink(link)]:
        return there[0]
    folders = (entry.path for entry in entries if depth > 1 and entry.is_dir(follow_symlinks=False))
    return next(filter(None, (_first_link(path, depth - 1) for path in folders)), "")


def _found_run(text: str, where: Place) -> Run | None:
    named = place(text)
    assert_reachable(named if isinstance(named, RemotePath) else where)
    paths: list[Place] = [named] if isinstance(named, RemotePath) else [named, where / text]
    for path in paths:
        if Run(path).sweep_path.is_file():
            return Run(path.resolve())
    for path in paths:
        runs = sorted(child.parent for child in path.glob("*/sweep.yaml")) if path.is_dir() else []
        chosen = [run for run in runs if run.name == DEFAULT_RUN] or runs
        if len(chosen) == 1:
            return Run(chosen[0].resolve())
        if runs:
            raise ConfigError(f"{text} has several runs; name one: {', '.join(f'{text}/{run.name}' for run in runs)}")
    return None


def is_trial(path: Place) -> bool:
    """Whether a trial is meant, by its folder or by its config."""
    return path.name == CONFIG or (path.is_dir() and TrialFolder(path).is_recorded)


def trial_at(path: Place) -> tuple[TrialFolder, Run]:
    """A trial by its folder, and the run it is of."""
    folder = TrialFolder(path.resolve())  # its name is the trial's id, also for `.`
    if folder.is_recorded:
        run = Run(folder.path.parent.parent)
        assert_own_files(run)
        return folder, run
    trials = Run(folder.path).trials()
    example = shown(trials[0].path) if trials else "runs/SWEEP/RUN/trials/ID"
    raise ConfigError(f"{path} is no trial's folder, for it has no config.json; name one such as {example}")
