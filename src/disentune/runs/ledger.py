"""The run folder, the single source of truth about a run. Its paths and writes are all here or in `trial_folder`.

Files are written to a temporary name, fsynced and renamed, or appended line by line, so a crash at any moment leaves a
readable folder. Writing the same row or checkpoint twice changes nothing. In an object store every write is
one PUT of a whole object (storage.py), and a lease takes the place of the lock (lease.py).
"""

import fcntl
import itertools
import json
import os
import re
import secrets
import shutil
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
from disentune.spec.sweepfile import SweepFile, embedded_sweep, read_sweep

LOCK_ATTEMPTS = 5
LOCAL_POLL_S, REMOTE_POLL_S = 0.0, 5.0
"""Minimum time between two checks of what the driver wants; each check is several requests to an object store."""


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
        """The name as text; bytes that are not valid text are escaped."""
        return f"{self.path.parent.name}/{self.path.name}".encode(errors="backslashreplace").decode()

    @property
    def sweep_path(self) -> Place:
        return self.path / "sweep.yaml"

    @property
    def parquet_path(self) -> Place:
        return self.path / "results.parquet"

    @property
    def scores_path(self) -> Place:
        """Scores of checkpoints that were computed after training."""
        return self.path / "scores.json"

    @property
    def report_folder(self) -> Place:
        return self.path / "report"

    @property
    def report_page(self) -> Place:
        return self.report_folder / "index.html"

    @property
    def figures_folder(self) -> Place:
        """The figures of the report."""
        return self.report_folder / "figures"

    @property
    def summary_path(self) -> Place:
        """The figure that is drawn when a session ends."""
        return self.report_folder / "summary.png"

    @property
    def wandb_report_path(self) -> Place:
        """A report for W&B that could not be uploaded."""
        return self.report_folder / "wandb_report.json"

    @property
    def journal_path(self) -> Place:
        return self.path / "study.journal"

    @property
    def tracking_log(self) -> Path:
        """Log of the process that streams to W&B."""
        return self._local_folder / "wandb.log"

    @property
    def output_log(self) -> Path:
        """Output of the command that runs the sweep."""
        return self._local_folder / "run.log"

    @property
    def _local_folder(self) -> Path:
        """A folder on this machine, even if the run is in an object store."""
        return self.path if isinstance(self.path, Path) else storage.scratch(self.path)

    @property
    def tracking_lock(self) -> Place:
        return self.path / "wandb.lock"

    @contextmanager
    def tracked(self, patience_s: float) -> Iterator[None]:
        """A lock for streaming to W&B, so that two processes do not send the same rows."""
        lock = self.tracking_lock
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
        """A snapshot of the run for reading: in an object store it needs one listing and fetches the files of these
        names in parallel. Writes go to the run itself."""
        return Run(storage.viewed(self.path, names))

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.trials_folder / trial_id)

    @property
    def trials_folder(self) -> Place:
        return self.path / "trials"

    @property
    def incoming_folder(self) -> Place:
        """Trials of other runs while they are being copied."""
        return self.path / "incoming"

    @property
    def dropped_folder(self) -> Place:
        """Trials that were set aside because they are no longer in the sweep."""
        return self.path / "dropped"

    def dropped_trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.dropped_folder / trial_id)

    def dropped(self) -> dict[str, TrialFolder]:
        """Trials that were set aside, by id; never any in an object store, which cannot rename."""
        if not isinstance(self.path, Path):
            return {}
        return {name: self.dropped_trial(name) for name in self._recorded(is_id, self.dropped_folder)}

    def known_trials(self, *names: str) -> dict[str, TrialFolder]:
        """All trials by id, for reading; see `seen`."""
        return {folder.id: folder for folder in self.seen(*names).trials()}

    def trials(self) -> list[TrialFolder]:
        """All trials, sorted by id. A folder without a config, whose creation was interrupted, is skipped."""
        return [self.trial(name) for name in self._recorded(is_id, self.trials_folder)]

    def ignored(self) -> list[str]:
        """Names of folders that have a config but are not trials, such as copies."""
        return self._recorded(lambda name: not is_id(name), self.trials_folder)

    def _recorded(self, has: Callable[[str], bool], folder: Place) -> list[str]:
        """Sorted names of folders that have a config."""
        try:
            seen = storage.viewed(folder)
            paths = (path for path in seen.iterdir() if has(path.name)) if seen.is_dir() else ()
            return sorted(path.name for path in paths if path.is_dir() and TrialFolder(path).config_path.exists())
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read: {error.strerror}; choose another --storage") from None

    def notes(self) -> list[str]:
        """Notes about the run's folder for the user."""
        names = self.ignored()
        if not names:
            return []
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        where = shown(self.trials_folder)
        return [f"{where}: {listed} ignored, because a trial's folder is named by its id; keep copies elsewhere"]

    def sweep(self) -> SweepFile:
        return read_sweep(self.sweep_path)

    def record(self, sweep: SweepFile) -> None:
        """Writes the resolved sweep; keeps an earlier, different version under another name."""
        data = documents.dumped(sweep.resolved())
        before = read_if_there(self.sweep_path)
        if before is not None and before != data:
            names = (self.path / f"sweep-before-{number}.yaml" for number in itertools.count(1))
            write_atomically(next(path for path in names if not path.exists()), before)
        write_atomically(self.sweep_path, data)
        self._record_environment(environment_with(sweep.own_plugins()))

    # the chain of a study that needs other sweeps

    @property
    def stages_path(self) -> Place:
        """The sweep of a study before anything was chosen from the runs that it needs, and what was chosen."""
        return self.path / "stages.yaml"

    def record_stages(self, asked: SweepFile, donors: Mapping[str, Any]) -> None:
        """Writes both to one file, so that they always belong together."""
        data = documents.dumped({"asked": asked.resolved(), "donors": donors})
        if read_if_there(self.stages_path) != data:
            write_atomically(self.stages_path, data)

    def stages(self) -> tuple[SweepFile, dict[str, Any]] | None:
        """None for a run whose sweep needs no other."""
        if not self.stages_path.exists():
            return None
        document = documents.read(self.stages_path)
        value, remedy = document.value, "restore it from a backup, or run the sweep under another --name"
        if not isinstance(value, Mapping) or not isinstance(value.get("asked"), Mapping):
            raise ConfigError(f"{self.stages_path} is damaged (it must hold the sweep as `asked`); {remedy}")
        donors = value.get("donors") or {}
        if not isinstance(donors, Mapping):
            raise ConfigError(f"{self.stages_path} is damaged (`donors` must be a mapping); {remedy}")
        return embedded_sweep(document, ("asked",)), dict(donors)

    def _record_environment(self, now: dict[str, Any]) -> None:
        """Records the environment of the first session, and of each later session that differs from the previous
        one."""
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
        """The environment of the first session; empty if the file was removed."""
        path = self._environment_path
        return _environment(read_json(path, VERSIONS_REMEDY, default={}), path)

    @property
    def sessions_path(self) -> Place:
        """Environments of later sessions that differ from the previous one. `after` has the last step of each trial at
        that time; rows of later steps belong to that session."""
        return self.path / "sessions.json"

    def environments(self) -> list[dict[str, Any]]:
        """Environments of the first session and of each later one that was recorded."""
        later = read_json(self.sessions_path, VERSIONS_REMEDY, (list,), default=[])
        return [self.environment(), *(_environment(one, self.sessions_path) for one in later)]

    # what the newest session was asked for

    @property
    def selection_path(self) -> Place:
        return self.path / "selection.json"

    def record_selection(self, session: str, selection: Mapping[str, Any] | None) -> None:
        """Records a `choice.Selection`; None if the session runs every trial."""
        if selection is None:
            self.selection_path.unlink(missing_ok=True)
        else:
            write_json(self.selection_path, {"session": session, **selection})

    def selection(self) -> dict[str, Any]:
        """The selection of the newest driver; empty if it runs every trial, or if the file cannot be read."""
        try:
            found = json.loads(read_if_there(self.selection_path) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) and found.get("session") == self.session() else {}

    # generations of population based training

    @property
    def _population_path(self) -> Place:
        return self.path / "population.json"

    def generations(self) -> list[dict[str, Any]]:
        """Committed decisions, oldest first: {population, step, moves: {trial_id: {source, values}}}."""
        path = self._population_path
        remedy = "restore it from a backup, or remove it to restart unfinished populations"
        content = read_json(path, remedy, (dict, list), default=[])
        if isinstance(content, list):  # written by an earlier version
            content = sealed({"generations": content})
        generations, damage = content.get("generations"), broken_seal(content, ("generations",))
        if not isinstance(generations, list) or not all(map(_is_generation, generations)):
            damage = "each entry must have a step and moves"
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
    def lock_path(self) -> Place:
        return self.path / "driver.lock"

    def session(self) -> str:
        """The token of the newest driver; a worker with an older token must not write."""
        return str(lease.content(read_if_there(self.lock_path)).get("session", ""))

    def locked(self) -> AbstractContextManager[str]:
        """Locks the run for this process and yields the session token; a second driver gets an error that names the
        first."""
        return self._leased(self.lock_path) if isinstance(self.lock_path, RemotePath) else self._flocked()

    @contextmanager
    def _leased(self, path: RemotePath) -> Iterator[str]:
        """Waits until the lease of a dead driver expires."""
        storage.assert_writable(self.path)
        with lease.held(path, f"{shown(self.path)} is already being run") as token:
            self.stop_path.unlink(missing_ok=True)
            yield token

    @contextmanager
    def _flocked(self) -> Iterator[str]:
        """Uses a lock of the operating system, which is released when the process ends for any reason."""
        assert isinstance(self.lock_path, Path)
        try:
            make_folder(self.path)
            file = open(self.lock_path, "a+b")  # noqa: SIM115 (held until the with block ends)
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
        """Removes temporary files of killed writers from the run and its trials. Checkpoints and pictures remove their
        own."""
        shutil.rmtree(str(self.incoming_folder), ignore_errors=True)
        trials = (folder.path for folder in self.trials())
        for folder in (self.path, self.report_folder, *trials):
            with suppress(OSError):
                clear_asides(Path(str(folder)))

    def _lock(self, file: BinaryIO) -> None:
        """Retries briefly, because `status` takes the lock for an instant to see whether a driver holds it."""
        for attempts_left in reversed(range(LOCK_ATTEMPTS)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not attempts_left:
                    raise self._held() from None
                time.sleep(0.05)
            except OSError as error:
                text = f"{self.lock_path} cannot be locked: {error.strerror}; choose another --storage"
                raise ConfigError(text) from None

    def assert_free(self) -> None:
        """Raises ConfigError if another driver holds the run. In an object store, the lease of a dead driver looks
        held, so only `locked`, which waits, can tell."""
        if isinstance(self.path, Path) and self.is_running():
            raise self._held()

    def _held(self) -> ConfigError:
        holder = lease.holder(read_if_there(self.lock_path))
        return ConfigError(f"{shown(self.path)} is already being run {holder}; wait for it or stop it")

    def is_running(self) -> bool:
        """Whether a driver holds the run now."""
        if isinstance(self.lock_path, RemotePath):
            return lease.is_held(self.lock_path)
        try:
            with open(self.lock_path, "rb", opener=_without_waiting) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self.lock_path.exists()
        return False

    def began(self) -> float | None:
        """When the newest driver took the run; None if there was none."""
        if isinstance(self.lock_path, RemotePath):
            return lease.content(read_if_there(self.lock_path)).get("began")
        try:
            return self.lock_path.stat().st_mtime
        except FileNotFoundError:
            return None

    @property
    def poll_s(self) -> float:
        return REMOTE_POLL_S if isinstance(self.path, RemotePath) else LOCAL_POLL_S

    @property
    def stop_path(self) -> Place:
        """Exists while workers are asked to checkpoint and end, by their driver or by `disentune stop`; contains the
        reason."""
        return self.path / "stop"

    def ask_to_stop(self, reason: str) -> None:
        write_atomically(self.stop_path, reason.encode())

    def stop_reason(self) -> str | None:
        """Why workers are asked to end; None while they are not."""
        data = read_if_there(self.stop_path)
        return None if data is None else data.decode(errors="replace")


VERSIONS_REMEDY = "remove it: it only records versions"
_ENVIRONMENT_KINDS: dict[str, Any] = {"packages": dict, "plugins": dict, "commit": str | None, "source": str}


def environment_with(plugins: list[str]) -> dict[str, Any]:
    """The environment, and the sources of the user's own plug-ins that are named by these import paths."""
    sources = plugin_sources(plugins)
    return environment() | ({"plugins": sources} if sources else {})


def _environment(found: Any, path: Place) -> dict[str, Any]:
    """Raises ConfigError if the content was not recorded by a session."""
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged (each entry must be a mapping); {VERSIONS_REMEDY}")
    for key, kind in _ENVIRONMENT_KINDS.items():
        if key in found and not isinstance(found[key], kind):
            raise ConfigError(f"{path} is damaged (`{key}` is {found[key]!r:.60}); {VERSIONS_REMEDY}")
    return found


DEFAULT_RUN = "main"


def find_run(text: str, storage: "str | Place" = DEFAULT_STORAGE) -> Run:
    """A run by its folder, by `sweep/run`, or by the sweep's name if the sweep has one run (or one called main)."""
    where = place(storage)
    try:
        found = _found_run(text, where)
        if found is not None:
            assert_own_files(found)
            return found
        known = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in where.glob("*/*/sweep.yaml"))
    except OSError as error:
        raise ConfigError(f"no run '{text:.100}': {error.strerror}") from None
    listed = (
        f" Known in {where}: {', '.join(known)}"
        if known
        else f" There are no runs in '{where}' yet; start one with: disentune run SWEEP"
    )
    raise ConfigError(f"no run '{text}'.{did_you_mean(text, known)}{listed}")


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe in its place is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


