"""The trials of a run as lines of a table that grows: each read takes in only what has changed on disk, and a reader
who has seen a version receives only the lines that are newer."""

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from threading import RLock
from typing import Any

from disentune.errors import ConfigError, first_line
from disentune.files.storage import Place, fetch
from disentune.learn.process import USED
from disentune.results.ranking import evaluated
from disentune.results.watch import Stamp, stamp
from disentune.runs.ledger import Run
from disentune.runs.rows import RowReader
from disentune.runs.trial_folder import END, ROWS, Status, TrialFolder, is_final
from disentune.spec.config import flattened, is_id
from disentune.spec.settings import Settings

MOST_POINTS = 400
"""Maximum number of points of a curve; a longer curve drops every second point."""
MOST_METRICS = 300
"""Real runs have far fewer."""
SETTLED_AT_ONCE = 400
"""Number of ended trials that each read checks again, in turn: they change when a sweep is resumed."""


# ---- one trial


@dataclass
class Course:
    """A metric over the steps of a trial."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    every: int = 1
    """One point in this many is kept."""
    count: int = 0

    def add(self, step: int, value: float) -> None:
        if self.count % self.every == 0:
            self.steps.append(step)
            self.values.append(value)
        self.count += 1
        if len(self.steps) > MOST_POINTS:
            self.steps, self.values, self.every = self.steps[::2], self.values[::2], self.every * 2


@lru_cache(maxsize=1000)
def _plain_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Metrics and the loss: parts of the loss, sums and watched numbers are many, and the page of a trial has them."""
    return tuple(key for key in keys if key == "loss" or key in set(evaluated(keys)))


class Trial:
    """One trial as last read; each of its files is read again only when it has changed."""

    def __init__(self, folder: TrialFolder, lock: RLock):
        self.folder, self.id, self.lock = folder, folder.id, lock
        self.stamps: dict[str, Stamp | None] = {}
        self.flat: dict[str, Any] = {}
        self.arms: tuple[str, ...] = ()
        self.status = Status()
        self.rows = RowReader(folder.rows_path)
        self.overrides: dict[str, Any] = {}
        self.used: dict[str, float] = {}
        """What its worker used at the last row, if the row says it."""
        self.courses: dict[str, Course] = {}
        self.latest: dict[str, float] = {}
        self.lowest: dict[str, float] = {}
        self.highest: dict[str, float] = {}
        self.step = 0
        self.version = 0

    @property
    def files(self) -> list[tuple[Place, Callable[[Stamp | None], None]]]:
        folder = self.folder
        return [(folder.config_path, self._read_config), (folder.status_path, self._read_status),
                (folder.rows_path, self._read_rows), (folder.end_path, self._read_end)]  # fmt: skip

    def changed_files(self) -> list[Place]:
        return [path for path, _ in self.files if self._is_news(path)]

    def _is_news(self, path: Place) -> bool:
        return path.name not in self.stamps or stamp(path) != self.stamps[path.name]

    def refresh(self) -> bool:
        """Reads the files; returns whether anything is new. A file that cannot be read keeps its last content."""
        news = False
        for path, read in self.files:
            try:
                now = stamp(path)
                if path.name in self.stamps and now == self.stamps[path.name]:
                    continue
                read(now)
                news = news or now is not None or path.name in self.stamps
                self.stamps[path.name] = now
            except (ConfigError, OSError, ValueError, KeyError, TypeError):
                continue  # the watcher says what is damaged
        return news

    def _read_config(self, now: Stamp | None) -> None:
        tree, self.arms = self.folder.tree_and_arms()
        self.flat = flattened(tree)

    def _read_status(self, now: Stamp | None) -> None:
        self.status = self.folder.status()

    def _read_rows(self, now: Stamp | None) -> None:
        """Rows are only ever appended; another or a shorter file is read from its start."""
        before = self.stamps.get(ROWS)
        if now is None or before is None or now[0] != before[0] or now[1] < self.rows.offset:
            self.rows, self.courses, self.latest, self.step = RowReader(self.folder.rows_path), {}, {}, 0
            self.stamps.pop(END, None)
        self.rows.path = self.folder.rows_path
        self._take_all_in(self.rows.loose_rows() if now else ())

    def _read_end(self, now: Stamp | None) -> None:
        end = self.folder.end() if now else None
        if end is not None and end["step"] >= self.step:
            self._take_all_in([end])

    def _take_all_in(self, rows: Iterable[Any]) -> None:
        with self.lock:
            for row in rows:
                self._take_in(row)

    def _take_in(self, row: Any) -> None:
        """Adds a row; ignores text that is not a row, and repeated rows."""
        if not isinstance(row, dict) or not isinstance(row.get("metrics"), dict) or type(row.get("step")) is not int:
            return
        if row["step"] < self.step:
            return
        self.step, metrics = row["step"], row["metrics"]
        if isinstance(row.get("overrides"), dict):
            self.overrides = row["overrides"]
        if isinstance(row.get("clock"), dict):
            self.used = {key: value for key in USED if _is_finite(value := row["clock"].get(key))}
        for key in _plain_keys(tuple(metrics))[:MOST_METRICS]:
            value = metrics[key]
            if _is_finite(value):
                self._note(key, float(value))

    def _note(self, key: str, value: float) -> None:
        self.latest[key] = value
        self.lowest[key] = min(self.lowest.get(key, value), value)
        self.highest[key] = max(self.highest.get(key, value), value)
        self.courses.setdefault(key, Course()).add(self.step, value)

    def state(self, settings: Settings, live: bool) -> str:
        """The state as `status` shows it: a trial that a dead driver left as running waits to be resumed."""
        if self.status.final:
            ended = is_final(self.status, self.flat["training.steps"], settings)
            return self.status.state if ended else "pending"
        return self.status.state if live else "pending"

    @property
    def values(self) -> Mapping[str, Any]:
        """The config as it was at the last row."""
        return {**self.flat, **self.overrides} if self.overrides else self.flat


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# ---- all trials of a run


