"""One trial on disk: its config, status, rows, checkpoints and pictures.

Files are written aside, fsynced and renamed, or appended line by line; so a machine that dies at any moment leaves a
folder that can be read. Writing the same row or checkpoint twice changes nothing.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

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
from disentune.runs.rows import RowReader, cut_torn_line, last_step, missing_row, parsed_row, united, with_end
from disentune.spec.config import PLAIN_SECTIONS, PLUGIN_SECTIONS, SECTIONS, Invalid, TrialConfig, id_of
from disentune.spec.settings import Settings

State = Literal["pending", "running", "done", "diverged", "failed"]
FINAL: tuple[State, ...] = ("done", "diverged", "failed")
CONFIG, STATUS, ROWS, END, ARRIVED = "config.json", "status.json", "rows.jsonl", "end.json", "wandb.json"
"""Files of a trial that `Run.seen` may be asked for."""
WANDB = "wandb"
"""The folder that the client of W&B makes in the one that it is given."""
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
    """Whether a trial of so many steps stays as it is. One that `stop.steps` or a scheduler ended continues if
    the sweep now allows it more."""
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
    if not is_whole(config.get("seed")) or not is_whole(config["training"].get("steps")):
        return "`seed` and `training.steps` must be whole numbers"
    return ""


def _is_tree_of(trial_id: str, config: dict[str, Any]) -> bool:
    """Whether a trial's folder has the name of its config, which is its hash."""
    try:
        return id_of(config) == trial_id
    except ValueError:  # a number that is not finite
        return False


def reached(status: Status) -> int:
    """The step up to which a trial must have its rows: one that diverged has none of that very step, and nothing is
    asked of one that failed."""
    return 0 if status.state == "failed" else status.step - (status.state == "diverged")


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

    @property
    def config_path(self) -> Place:
        return self.path / CONFIG

    @property
    def is_recorded(self) -> bool:
        """Whether its config was written, without which a folder is no trial."""
        return self.config_path.is_file()

    def create(self, config: TrialConfig, arms: tuple[str, ...]) -> None:
        """Writes the config, or adds arms to the one that is there; a folder of this id always has this config."""
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
            raise ConfigError(f"{path} is damaged (it must hold `config` and `arms`); {remedy}")
        if damage := _damage(content["config"], content["arms"]):
            raise ConfigError(f"{path} is damaged ({damage}); {remedy}")
        if not _is_tree_of(self.id, content["config"]):
            raise ConfigError(f"{path} is not the config of trial {self.id}: it was edited or damaged; {remedy}")
        head = {key: value for key, value in content.items() if key != "config"}
        if damage := broken_seal({"checksum": checksum(head), **head}, ("trial_id", "arms")):  # older ones have none
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
        path = self.config_path
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

    @property
    def status_path(self) -> Place:
        return self.path / STATUS

    def status(self) -> Status:
        path = self.status_path
        remedy = "remove it: the trial continues from its newest checkpoint"
        try:
            status = Status(**read_json(path, remedy, default={}))
        except TypeError as error:
            raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
        if wrong := [key for key, is_right in _STATUS_KINDS.items() if not is_right(getattr(status, key))]:
            raise ConfigError(f"{path} is damaged ({wrong[0]} {getattr(status, wrong[0])!r:.60}); {remedy}")
        return status

    def set_status(self, status: Status) -> None:
        write_json(self.status_path, asdict(status))

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
        return self.wandb_home / WANDB

    def keep_wandb_files(self) -> None:
        """An offline run that was written on this machine becomes a part of a run that lies in an object store."""
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
        """By place, the last step and the state that are known to have arrived there."""
        try:
            known = json.loads(read_bytes(self._arrived_path))
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
            return bool(known == [rows[-1]["step"] if rows else 0, self.status().state])
        except ConfigError:  # what cannot be read cannot be said to be there
            return False

    def note_arrival(self, place: str, what: Any) -> None:
        write_json(self._arrived_path, {**self.arrived(), place: what})

    # rows

    @property
    def rows_path(self) -> Place:
        return self.path / ROWS

    def rows(self) -> list[dict[str, Any]]:
        """Every complete row, by step, each step once."""
        by_step: dict[int, dict[str, Any]] = {}
        for row in RowReader(self.rows_path).rows():
            by_step.setdefault(row["step"], row)
        return [by_step[step] for step in sorted(by_step)]

    @property
    def end_path(self) -> Place:
        return self.path / END

    def write_end(self, end: Mapping[str, Any]) -> None:
        """Keeps the scores of a trial that ended between two evaluations, as a row with its step. They are no part of
        rows.jsonl: the rows of a trial that later continues are those of a trial that was never stopped."""
        write_json(self.end_path, sealed(end))

    def end(self) -> dict[str, Any] | None:
        """What `write_end` kept, if it did."""
        data = read_if_there(self.end_path)
        if data is None:
            return None
        try:
            return unsealed(parsed_row(data))
        except (ValueError, RecursionError) as error:
            remedy = "remove it: the trial then has the scores of its last evaluation"
            raise ConfigError(f"{self.end_path} is damaged ({error}); {remedy}") from None

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
        if not self.config_path.exists():
            return
        self.update_status(state="pending", step=0, cause="")
        self.checkpoints.drop_from(0)
        self.cut_rows(0)

    def cut_rows(self, step: int) -> None:
        """Removes the rows of this step and later ones."""
        lines = (read_if_there(self.rows_path) or b"").splitlines(keepends=True)
        self._known_rows = b"".join(line for line in lines if line.endswith(b"\n") and parsed_row(line)["step"] < step)
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
        path = self.path / ROWS
        is_first = not path.exists()
        with open(path, "ab+") as file:
            cut_torn_line(file)
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
            self._known_rows = united(read_if_there(self.rows_path) or b"", self._known_rows)
        if any(parsed_row(last)["step"] >= step for last in self._known_rows.splitlines()[-1:]):
            return
        self._known_rows += line
        write_atomically(self.rows_path, self._known_rows)

    def keep_rows(self) -> None:
        """At the end of a stretch: in an object store a request of a worker that was cut off may have come late, and
        put fewer rows in the place of ours."""
        if not isinstance(self.path, RemotePath) or not self._known_rows:
            return
        there = read_if_there(self.rows_path) or b""
        whole = united(there, self._known_rows)
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
        for aside in (*asides(self._pictures, ".step-*"), *asides(self._pictures, ".failed*")):
            aside.unlink(missing_ok=True)
        write_atomically(path, data)

    def write_pictures(self, step: int, data: bytes) -> None:
        """In place of what this step has."""
        self._write_picture_file(self._picture_path(step), data)

    def picture_steps(self) -> list[int]:
        return steps_of(self._pictures, ".npz")

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
