"""The run folder: the one truth about a sweep. Every path and every write of a run is in this file.

Files are written aside, fsynced and renamed, or appended line by line; so a machine that dies at any moment leaves a
folder that can be read. Writing the same row or checkpoint twice changes nothing. In an object store every write is
one PUT of a whole object (storage.py), and a lease takes the place of the lock (lease.py).
"""

import fcntl
import hashlib
import io
import itertools
import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

import torch

from disentune.environment import environment, is_another
from disentune.errors import ConfigError, TrialError, Unavailable, did_you_mean, first_line
from disentune.files import documents, lease, storage
from disentune.files.storage import (
    DEFAULT_STORAGE,
    OWNER,
    TRANSIENT,
    Owner,
    Place,
    RemotePath,
    assert_reachable,
    is_damage,
    make_folder,
    owner,
    owner_in,
    place,
    read_bytes,
    read_if_there,
    retried,
    shown,
    sync_folder,
)
from disentune.runs.sources import plugin_sources
from disentune.spec.config import (
    PLAIN_SECTIONS,
    PLUGIN_SECTIONS,
    SECTIONS,
    Invalid,
    TrialConfig,
    id_of,
    is_id,
    row_steps,
)
from disentune.spec.settings import Settings, may_change
from disentune.spec.sweepfile import SweepFile, read_sweep

State = Literal["pending", "running", "done", "diverged", "failed"]
FINAL: tuple[State, ...] = ("done", "diverged", "failed")
LOCK_ATTEMPTS = 5
MOST_ERROR_BYTES = 1 << 20
MAGIC = b"disentune checkpoint 1\n"
LARGEST_CHECKPOINT = 2 * 10**10
"""Bytes: eight times what the largest network takes with its optimiser."""
LOCAL_POLL_S, REMOTE_POLL_S = 0.0, 5.0
"""The least time between two looks at what a driver wants: each is several requests to an object store."""


# ---- files


def write_atomically(path: Place, data: bytes) -> None:
    """All of it or nothing: a reader sees the old content until the new one is safe."""
    if isinstance(path, RemotePath):
        path.write_bytes(data)
    else:
        _write_aside(path, data)


@retried
def _write_aside(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{owner()}-{secrets.token_hex(4)}")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _asides(folder: Place, pattern: str) -> Iterator[Path]:
    """What killed writers left. In an object store there is no such thing."""
    return iter(()) if isinstance(folder, RemotePath) else folder.glob(pattern)


_ASIDE = re.compile(rf"\..+\.({OWNER}-)?[0-9a-f]{{8}}")
STALE_S = 1800.0
"""How long the file of a writer that cannot be seen from here is left alone. No write takes so long."""


def _clear_asides(folder: Path) -> None:
    """What killed writers left. A living one's stays, as does what a late worker of another machine may be writing."""
    for entry in os.scandir(folder):
        found = _ASIDE.fullmatch(entry.name)
        if found and entry.is_file(follow_symlinks=False) and _is_left(owner_in(found), entry):
            with suppress(OSError):
                os.unlink(entry.path)


def _is_left(writer: Owner | None, entry: "os.DirEntry[str]") -> bool:
    if writer is not None and writer.is_known:
        return writer.is_dead
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S
    return False


def _cut_torn_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)