class Feed:
    """Follows the trials of one run. `lock` is held for moments only, so that a page never waits for a disk."""

    def __init__(self, run: Run):
        self.run, self.lock = run, RLock()
        self.settings, self.live = Settings(), False
        self.trials: dict[str, Trial] = {}
        self.lines: OrderedDict[str, Trial] = OrderedDict()
        """Those whose config is known, the newest version last."""
        self.gone: list[tuple[int, str]] = []
        self.version, self.looks, self.turn = 0, 0, 0
        self.keys = _Keys()
        self.metrics: dict[str, None] = {}
        self.expected = 0
        """Folders of the last listing, to say how much has been read."""

    def look(self) -> None:
        """Reads what has changed; a missing run keeps its lines. Raises OSError if the storage does not answer."""
        seen = self.run.seen()
        if not seen.exists():
            return
        names = _names(seen)
        self.expected = len(names)
        self._forget(self.trials.keys() - set(names))
        for trial in self._due(seen, names):
            if trial.refresh() and trial.flat:
                self._publish(trial)
        self.looks += 1

    def _due(self, seen: Run, names: list[str]) -> Iterable[Trial]:
        if isinstance(seen.path, Path):
            settled = [self.trials[name] for name in names if self._is_settled(name)]
            unsettled = (self._trial(seen, name) for name in names if not self._is_settled(name))
            return chain(unsettled, self._in_turn(settled))
        every = [self._trial(seen, name) for name in names]
        fetch(path for trial in every for path in trial.changed_files())
        return every

    def _trial(self, seen: Run, name: str) -> Trial:
        if name not in self.trials:
            self.trials[name] = Trial(seen.trial(name), self.lock)
        elif not isinstance(seen.path, Path):
            self.trials[name].folder = seen.trial(name)  # of the newest view
        return self.trials[name]

    def _is_settled(self, name: str) -> bool:
        return name in self.lines and self.trials[name].status.final

    def _in_turn(self, settled: list[Trial]) -> list[Trial]:
        begin = self.turn if self.turn < len(settled) else 0
        self.turn = begin + SETTLED_AT_ONCE
        return settled[begin : self.turn]

    def _publish(self, trial: Trial) -> None:
        with self.lock:
            self.version += 1
            trial.version = self.version
            self.lines[trial.id] = trial
            self.lines.move_to_end(trial.id)
            self.keys.add(trial.id, trial.values)
            for key in trial.latest:
                if len(self.metrics) < MOST_METRICS:
                    self.metrics.setdefault(key)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            with self.lock:
                self.version += 1
                self.gone.append((self.version, name))
                self.trials.pop(name)
                self.lines.pop(name, None)

    def set_context(self, settings: Settings, live: bool) -> None:
        """The facts on which the state of every line depends."""
        if (settings, live) == (self.settings, self.live):
            return
        with self.lock:
            self.settings, self.live = settings, live
            for trial in self.lines.values():
                self.version += 1
                trial.version = self.version

    def newer(self, since: int, most: int) -> list[Trial]:
        """Lines after a version, the oldest first."""
        with self.lock:
            after = list(_until(reversed(self.lines.values()), since))
            return list(islice(reversed(after), most))

    def removed(self, since: int) -> list[str]:
        return [name for version, name in self.gone if version > since and name not in self.lines]


def _names(run: Run) -> list[str]:
    folder = run.trials_folder
    return sorted(path.name for path in folder.iterdir() if is_id(path.name)) if folder.is_dir() else []


def _until(trials: Iterable[Trial], since: int) -> Iterable[Trial]:
    for trial in trials:
        if trial.version <= since:
            return
        yield trial


class _Keys:
    """Which config keys differ between trials: the rule of `tables.varying_keys`, kept up to date line by line."""

    def __init__(self) -> None:
        self.trials: set[str] = set()
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}
        self.differing: dict[str, None] = {}

    def add(self, trial_id: str, values: Mapping[str, Any]) -> None:
        is_new = trial_id not in self.trials
        self.trials.add(trial_id)
        for key, value in values.items():
            if key == "seed" or value is None:  # null and absent are one thing in tables
                continue
            self.counts[key] = self.counts.get(key, 0) + is_new
            if key not in self.differing and self.first.setdefault(key, repr(value)) != repr(value):
                self.differing[key] = None

    def varying(self) -> list[str]:
        some = {key for key, count in self.counts.items() if count < len(self.trials)}
        names = {key: f"{key.split('.')[0]}.name" for key in some}
        return [key for key in self.counts
                if key in self.differing or (key in some and names[key] not in self.differing)]  # fmt: skip


def complaint(error: Exception) -> str:
    """A sentence for a reader of the page."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return first_line(f"{getattr(error, 'filename', None)}: {text}" if getattr(error, "filename", None) else text)
