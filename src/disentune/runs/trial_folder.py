"""One trial on disk: its config, status, rows, checkpoints and pictures.

Files are written to a temporary name, fsynced and renamed, or appended line by line, so a crash at any moment leaves a
readable folder. Writing the same row or checkpoint twice changes nothing.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

from disentune.errors import ConfigError
from disentune.files import storage
from disentune.files.storage import Place, RemotePath, make_folder, read_bytes, read_if_there, retried, sync_folder
from disentune.files.writing import asides, write_atomically
from disentune.runs.checkpoints import Checkpoints, steps_of
from disentune.runs.json_files import (
    broken_seal,
    checksum,
    is_number,
    is_whole,
    read_json,
    sealed,
    unsealed,
    write_json,
)
from disentune.runs.rows import (
    Flaw,
    RowReader,
    chained,
    cut_torn_line,
    end_of,
    first_gap,
    is_linked,
    last_line,
    last_step,
    linked,
    parsed_row,
    sound_rows,
    step_of,
    united,
    with_end,
)
from disentune.spec.config import PLAIN_SECTIONS, PLUGIN_SECTIONS, SECTIONS, Invalid, TrialConfig, id_of
from disentune.spec.settings import Settings

State = Literal["pending", "running", "done", "stopped", "diverged", "failed"]
FINISHED: tuple[State, ...] = ("done", "stopped")
"""States of trials that ended with valid numbers: `done` at the end of training, `stopped` earlier by a scheduler."""
FINAL: tuple[State, ...] = (*FINISHED, "diverged", "failed")
CONFIG, STATUS, ROWS, END, ARRIVED = "config.json", "status.json", "rows.jsonl", "end.json", "wandb.json"
"""Files of a trial that `Run.seen` can fetch."""
WANDB = "wandb"
"""The folder that W&B's client creates in the one it is given."""
MOST_ERROR_BYTES = 1 << 20


@dataclass(frozen=True)
class Status:
    state: State = "pending"
    step: int = 0
    cause: str = ""
    """Why it ended: an early stop, a divergence, an error with its traceback."""
    attempts: int = 0
    node: str = ""
    seconds: float = 0.0
    """Total seconds of training and scoring over all attempts."""
    contents: list[str] = field(default_factory=list)
    """Hashes of the prepared data that the trial reads."""
    faults: dict[str, int] = field(default_factory=dict)
    """How often each cause of `settings.Cause` has ended an attempt."""
    node_id: str = ""
    """Ray's id of the node of the newest attempt."""

    @property
    def final(self) -> bool:
        return self.state in FINAL


def is_final(status: Status, steps: int, settings: Settings) -> bool:
    """Whether a trial of this many steps is finished. A trial ended by `stop.steps` or a scheduler continues if the
    sweep now allows more steps."""
    if status.state == "done" and status.cause.startswith("stop.steps"):
        return status.step >= min(steps, settings.stop.steps or steps)
    if status.state == "stopped":
        return status.cause.startswith(f"scheduler.{settings.scheduler.name}:")
    return status.final


def is_cut(status: Status) -> bool:
    """Whether a trial trained less than a finished one: a scheduler stopped it, or it has not ended."""
    return not status.final or status.state == "stopped"


def _with_stopped(status: Status) -> Status:
    """Earlier versions recorded trials stopped by a scheduler as done, with the scheduler as the cause."""
    is_stopped = status.state == "done" and status.cause.startswith("scheduler.")
    return replace(status, state="stopped") if is_stopped else status


_STATUS_KINDS: dict[str, Callable[[Any], bool]] = {
    "state": lambda value: value in get_args(State),
    "step": is_whole,
    "cause": lambda value: isinstance(value, str),
    "attempts": is_whole,
    "node": lambda value: isinstance(value, str),
    "seconds": lambda value: is_number(value) and math.isfinite(value),
    "contents": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "faults": lambda value: isinstance(value, dict) and all(map(is_whole, value.values())),
    "node_id": lambda value: isinstance(value, str),
}


def _damage(config: dict[str, Any], arms: list[Any]) -> str:
    """Why tables and plans cannot use a recorded config; empty if they can. Its values are checked when the trial runs,
    because before that a user's own plug-in may be missing."""
    sections = (*PLUGIN_SECTIONS, *PLAIN_SECTIONS)
    if not all(isinstance(arm, str) for arm in arms):
        return "its arms must be names"
    if strange := sorted(config.keys() - {*SECTIONS, "seed"}):
        return f"it has an unknown section {strange[0]!r:.60}"
    if wrong := [section for section in sections if not isinstance(config.get(section), dict)]:
        return f"`{wrong[0]}` must be a mapping"
    if unnamed := [section for section in PLUGIN_SECTIONS if not isinstance(config[section].get("name"), str)]:
        return f"`{unnamed[0]}` must have a name"
    if not is_whole(config.get("seed")) or not is_whole(config["training"].get("steps")):
        return "`seed` and `training.steps` must be whole numbers"
    return ""