@retried
def _steps(folder: Place, suffix: str) -> list[int]:
    """Of the files `step-<number><suffix>`, in order."""
    numbers = (path.stem.removeprefix("step-") for path in folder.glob(f"step-*{suffix}"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _parsed(data: bytes) -> Any:
    """JSON. Half a character, as an exception may hold it, is spelled out: no file, table or terminal takes it."""
    content = json.loads(data)
    return _spelled(content) if b"\\ud" in data.lower() else content


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    return {_spelled(key): _spelled(item) for key, item in value.items()} if isinstance(value, dict) else value


def _row(line: bytes) -> dict[str, Any]:
    row = _parsed(line)
    if not isinstance(row, dict) or not _is_whole(row.get("step")) or not isinstance(row.get("metrics"), dict):
        raise ValueError("a row has a step and metrics")
    if not all(value is None or _is_number(value) for value in row["metrics"].values()):
        raise ValueError("metrics are numbers")
    if not all(isinstance(row.get(part, {}), dict) for part in ("overrides", "clock", "details", "scored", "notes")):
        raise ValueError("the parts of a row are mappings")
    if not all(map(_may_change, row.get("overrides", {}))):
        raise ValueError("an override changes what may change during training, and names no plug-in")
    return row


def with_end(row: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """A row and the scores that the end of its trial added at the same step."""
    parts = ("metrics", "details", "scored", "notes")
    return {**row, **{part: {**row.get(part, {}), **end[part]} for part in parts if part in end}}


def _may_change(key: str) -> bool:
    """During training. Another plug-in, as a stranger's rows might name one, would be imported."""
    return may_change(key) and not key.endswith(".name")


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)


def _united(*texts: bytes) -> bytes:
    """Rows of several texts, each step once, in order; the first that has a step gives it."""
    by_step: dict[int, bytes] = {}
    for line in (line for text in texts for line in text.splitlines(keepends=True)):
        by_step.setdefault(_row(line)["step"], line)
    return b"".join(by_step[step] for step in sorted(by_step))


def write_json(path: Place, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Place, remedy: str, kinds: tuple[type, ...] = (dict,), default: Any = None) -> Any:
    """A JSON file of the ledger; a damaged one is an error that says what to do. A missing one is too, unless there is
    a default."""
    try:
        content = _parsed(read_bytes(path))
    except FileNotFoundError as error:
        if default is not None:
            return default
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        kind = Unavailable if error.errno in TRANSIENT else ConfigError
        raise kind(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
    if not isinstance(content, kinds):
        wanted = "a list" if kinds == (list,) else "a mapping"
        raise ConfigError(f"{path} is damaged (it must hold {wanted}); {remedy}")
    return content


def _checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, "checksum": _checksum(content)}


def _broken_seal(content: Mapping[str, Any], known: Collection[str]) -> str:
    """Why a sealed mapping is not as it was written; empty when it is."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if strange := sorted(rest.keys() - set(known)):
        return f"it has a key {strange[0]!r:.60}"
    return "" if content.get("checksum") == _checksum(rest) else "its checksum is wrong"


def _unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """What was sealed. Raises ValueError when it is not as it was written."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if content.get("checksum") != _checksum(rest):
        raise ValueError("its checksum is wrong")
    return rest


def _move(path: Place, target: Place) -> None:
    path.replace(target)  # type: ignore[arg-type]  # both are of one kind


# ---- checkpoints


class Checkpoints:
    """Training states of one trial by step. A damaged file is passed over for the one before it."""

    def __init__(self, folder: Place):
        self.folder = folder

    def path(self, step: int) -> Place:
        return self.folder / f"step-{step:010d}.ckpt"

    def steps(self) -> list[int]:
        return _steps(self.folder, ".ckpt")

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        payload = buffer.getvalue()
        digest = hashlib.sha256(payload).hexdigest().encode()
        make_folder(self.folder, parents=False)  # the trial's own may have been deleted
        write_atomically(self.path(step), MAGIC + digest + b"\n" + payload)

    def _payload(self, data: bytes, step: int) -> bytes:
        """Raises TrialError when a file is not exactly what was written."""
        magic, _, rest = data.partition(b"\n")
        digest, _, payload = rest.partition(b"\n")
        if magic + b"\n" != MAGIC or hashlib.sha256(payload).hexdigest().encode() != digest:
            raise TrialError(f"{self.path(step)} is damaged")
        return payload

    def is_sound(self, step: int) -> bool:
        """Whether it is there as it was written. Raises OSError when the storage does not answer."""
        try:
            return bool(self._payload(read_bytes(self.path(step), LARGEST_CHECKPOINT), step))
        except TrialError:
            return False
        except OSError as error:
            if is_damage(error, self.folder):
                return False
            raise

    def load(self, step: int) -> dict[str, Any]:
        """Raises TrialError when the file is not exactly what was written."""
        payload = self._payload(read_bytes(self.path(step), LARGEST_CHECKPOINT), step)
        try:
            state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
        except Exception as error:  # a file that was made to look right fails in any way; nothing of it is run
            raise TrialError(f"{self.path(step)} is no checkpoint of ours ({first_line(error)})") from None
        if not isinstance(state, dict):
            raise TrialError(f"{self.path(step)} is no checkpoint of ours, but holds a {type(state).__name__}")
        return state

    def newest(self) -> tuple[int, dict[str, Any] | None, list[str]]:
        """Step and state of the newest sound checkpoint (0, None without one), and a note on each damaged one.

        Damaged ones are set aside, so that they do not count among the newest that `prune` keeps. Raises OSError when
        the storage does not answer, or not to us: an older one would only be work done twice.
        """
        notes: list[str] = []
        for step in reversed(self.steps()):
            try:
                return step, self.load(step), notes
            except (TrialError, OSError) as error:
                if isinstance(error, OSError) and not is_damage(error, self.folder):
                    raise
                notes.append(f"{error}; the checkpoint before it is used")
                with suppress(OSError):
                    _move(self.path(step), self.path(step).with_suffix(".damaged"))
        return 0, None, notes

    def drop_from(self, step: int) -> None:
        """Removes those of this step and later ones."""
        for later in self.steps():
            if later >= step:
                self.path(later).unlink(missing_ok=True)

    def prune(self, keep: int, best: int | None) -> None:
        """Keeps the newest `keep` and the best; clears what a killed writer left."""
        for aside in _asides(self.folder, ".step-*"):
            aside.unlink(missing_ok=True)
        for step in self.steps()[:-keep]:
            if step != best:
                self.path(step).unlink(missing_ok=True)

    def copy_from(self, other: "Checkpoints", step: int) -> None:
        """Takes over another trial's state at a step, in place of our own there and of all that came later. Raises
        TrialError when it is damaged."""
        data = read_bytes(other.path(step), LARGEST_CHECKPOINT)
        other._payload(data, step)
        self.drop_from(step + 1)
        make_folder(self.folder)
        write_atomically(self.path(step), data)


# ---- trials


@dataclass(frozen=True)
class Status:
    state: State = "pending"
    step: int = 0
    cause: str = ""
    """Why it ended: an early stop, a divergence, an error with its traceback."""
    attempts: int = 0
    node: str = ""
    seconds: float = 0.0
    """Spent training and scoring, all attempts together."""
    contents: list[str] = field(default_factory=list)
    """Hashes of the prepared data that it reads."""
    faults: dict[str, int] = field(default_factory=dict)
    """How often each cause of `settings.Cause` has ended an attempt."""
    node_id: str = ""
    """Ray's name of the node of the newest attempt."""

    @property
    def final(self) -> bool:
        return self.state in FINAL


def is_final(status: Status, steps: int, settings: Settings) -> bool:
    """Whether a trial of so many steps stays as it is. One that `stop.steps` or a scheduler ended goes on when the
    sweep now allows it more."""
    if status.state == "done" and status.cause.startswith("stop.steps"):
        return status.step >= min(steps, settings.stop.steps or steps)
    if status.state == "done" and status.cause.startswith("scheduler."):
        return status.cause.startswith(f"scheduler.{settings.scheduler.name}:")
    return status.final


def is_cut(status: Status) -> bool:
    """Whether a trial has had less training than one that is done: a scheduler stopped it, or it is under way."""
    return not status.final or (status.state == "done" and status.cause.startswith("scheduler."))


_STATUS_KINDS: dict[str, Callable[[Any], bool]] = {
    "state": lambda value: value in get_args(State),
    "step": _is_whole,
    "cause": lambda value: isinstance(value, str),
    "attempts": _is_whole,
    "node": lambda value: isinstance(value, str),
    "seconds": lambda value: _is_number(value) and math.isfinite(value),
    "contents": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "faults": lambda value: isinstance(value, dict) and all(map(_is_whole, value.values())),
    "node_id": lambda value: isinstance(value, str),
}


def _damage(config: dict[str, Any], arms: list[Any]) -> str:
    """What tables and plans cannot do with a recorded config; empty when they can. Its values are checked when the
    trial is to run: until then a plug-in of the user's own need not be there."""
    sections = (*PLUGIN_SECTIONS, *PLAIN_SECTIONS)
    if not all(isinstance(arm, str) for arm in arms):
        return "its arms must be names"
    if strange := sorted(config.keys() - {*SECTIONS, "seed"}):
        return f"it has no section {strange[0]!r:.60}"
    if wrong := [section for section in sections if not isinstance(config.get(section), dict)]:
        return f"`{wrong[0]}` must be a mapping"
    if unnamed := [section for section in PLUGIN_SECTIONS if not isinstance(config[section].get("name"), str)]:
        return f"`{unnamed[0]}` must have a name"
    if not _is_whole(config.get("seed")) or not _is_whole(config["training"].get("steps")):
        return "`seed` and `training.steps` must be whole numbers"
    return ""


def _is_tree_of(trial_id: str, config: dict[str, Any]) -> bool:
    """Whether a trial's folder has the name of its config, which is its hash."""
    try:
        return id_of(config) == trial_id
    except ValueError:  # a number that is not finite
        return False


def last_step(rows: list[dict[str, Any]]) -> int:
    return rows[-1]["step"] if rows else 0


def missing_row(tree: Mapping[str, Any], reached: int, steps: Iterable[int]) -> int | None:
    """The first step up to the one that a trial has reached of which there must be a row, and is none among these."""
    known = set(steps)
    return next((step for step in row_steps(tree, reached) if step not in known), None)


def reached(status: Status) -> int:
    """The step up to which a trial must have its rows: one that diverged has none of that very step, and nothing is
    asked of one that failed."""
    return 0 if status.state == "failed" else status.step - (status.state == "diverged")


def missing_rows_note(gaps: Mapping[str, int]) -> str:
    """On trials by the first step whose row is missing."""
    trial_id, step = next(iter(gaps.items()))
    trials = "1 trial lacks" if len(gaps) == 1 else f"{len(gaps)} trials lack"
    return f"{trials} rows that had been written ({trial_id} from step {step} on)"


class Sound(NamedTuple):
    """A trial's status and rows up to `gap`, the first step whose row is missing; all of them when that is None."""

    status: Status
    rows: list[dict[str, Any]]
    gap: int | None


class TrialFolder:
    """One trial on disk."""

    def __init__(self, path: Place):
        self.path, self.id = path, path.name
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._known_rows = b""
        """The rows in an object store as this process last wrote them."""

    # config

    def create(self, config: TrialConfig, arms: tuple[str, ...]) -> None:
        """Writes the config, or adds arms to the one that is there; a folder of this id always has this config."""
        known = self.arms() if (self.path / "config.json").exists() else ()
        if known and set(arms) <= set(known):
            return
        make_folder(self.path)
        arms = tuple(dict.fromkeys((*known, *arms)))
        head = _sealed({"trial_id": self.id, "arms": list(arms)})  # the config's own hash is the id
        write_json(self.path / "config.json", {**head, "config": config.tree()})

    def _config_file(self) -> dict[str, Any]:
        path = self.path / "config.json"
        remedy = f"remove the folder {self.path} to run this trial again"
        content: dict[str, Any] = read_json(path, remedy, default={"missing": True})
        if "missing" in content:
            raise ConfigError(f"{path} is missing; {remedy}")
        if not isinstance(content.get("config"), dict) or not isinstance(content.get("arms"), list):
            raise ConfigError(f"{path} is damaged (it must hold `config` and `arms`); {remedy}")
        if damage := _damage(content["config"], content["arms"]):
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        if not _is_tree_of(self.id, content["config"]):
            raise ConfigError(f"{path} is not the config of trial {self.id}: it was edited or damaged; {remedy}")
        head = {key: value for key, value in content.items() if key != "config"}
        if damage := _broken_seal({"checksum": _checksum(head), **head}, ("trial_id", "arms")):  # older ones have none
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        return content

    def arms(self) -> tuple[str, ...]:
        return self.tree_and_arms()[1]

    def tree(self) -> dict[str, Any]:
        return self.tree_and_arms()[0]

    def tree_and_arms(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """In one reading; nothing that they name is imported."""
        content = self._config_file()
        return content["config"], tuple(content["arms"])

    def config(self) -> TrialConfig:
        path = self.path / "config.json"
        try:
            config = TrialConfig.parse(self.tree())
        except Invalid as error:
            raise ConfigError(f"{path} cannot be used by this version: {error}") from None
        if config.id != self.id:
            raise ConfigError(
                f"{path} was made by another version, to which it meant another trial; "
                f"remove the folder {self.path} to run this trial again"
            )
        return config

    # status

    def status(self) -> Status:
        path = self.path / "status.json"
        remedy = "remove it: the trial goes on from its newest checkpoint"
        try:
            status = Status(**read_json(path, remedy, default={}))
        except TypeError as error:
            raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
        if wrong := [key for key, is_right in _STATUS_KINDS.items() if not is_right(getattr(status, key))]:
            raise ConfigError(f"{path} is damaged ({wrong[0]} {getattr(status, wrong[0])!r:.60}); {remedy}")
        return status

    def set_status(self, status: Status) -> None:
        write_json(self.path / "status.json", asdict(status))

    def update_status(self, **changes: Any) -> Status:
        status = replace(self.status(), **changes)
        self.set_status(status)
        return status

    # errors

    @property
    def errors_path(self) -> Place:
        """What went wrong in each attempt, in words; there is no such file where all went well."""
        return self.path / "errors.log"

    def add_error(self, text: str) -> None:
        """After those before it, of which the oldest go when there are very many."""
        before = read_if_there(self.errors_path) or b""
        write_atomically(self.errors_path, (before + text.encode(errors="replace"))[-MOST_ERROR_BYTES:])

    # W&B

    @property
    def wandb_home(self) -> Path:
        """A folder of this machine for the client, which makes its own one in it."""
        if isinstance(self.path, Path):
            return self.path
        home = storage.scratch(self.path.parent.parent) / self.id
        home.mkdir(exist_ok=True)
        return home

    @property
    def wandb_folder(self) -> Path:
        """Where the client keeps a run's files: what could not be sent yet, or the offline run."""
        return self.wandb_home / "wandb"

    def keep_wandb_files(self) -> None:
        """An offline run that was written on this machine becomes a part of a run that lies in an object store."""
        if isinstance(self.path, Path):
            return
        files = (file for file in self.wandb_folder.rglob("*") if file.is_file() and not file.is_symlink())
        names = {file.relative_to(self.wandb_folder).as_posix(): file for file in files}
        kept = self.path / "wandb"
        for name, file in names.items():
            (kept / name).write_bytes(file.read_bytes())
        for path in storage.files_below(kept):
            if str(path.relative_to(kept)) not in names:
                path.unlink(missing_ok=True)

    def arrived(self) -> dict[str, Any]:
        """By place, the last step and the state that are known to have arrived there."""
        try:
            known = json.loads(read_bytes(self.path / "wandb.json"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def has_arrived(self, place: str) -> bool:
        """Whether all that there is now is known to be there."""
        known = self.arrived().get(place)
        if known is None:
            return False
        try:
            rows = self.rows_to_end()
            found: bool = known == [rows[-1]["step"] if rows else 0, self.status().state]
            return found
        except ConfigError:  # what cannot be read cannot be said to be there
            return False

    def note_arrival(self, place: str, what: Any) -> None:
        write_json(self.path / "wandb.json", {**self.arrived(), place: what})

    # rows

    @property
    def rows_path(self) -> Place:
        return self.path / "rows.jsonl"

    def rows(self) -> list[dict[str, Any]]:
        """Every complete row, by step, each step once. A last line that was cut short does not count."""
        *complete, _torn = (read_if_there(self.rows_path) or b"").split(b"\n")
        by_step: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(complete, start=1):
            try:
                row = _row(line)
                by_step.setdefault(row["step"], row)
            except (ValueError, RecursionError):
                raise ConfigError(
                    f"{self.rows_path}:{number} is damaged; remove the folder {self.path}: the trial is then "
                    "computed again, to the same numbers"
                ) from None
        return [by_step[step] for step in sorted(by_step)]

    @property
    def _end_path(self) -> Place:
        return self.path / "end.json"

    def write_end(self, end: Mapping[str, Any]) -> None:
        """Keeps the scores of a trial that ended between two evaluations, as a row with its step. They are no part of
        rows.jsonl: the rows of a trial that later continues are those of a trial that was never stopped."""
        write_json(self._end_path, _sealed(end))

    def end(self) -> dict[str, Any] | None:
        """What `write_end` kept, if it did."""
        data = read_if_there(self._end_path)
        if data is None:
            return None
        try:
            return _unsealed(_row(data))
        except (ValueError, RecursionError) as error:
            remedy = "remove it: the trial then has the scores of its last evaluation"
            raise ConfigError(f"{self._end_path} is damaged ({error}); {remedy}") from None

    def rows_to_end(self, rows: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Every row, or these, and the scores of the trial's end while nothing came after it."""
        rows, end = self.rows() if rows is None else rows, self.end()
        if end is None or (rows and rows[-1]["step"] > end["step"]):
            return rows
        is_apart = not rows or rows[-1]["step"] < end["step"]
        return [*rows, end] if is_apart else [*rows[:-1], with_end(rows[-1], end)]

    def sound(self) -> Sound:
        """As far as the rows go without a gap: a trial that lacks one waits to be computed again from there."""
        status = self.status()  # before the rows: a worker writes a row first, and then that it has come so far
        rows = self.rows()
        gap = missing_row(self.tree(), reached(status), (row["step"] for row in rows))
        if gap is None:
            return Sound(status, rows, gap)
        rows = [row for row in rows if row["step"] < gap]
        return Sound(replace(status, state="pending", step=last_step(rows), cause=""), rows, gap)

    def first_missing(self, reached: int = 0) -> int | None:
        """The first step whose row is missing, up to a step, the newest checkpoint and the last row."""
        steps = [row["step"] for row in self.rows()]
        return missing_row(self.tree(), max([reached, *steps[-1:], *self.checkpoints.steps()[-1:]]), steps)

    def restart(self) -> None:
        """Takes away all that was computed; a worker that still has the trial must not write any more."""
        if not (self.path / "config.json").exists():
            return
        self.update_status(state="pending", step=0, cause="")
        self.checkpoints.drop_from(0)
        self.cut_rows(0)

    def cut_rows(self, step: int) -> None:
        """Removes the rows of this step and later ones."""
        lines = (read_if_there(self.rows_path) or b"").splitlines(keepends=True)
        self._known_rows = b"".join(line for line in lines if line.endswith(b"\n") and _row(line)["step"] < step)
        write_atomically(self.rows_path, self._known_rows)

    def append_row(self, row: Mapping[str, Any]) -> None:
        """Appends one row durably. A torn last line is cut off first."""
        line = (json.dumps(row) + "\n").encode()
        if isinstance(self.path, RemotePath):
            self._put_row(row["step"], line)
        else:
            self._append_line(line)

    @retried
    def _append_line(self, line: bytes) -> None:
        """A line that was written twice, because the disk could not say that it was, counts once."""
        assert isinstance(self.path, Path)
        make_folder(self.path, parents=False)
        path = self.path / "rows.jsonl"
        is_first = not path.exists()
        with open(path, "ab+") as file:
            _cut_torn_line(file)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if is_first:
            sync_folder(self.path)

    def _put_row(self, step: int, line: bytes) -> None:
        """All rows again, with the new one: objects do not grow. What another worker wrote meanwhile stays."""
        try:
            size = self.rows_path.stat().st_size
        except FileNotFoundError:
            size = 0
        if size != len(self._known_rows):
            self._known_rows = _united(read_if_there(self.rows_path) or b"", self._known_rows)
        if any(_row(last)["step"] >= step for last in self._known_rows.splitlines()[-1:]):
            return
        self._known_rows += line
        write_atomically(self.rows_path, self._known_rows)

    def keep_rows(self) -> None:
        """At the end of a stretch: in an object store a request of a worker that was cut off may have come late, and
        put fewer rows in the place of ours."""
        if not isinstance(self.path, RemotePath) or not self._known_rows:
            return
        there = read_if_there(self.rows_path) or b""
        whole = _united(there, self._known_rows)
        if whole != there:
            write_atomically(self.rows_path, whole)

    # pictures

    @property
    def _pictures(self) -> Place:
        return self.path / "pictures"

    def _picture_path(self, step: int) -> Place:
        return self._pictures / f"step-{step:010d}.npz"

    def _write_picture_file(self, path: Place, data: bytes) -> None:
        """Also clears what a killed writer left."""
        make_folder(self._pictures, parents=False)
        for aside in (*_asides(self._pictures, ".step-*"), *_asides(self._pictures, ".failed*")):
            aside.unlink(missing_ok=True)
        write_atomically(path, data)

    def write_pictures(self, step: int, data: bytes) -> None:
        """In place of what this step has."""
        self._write_picture_file(self._picture_path(step), data)

    def picture_steps(self) -> list[int]:
        return _steps(self._pictures, ".npz")

    def read_pictures(self, step: int) -> bytes | None:
        """None where this step has none."""
        return read_if_there(self._picture_path(step))

    @property
    def pictures_failure_path(self) -> Place:
        """Why pictures could not be drawn, in words; there is no such file where all went well."""
        return self._pictures / "failed.txt"

    def write_pictures_failure(self, text: str) -> None:
        self._write_picture_file(self.pictures_failure_path, text.encode())

    def pictures_failure(self) -> str:
        """Empty where there is none."""
        return (read_if_there(self.pictures_failure_path) or b"").decode(errors="replace")


# ---- runs


def _is_generation(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("population"), str) or not _is_whole(entry.get("step")):
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
    def journal_path(self) -> Place:
        return self.path / "study.journal"

    @property
    def tracking_log(self) -> Path:
        """What the process that streams to W&B has to say; a file of its machine."""
        folder = self.path if isinstance(self.path, Path) else storage.scratch(self.path)
        return folder / "wandb.log"

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
        return TrialFolder(self.path / "trials" / trial_id)

    def known_trials(self, *names: str) -> dict[str, TrialFolder]:
        """By id, for reading: see `seen`."""
        return {folder.id: folder for folder in self.seen(*names).trials()}

    def trials(self) -> list[TrialFolder]:
        """Sorted by id. A folder whose creation was cut short has no config and does not count."""
        return [TrialFolder(self.path / "trials" / name) for name in self._recorded(is_id)]

    def ignored(self) -> list[str]:
        """Names of folders beside the trials that hold a config too, such as a copy, and are no trials."""
        return self._recorded(lambda name: not is_id(name))

    def _recorded(self, has: Callable[[str], bool]) -> list[str]:
        """Names of folders with a config, sorted."""
        folder = self.path / "trials"
        try:
            seen = storage.viewed(folder)
            paths = (path for path in seen.iterdir() if has(path.name)) if seen.is_dir() else ()
            return sorted(path.name for path in paths if path.is_dir() and (path / "config.json").exists())
        except OSError as error:
            raise ConfigError(f"{folder} cannot be read: {error.strerror}; choose another --storage") from None

    def notes(self) -> list[str]:
        """What someone who looks at the run or continues it has to know of its folder."""
        names = self.ignored()
        if not names:
            return []
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        where = shown(self.path / "trials")
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
        if not (self.path / "environment.json").exists():
            write_json(self.path / "environment.json", now)
            return
        known = self.environments()
        if is_another(known[-1], now):
            rows = {id: folder.rows() for id, folder in self.known_trials("config.json", "rows.jsonl").items()}
            after = {id: some[-1]["step"] for id, some in rows.items() if some}
            began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            write_json(self.sessions_path, [*known[1:], {"began": began, **now, "after": after}])

    def environment(self) -> dict[str, Any]:
        """Of the run's first session; empty when the file was removed."""
        path = self.path / "environment.json"
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
            content = _sealed({"generations": content})
        generations: list[dict[str, Any]] = content.get("generations")
        damage = _broken_seal(content, ("generations",))
        if not isinstance(generations, list) or not all(map(_is_generation, generations)):
            damage = "each entry has a step and moves"
        if damage:
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        return generations

    def add_generation(self, generation: Mapping[str, Any]) -> None:
        self.set_generations([*self.generations(), dict(generation)])

    def set_generations(self, generations: list[dict[str, Any]]) -> None:
        write_json(self._population_path, _sealed({"generations": generations}))

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
                _clear_asides(Path(str(folder)))

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
        if (path / "sweep.yaml").is_file():
            return Run(path.resolve())
    for path in paths:
        runs = sorted(child.parent for child in path.glob("*/sweep.yaml")) if path.is_dir() else []
        chosen = [run for run in runs if run.name == DEFAULT_RUN] or runs
        if len(chosen) == 1:
            return Run(chosen[0].resolve())
        if runs:
            raise ConfigError(f"{text} has several runs; name one: {', '.join(f'{text}/{run.name}' for run in runs)}")
    return None


def trial_at(path: Place) -> tuple[TrialFolder, Run]:
    """A trial by its folder, and the run it is of."""
    folder = TrialFolder(path.resolve())  # its name is the trial's id, also for `.`
    if (folder.path / "config.json").is_file():
        run = Run(folder.path.parent.parent)
        assert_own_files(run)
        return folder, run
    trials = Run(folder.path).trials()
    example = shown(trials[0].path) if trials else "runs/SWEEP/RUN/trials/ID"
    raise ConfigError(f"{path} is no trial's folder, for it has no config.json; name one such as {example}")