DEPTH = 3
"""The folders in which files are written: the run's, trials/ and each trial's."""


_LOCK_OF_OPTUNA = re.compile(r"study\.journal\.lock([0-9a-f-]{36}\.rename)?")
"""A link left by a killed search of an earlier version. Nothing opens it, and the next driver removes it."""


def assert_own_files(run: Run) -> None:
    """Refuses links: a link in a run from someone else could make us write wherever it points."""
    if isinstance(run.path, Path) and (link := _first_link(str(run.path), DEPTH, _LOCK_OF_OPTUNA)):
        raise ConfigError(
            f"{shown(Path(link))} is a link, but a run must have its own files; put the file itself there (the "
            "folder of the run as a whole may be a link)"
        )
    if isinstance(run.path, Path) and (other := _first_irregular(str(run.path), DEPTH)):
        raise ConfigError(
            f"{shown(Path(other))} is a pipe, a socket or a device, which does not belong in a run; remove it"
        )


def _first_irregular(folder: str, depth: int) -> str:
    """Finds pipes and devices: reading a pipe instead of a file could block forever."""
    with suppress(FileNotFoundError, NotADirectoryError):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.path)
        entries = [entry for entry in entries if not entry.is_symlink()]  # `_first_link` checks links
        irregular = [entry.path for entry in entries if not entry.is_file() and not entry.is_dir()]
        below = (_first_irregular(entry.path, depth - 1) for entry in entries if depth > 1 and entry.is_dir())
        return next(filter(None, itertools.chain(irregular, below)), "")
    return ""


def _first_link(folder: str, depth: int, passed_over: re.Pattern[str] | None = None) -> str:
    """Entries that vanish while the folder is read are skipped."""
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
        if is_trial(path):
            raise ConfigError(f"{text} is a trial; name its run: {shown(path.parent.parent)}")
    return None


def is_trial(path: Place) -> bool:
    """Whether the path is a trial's folder or its config."""
    return path.name == CONFIG or (path.is_dir() and TrialFolder(path).is_recorded)


def trial_at(path: Place) -> tuple[TrialFolder, Run]:
    """A trial by its folder, and its run."""
    folder = TrialFolder(path.resolve())  # resolved, because the folder's name is the trial's id
    if folder.is_recorded:
        run = Run(folder.path.parent.parent)
        assert_own_files(run)
        return folder, run
    trials = Run(folder.path).trials()
    example = shown(trials[0].path) if trials else "runs/SWEEP/RUN/trials/ID"
    raise ConfigError(f"{path} is not a trial's folder: it has no config.json; give a folder such as {example}")