def _is_tree_of(trial_id: str, config: dict[str, Any]) -> bool:
    """Whether the name of a trial's folder is the hash of its config."""
    try:
        return id_of(config) == trial_id
    except ValueError:  # a number in it is not finite
        return False


def reached(status: Status) -> int:
    """The step up to which a trial must have rows: a diverged trial has no row of its last step, and a failed trial may
    have none."""
    return 0 if status.state == "failed" else status.step - (status.state == "diverged")


class Sound(NamedTuple):
    """A trial's status, and its rows up to `gap`, the first missing step; all if it is None. `flaw` is the first
    damaged line; rows behind it count as missing."""

    status: Status
    rows: list[dict[str, Any]]
    gap: int | None
    flaw: Flaw | None


class TrialFolder:
    """One trial on disk."""

    def __init__(self, path: Place):
        self.path, self.id = path, path.name
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._known_rows = b""
        """The rows as this process last wrote them to an object store."""

    # config

    @property
    def config_path(self) -> Place:
        return self.path / CONFIG

    @property
    def is_recorded(self) -> bool:
        """Whether the folder has a config; without one it is not a trial."""
        return self.config_path.is_file()

    def create(self, config: TrialConfig, arms: tuple[str, ...]) -> None:
        """Writes the config, or adds arms to the existing one; a folder with this id always has this config."""
        known = self.arms() if self.config_path.exists() else ()
        if known and set(arms) <= set(known):
            return
        make_folder(self.path)
        arms = tuple(dict.fromkeys((*known, *arms)))
        head = sealed({"trial_id": self.id, "arms": list(arms)})  # the config's own hash is the id
        write_json(self.config_path, {**head, "config": config.tree()})

    def _config_file(self) -> dict[str, Any]:
        path = self.config_path
        remedy = f"remove the folder {self.path} to run this trial again"
        content: dict[str, Any] = read_json(path, remedy, default={"missing": True})
        if "missing" in content:
            raise ConfigError(f"{path} is missing; {remedy}")
        if not isinstance(content.get("config"), dict) or not isinstance(content.get("arms"), list):
            raise ConfigError(f"{path} is damaged (it must contain `config` and `arms`); {remedy}")
        if damage := _damage(content["config"], content["arms"]):
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        if not _is_tree_of(self.id, content["config"]):
            raise ConfigError(f"{path} is not the config of trial {self.id}: it was edited or damaged; {remedy}")
        head = {key: value for key, value in content.items() if key != "config"}
        if damage := broken_seal(
            {"checksum": checksum(head), **head}, ("trial_id", "arms")
        ):  # files of older versions have no checksum
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        return content

    def arms(self) -> tuple[str, ...]:
        return self.tree_and_arms()[1]

    def tree(self) -> dict[str, Any]:
        return self.tree_and_arms()[0]

    def tree_and_arms(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Config and arms, read once; no plug-in is imported."""
        content = self._config_file()
        return content["config"], tuple(content["arms"])

    def config(self) -> TrialConfig:
        path = self.config_path
        try:
            config = TrialConfig.parse(self.tree())
        except Invalid as error:
            raise ConfigError(f"{path} cannot be used by this version: {error}") from None
        if config.id != self.id:
            raise ConfigError(
                f"{path} was written by another version of disentune, in which it described a different trial; "
                f"remove the folder {self.path} to run this trial again"
            )
        return config

    @property
    def origin_path(self) -> Place:
        """Where the trial was copied from; missing if it was trained here."""
        return self.path / "origin.json"

    # status

    @property
    def status_path(self) -> Place:
        return self.path / STATUS

    def status(self) -> Status:
        path = self.status_path
        remedy = "remove it, and the trial continues from its newest checkpoint"
        try:
            status = Status(**read_json(path, remedy, default={}))
        except TypeError as error:
            raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
        if wrong := [key for key, is_right in _STATUS_KINDS.items() if not is_right(getattr(status, key))]:
            raise ConfigError(f"{path} is damaged ({wrong[0]} {getattr(status, wrong[0])!r:.60}); {remedy}")
        return _with_stopped(status)

    def set_status(self, status: Status) -> None:
        write_json(self.status_path, asdict(status))

    def update_status(self, **changes: Any) -> Status:
        status = replace(self.status(), **changes)
        self.set_status(status)
        return status

    # errors

    @property
    def errors_path(self) -> Place:
        """Errors of each attempt; the file exists only if there were errors."""
        return self.path / "errors.log"

    def add_error(self, text: str) -> None:
        """Appends an error; the oldest are dropped if there are very many."""
        before = read_if_there(self.errors_path) or b""
        write_atomically(self.errors_path, (before + text.encode(errors="replace"))[-MOST_ERROR_BYTES:])

    # W&B

    @property
    def wandb_home(self) -> Path:
        """A folder on this machine for the client, which creates its own folder in it."""
        if isinstance(self.path, Path):
            return self.path
        home = storage.scratch(self.path.parent.parent) / self.id
        home.mkdir(exist_ok=True)
        return home

    @property
    def wandb_folder(self) -> Path:
        """Where the client keeps a run's files: unsent data, or the offline run."""
        return self.wandb_home / WANDB

    def keep_wandb_files(self) -> None:
        """Copies an offline W&B run from this machine to a run in an object store."""
        if isinstance(self.path, Path):
            return
        files = (file for file in self.wandb_folder.rglob("*") if file.is_file() and not file.is_symlink())
        names = {file.relative_to(self.wandb_folder).as_posix(): file for file in files}
        kept = self.path / WANDB
        for name, file in names.items():
            (kept / name).write_bytes(file.read_bytes())
        for path in storage.files_below(kept):
            if str(path.relative_to(kept)) not in names:
                path.unlink(missing_ok=True)

    @property
    def _arrived_path(self) -> Place:
        return self.path / ARRIVED

    def arrived(self) -> dict[str, Any]:
        """The last step and state that W&B has confirmed, by destination."""
        try:
            known = json.loads(read_bytes(self._arrived_path))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def has_arrived(self, place: str) -> bool:
        """Whether W&B has confirmed everything that exists now."""
        known = self.arrived().get(place)
        if known is None:
            return False
        try:
            rows = self.rows_to_end()
            return bool(known == [rows[-1]["step"] if rows else 0, self.status().state])
        except ConfigError:  # an unreadable trial does not count as sent
            return False

    def note_arrival(self, place: str, what: Any) -> None:
        write_json(self._arrived_path, {**self.arrived(), place: what})

    # rows

    @property
    def rows_path(self) -> Place:
        return self.path / ROWS

    def rows(self) -> list[dict[str, Any]]:
        """All complete rows before the first damaged line, sorted by step, one per step."""
        return self.rows_and_flaw()[0]

    def rows_and_flaw(self) -> tuple[list[dict[str, Any]], Flaw | None]:
        """The rows, and the first damaged line."""
        reader, by_step = RowReader(self.rows_path), dict[int, dict[str, Any]]()
        for row in reader.rows():
            by_step.setdefault(row["step"], row)
        return [by_step[step] for step in sorted(by_step)], reader.flaw

    @property
    def end_path(self) -> Place:
        return self.path / END

    def write_end(self, end: Mapping[str, Any]) -> None:
        """Stores the scores of a trial that ended between two evaluations, as a row with its step. They are not added
        to rows.jsonl, so that a trial that continues later has the same rows as one that was never stopped."""
        write_json(self.end_path, sealed(end))

    def end(self) -> dict[str, Any] | None:
        """The row stored by `write_end`, if there is one."""
        data = read_if_there(self.end_path)
        if data is None:
            return None
        try:
            return unsealed(parsed_row(data))
        except (ValueError, RecursionError) as error:
            remedy = "remove it, and the trial has the scores of its last evaluation"
            raise ConfigError(f"{self.end_path} is damaged ({error}); {remedy}") from None

    def rows_to_end(self, rows: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """All rows (or the given ones), with the scores of the trial's end if no later row exists."""
        rows, end = self.rows() if rows is None else rows, self.end()
        if end is None or (rows and rows[-1]["step"] > end["step"]):
            return rows
        is_apart = not rows or rows[-1]["step"] < end["step"]
        return [*rows, end] if is_apart else [*rows[:-1], with_end(rows[-1], end)]

    def sound(self) -> Sound:
        """Status and rows up to the first gap; a trial with a missing row is computed again from there."""
        status = self.status()  # read before the rows, because a worker writes a row before its status
        rows, flaw = self.rows_and_flaw()
        gap = first_gap(self.tree(), reached(status), (row["step"] for row in rows), flaw)
        if gap is None:
            return Sound(status, rows, gap, flaw)
        rows = [row for row in rows if row["step"] < gap]
        return Sound(replace(status, state="pending", step=last_step(rows), cause=""), rows, gap, flaw)

    def first_missing(self, reached: int = 0) -> int | None:
        """The first missing row up to a step, the newest checkpoint and the last row."""
        rows, flaw = self.rows_and_flaw()
        steps = [row["step"] for row in rows]
        return first_gap(self.tree(), max([reached, *steps[-1:], *self.checkpoints.steps()[-1:]]), steps, flaw)

    def restart(self) -> None:
        """Removes all that was computed; a worker that still runs the trial must not write any more."""
        if not self.config_path.exists():
            return
        self.update_status(state="pending", step=0, cause="")
        self.checkpoints.drop_from(0)
        self.cut_rows(0)

    def cut_rows(self, step: int) -> None:
        """Removes the rows of this step and later, and all damaged ones."""
        kept = sound_rows(self.id, read_if_there(self.rows_path) or b"")
        self._known_rows = chained(self.id, (kept[at] for at in sorted(kept) if at < step))
        write_atomically(self.rows_path, self._known_rows)

    def append_row(self, row: Mapping[str, Any]) -> None:
        """Appends one row durably, after removing an incomplete last line. A step that has a row keeps it."""
        text = json.dumps(row).encode()
        if isinstance(self.path, RemotePath):
            self._put_row(row["step"], text)
        else:
            self._append_row(row["step"], text)

    @retried
    def _append_row(self, step: int, text: bytes) -> None:
        """A row that is there already, because the first write was not confirmed, is only synced again."""
        assert isinstance(self.path, Path)
        make_folder(self.path, parents=False)
        path = self.path / ROWS
        is_first = not path.exists()
        with open(path, "ab+") as file:
            cut_torn_line(file)
            last = last_line(file)
            newest = step_of(last) or 0
            if newest < step:
                file.write(linked(self._end(file, last), text))
                file.flush()
            os.fsync(file.fileno())
        if is_first:
            sync_folder(self.path)
        if newest > step:  # another worker, which was cut off, went ahead
            before = read_bytes(path)
            write_atomically(path, united(self.id, before, chained(self.id, [text])))

    def _end(self, file: BinaryIO, last: bytes) -> bytes:
        """The hash that the next row follows; rows without hashes are read completely."""
        if not is_linked(last):
            file.seek(0)
            last = file.read()
        return end_of(self.id, last)

    def _put_row(self, step: int, text: bytes) -> None:
        """Writes all rows again with the new one, because objects cannot be appended to. Keeps rows of other
        workers."""
        try:
            size = self.rows_path.stat().st_size
        except FileNotFoundError:
            size = 0
        if size != len(self._known_rows):
            self._known_rows = united(self.id, read_if_there(self.rows_path) or b"", self._known_rows)
        if any(parsed_row(last)["step"] >= step for last in self._known_rows.splitlines()[-1:]):
            return
        self._known_rows += linked(end_of(self.id, self._known_rows), text)
        write_atomically(self.rows_path, self._known_rows)

    def keep_rows(self) -> None:
        """Called at the end of a segment: in an object store, a late request of a worker that was cut off may have
        replaced our rows with fewer."""
        if not isinstance(self.path, RemotePath) or not self._known_rows:
            return
        there = read_if_there(self.rows_path) or b""
        whole = united(self.id, there, self._known_rows)
        if whole != there:
            write_atomically(self.rows_path, whole)

    def computed_files(self) -> list[Place]:
        """All files that a trial computed, without its config and its W&B state."""
        checkpoints = [self.checkpoints.path(step) for step in self.checkpoints.steps()]
        pictures = sorted(path for path in self._pictures.glob("*") if not path.name.startswith("."))
        files = [self.rows_path, self.end_path, self.status_path, self.errors_path, *checkpoints, *pictures]
        return [path for path in files if path.is_file()]

    # pictures

    @property
    def _pictures(self) -> Place:
        return self.path / "pictures"

    def picture_path(self, step: int) -> Place:
        return self._pictures / f"step-{step:010d}.npz"

    def _write_picture_file(self, path: Place, data: bytes) -> None:
        """Also removes temporary files of killed writers."""
        make_folder(self._pictures, parents=False)
        for aside in (*asides(self._pictures, ".step-*"), *asides(self._pictures, ".failed*")):
            aside.unlink(missing_ok=True)
        write_atomically(path, data)

    def write_pictures(self, step: int, data: bytes) -> None:
        """Replaces the pictures of this step."""
        self._write_picture_file(self.picture_path(step), data)

    def picture_steps(self) -> list[int]:
        return steps_of(self._pictures, ".npz")

    def read_pictures(self, step: int) -> bytes | None:
        """The pictures of a step; None if it has none."""
        return read_if_there(self.picture_path(step))

    @property
    def pictures_failure_path(self) -> Place:
        """Why pictures could not be drawn; the file exists only if drawing failed."""
        return self._pictures / "failed.txt"

    def write_pictures_failure(self, text: str) -> None:
        self._write_picture_file(self.pictures_failure_path, text.encode())

    def pictures_failure(self) -> str:
        """The text of a file; empty if it does not exist."""
        return (read_if_there(self.pictures_failure_path) or b"").decode(errors="replace")
