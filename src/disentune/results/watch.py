"""The current state of a run, read from its folder. A refresh reads only what has changed; nothing is written.

If a file vanishes or is incomplete while it is read, its last valid content is kept until the next refresh.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from disentune.errors import ConfigError, first_line
from disentune.files.remembered import remembered
from disentune.files.storage import Place, fetch, place
from disentune.metrics import best_of
from disentune.results import ended
from disentune.results.ranking import BROKEN, evaluated, rank
from disentune.runs.choice import Selection, parsed_selection
from disentune.runs.ledger import Run
from disentune.runs.rows import RowReader, first_gap
from disentune.runs.trial_folder import FINISHED, ROWS, Status, TrialFolder, is_cut, is_final, reached
from disentune.spec import space
from disentune.spec.config import flattened, metric_keys, nested
from disentune.spec.settings import Asha, Median, Objective, OptunaSearch, Settings
from disentune.spec.sweepfile import SweepFile

T = TypeVar("T")
SPEED_WINDOW_S = 300.0
"""The speed of a trial is measured over its last minutes."""
ENDED_WINDOW_S = 3600.0
STATES = ("done", "stopped", "running", "pending", "diverged", "failed")
MOST_TROUBLES = 5
LOSS = Objective(metric="loss", mode="min")


class Mark(NamedTuple):
    """The part of a row that is kept."""

    step: int
    seconds: float
    value: float | None
    overrides: Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """One trial as last read. `steps` is its last step, `value` its objective by the sweep's rule."""

    id: str
    arms: tuple[str, ...]
    seed: Any
    state: str
    step: int
    steps: int
    seconds: float
    cause: str
    changed: float
    latest: float | None
    value: float | None
    speed: float | None
    point: Mapping[str, Any]
    """The values of the keys that its arms search over, at its last row."""
    cut: bool = False
    """Whether it trained less than a finished trial, as in `results.Record`."""

    @property
    def ended(self) -> bool:
        return self.state not in ("running", "pending")

    @property
    def left(self) -> int:
        return 0 if self.ended else max(0, self.steps - self.step)


@dataclass(frozen=True)
class Trouble:
    """Trials that failed or diverged for the same reason: the newest, and how many there are."""

    trial: Seen
    count: int


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. Without a driver `speed`, `ended_an_hour` and `left_s` are unknown.

    `run` and `status` both show this, so that they agree."""

    time: float
    gone: bool
    """Whether the run was deleted."""
    live: bool
    stopping: bool
    session_s: float | None
    trials: tuple[Seen, ...]
    expected: int
    at_most: bool
    """A model-based search may have fewer trials than expected, because equal suggestions run once."""
    objective: Objective
    best: Seen | None
    speed: float | None
    ended_an_hour: float | None
    left_s: float | None
    share: float
    """Share of all steps that has been trained; the steps of trials that a scheduler may stop are estimated."""
    notes: tuple[str, ...]
    """What could not be read."""
    selection: Selection | None = None
    """The selection of the driver; None for every trial. All counts and times refer to these trials."""

    @property
    def states(self) -> dict[str, int]:
        """Trials that have not started count as pending; only those that a worker trains now are running."""
        counts = Counter(trial.state for trial in self.selected)
        counts["pending"] += max(0, self.expected - len(self.selected))
        return {state: counts[state] for state in STATES if counts[state]}

    @property
    def selected(self) -> Sequence[Seen]:
        """The trials that the driver was asked to run."""
        return _selected(self.trials, self.selection)

    @property
    def ended(self) -> int:
        return sum(trial.ended for trial in self.selected)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do, not counting further suggestions of a model-based search."""
        begun = bool(self.trials) and self.ended == len(self.trials)
        return not self.live and begun and (self.at_most or len(self.trials) >= self.expected)

    @property
    def running(self) -> list[Seen]:
        """Running trials, longest-running first, so that the lines of a table move little."""
        return sorted((trial for trial in self.trials if trial.state == "running"), key=lambda t: (-t.seconds, t.id))

    @property
    def troubles(self) -> list[Trouble]:
        """Problems, newest first; trials with the same cause are grouped."""
        by_cause: dict[tuple[str, str], list[Seen]] = {}
        for trial in sorted(self.trials, key=lambda trial: (-trial.changed, trial.id)):
            if trial.state in BROKEN:
                by_cause.setdefault((trial.state, first_line(trial.cause)), []).append(trial)
        return [Trouble(trials[0], len(trials)) for trials in by_cause.values()]


# ---- what the sweep asks for


@dataclass(frozen=True)
class Asked:
    """What a recorded sweep says about its trials; `steps` has the last step of trials known in advance. No plug-in of
    the sweep is imported, because the run may come from someone else."""

    settings: Settings = field(default_factory=Settings)
    objective: Objective = LOSS
    steps: Sequence[int] = ()
    at_most: int | None = None
    searched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    readable: bool = True
    """Whether the sweep could be read; if not, it is unknown how its trials are ranked."""
    rows_tell: bool = False
    """Whether the objective is the first metric that appears in a row, because only a user's own code knows it
    before."""


def asked(sweep: SweepFile) -> Asked:
    settings, search = sweep.settings, sweep.settings.search
    searched = {arm: tuple(space.domains(entries)) for arm, entries in sweep.arms.items()}
    metrics = [] if settings.objective else _metrics(sweep)
    objective = settings.objective or _objective(metrics or [])
    ask = Asked(settings, objective, searched=searched, rows_tell=metrics is None)
    if isinstance(search, OptunaSearch):
        return replace(ask, at_most=search.points * len(sweep.seeds) * len(sweep.arms))
    whole = json.dumps(sweep.resolved(), default=str)
    steps = remembered("steps", whole, lambda: space.steps_of_trials(sweep))  # else every plug-in would be loaded
    return replace(ask, steps=[last_step(one, settings) for one in steps])


def _metrics(sweep: SweepFile) -> list[str] | None:
    """What the first trial evaluates; None if that depends on a user's own code."""
    points = space.corners if isinstance(sweep.settings.search, OptunaSearch) else space.arm_points
    first = nested(next(points(sweep, next(iter(sweep.arms)))))
    return metric_keys(first.get("evaluation", {}))


def _objective(metrics: Sequence[str]) -> Objective:
    """The default objective: the first metric that the trials evaluate, or else the loss."""
    return Objective(metric=metrics[0], mode=best_of(metrics[0])) if metrics else LOSS


def _metrics_in_rows(run: Run) -> list[str]:
    """The first metric of the first row that has any."""
    for folder in run.trials():
        with suppress(ConfigError, OSError):  # unreadable files are reported elsewhere
            if found := next(filter(None, (evaluated(row["metrics"]) for row in folder.rows_to_end())), None):
                return found
    return []


def last_step(steps: int, settings: Settings) -> int:
    return min(steps, settings.stop.steps or steps)


# ---- reading


Stamp = tuple[int, int, int]
"""Inode, size and time of a file, which change with its content; the time of an object has only whole seconds."""
COARSE_S = 2.0


def stamp(path: Place) -> Stamp | None:
    """None if there is no file. Raises OSError if the storage does not answer."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Reader:
    """The files of one trial; each is read again only after it has changed."""

    def __init__(self, folder: TrialFolder, metric: str):
        self.folder, self.metric = folder, metric
        self.places: dict[str, Stamp | None] = {}
        self.unsettled: dict[str, float] = {}
        """When the current version of an object was first seen; until it is older, a replacement may go unnoticed."""
        self.arms: tuple[str, ...] = ()
        self.tree: dict[str, Any] = {}
        self.flat: dict[str, Any] = {}
        self.status, self.changed = Status(), 0.0
        self.marks: list[Mark] = []
        self.end: Mark | None = None
        self.reader, self.damaged = RowReader(folder.rows_path), False
        self.complaints: dict[str, str] = {}
        self.gap: int | None = None
        """The first step whose row was written and is missing now."""
        self.last: tuple[Asked, bool, Seen] | None = None

    @property
    def _files(self) -> list[tuple[Place, Callable[[Stamp | None], None]]]:
        folder = self.folder
        return [(folder.config_path, self._config), (folder.status_path, self._status), (folder.rows_path, self._rows),
                (folder.end_path, self._end)]  # fmt: skip

    def refresh(self) -> None:
        known = dict(self.places)
        for path, read in self._files:
            name = path.name
            try:
                place = stamp(path)
                if self._is_news(name, place):
                    read(place)
                    self._settle(name, place)
                    self.places[name], self.last = place, None
                self.complaints.pop(name, None)
            except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
                self.complaints[name] = f"{path} cannot be read now: {first_line(str(error))}"
        if self.places != known and not self.complaints:
            with suppress(ConfigError, OSError):  # unreadable files are read again at the next refresh
                self.gap = self._gap()

    def _gap(self) -> int | None:
        gap = first_gap(self.tree, reached(self.status), (mark.step for mark in self.marks), self.reader.flaw)
        if gap is None or isinstance(self.folder.path, Path):
            return gap
        return TrialFolder(place(str(self.folder.path))).sound().gap  # objects may have been read in any order

    def to_read(self) -> list[Place]:
        """The files that a refresh would read."""
        return [path for path, _ in self._files if self._is_news(path.name, _quietly(stamp, path))]

    def _is_news(self, name: str, place: Stamp | None) -> bool:
        return name not in self.places or place != self.places[name] or name in self.unsettled

    def _settle(self, name: str, place: Stamp | None) -> None:
        if isinstance(self.folder.path, Path):
            return
        if name not in self.places or place != self.places[name]:
            self.unsettled[name] = time.monotonic()
        elif time.monotonic() - self.unsettled[name] >= COARSE_S:
            del self.unsettled[name]

    def _config(self, place: Stamp | None) -> None:
        tree, arms = self.folder.tree_and_arms()
        self.tree, self.flat, self.arms = tree, flattened(tree), arms

    def _status(self, place: Stamp | None) -> None:
        status = self.folder.status()
        if not isinstance(status.cause, str) or not math.isfinite(status.seconds):
            raise TypeError("its cause must be a string and its seconds a number")
        self.status, self.changed = status, place[2] / 1e9 if place else 0.0

    def _rows(self, place: Stamp | None) -> None:
        """Rows are only appended, so rows that were read are kept; a different or shorter file is read from its
        start."""
        before = self.places.get(ROWS)
        if place is None or before is None or place[0] != before[0] or place[1] < self.reader.offset:
            self.marks, self.reader, self.damaged = [], RowReader(self.folder.rows_path), False
        if place is None:
            return
        self.reader.path = self.folder.rows_path  # in the newest snapshot of the run
        for row in self.reader.loose_rows():
            self._take_in(_mark(row, self.metric))

    def _end(self, place: Stamp | None) -> None:
        end = self.folder.end()
        self.end = None if end is None else _mark(end, self.metric)

    @property
    def _marks_to_end(self) -> list[Mark]:
        """The rows, with the scores of the trial's end if no later row exists."""
        outdated = self.end is None or (self.marks and self.marks[-1].step > self.end.step)
        return self.marks if outdated or self.end is None else [*self.marks, self.end]

    def _take_in(self, mark: Mark | None) -> None:
        if mark is None:
            self.damaged = True
        elif not self.marks or mark.step > self.marks[-1].step:
            self.marks.append(mark)

    @property
    def notes(self) -> list[str]:
        damage = [f"{self.folder.rows_path} has a damaged line"] if self.damaged else []
        if self.reader.flaw:
            damage = [f"{self.folder.rows_path}: {self.reader.flaw}; resuming the run computes it again"]
        lacks = f"{self.folder.rows_path} has no row of step {self.gap}; resuming the run computes it again"
        return [*self.complaints.values(), *damage, *([lacks] if self.gap and not damage else [])]

    @property
    def is_read(self) -> bool:
        return bool(self.flat)

    def whole(self, live: bool) -> tuple[TrialFolder, Status, int]:
        """Raises ConfigError for a trial that is damaged."""
        if self.complaints or not self.tree:
            return self.folder, self.folder.status(), self.folder.tree()["training"]["steps"]
        status = self.status
        if live and status.state == "running" and self.marks and self.marks[-1].step > status.step:
            status = replace(status, step=self.marks[-1].step, seconds=self.marks[-1].seconds)
        return self.folder, status, self.tree["training"]["steps"]

    def as_ended(self, ask: Asked) -> ended.Entry | None:
        """What later commands need of it; None if it has not ended, is damaged, or was written just now."""
        if not self.is_read or self.notes or not is_final(self.status, self.flat["training.steps"], ask.settings):
            return None
        marks = ended.marks_of(self.folder)
        as_read = [self.places.get(name) for name in ended.FILES]
        if not ended.is_settled(marks) or [tuple(mark[:3]) if mark else None for mark in marks] != as_read:
            return None
        seen = self.seen(ask, False, 0.0)
        return {"marks": marks, "steps": self.flat["training.steps"], "status": vars(self.status), "seen": vars(seen)}

    def seen(self, ask: Asked, live: bool, now: float) -> Seen:
        """Rebuilt only if something has changed; the time of a running trial advances by itself."""
        if self.last is None or self.last[0] is not ask or self.last[1] != live:
            self.last = (ask, live, self._seen(ask, live))
        seen = self.last[2]
        if seen.state != "running":
            return seen
        return replace(seen, seconds=seen.seconds + max(0.0, now - self.changed))

    def _seen(self, ask: Asked, live: bool) -> Seen:
        status, steps = self.status, self.flat["training.steps"]
        state = self._state(ask.settings, steps, live)
        reported = self.marks[-1].step if self.marks and state == "running" else 0
        return Seen(
            id=self.folder.id,
            arms=self.arms,
            seed=self.flat.get("seed"),
            state=state,
            step=max(status.step, reported),
            steps=last_step(steps, ask.settings),
            seconds=status.seconds,
            cause=status.cause,
            changed=self.changed,
            latest=next((mark.value for mark in reversed(self._marks_to_end) if mark.value is not None), None),
            value=_value(self._marks_to_end, ask.objective),
            cut=is_cut(status),
            speed=_speed([*((mark.step, mark.seconds) for mark in self.marks), (status.step, status.seconds)]),
            point=self._point(ask),
        )

    def _state(self, settings: Settings, steps: int, live: bool) -> str:
        """A trial that a dead driver left as running counts as waiting to be resumed, as does one that may now train
        longer."""
        if self.status.final:
            return self.status.state if is_final(self.status, steps, settings) else "pending"
        return self.status.state if live else "pending"

    def _point(self, ask: Asked) -> dict[str, Any]:
        flat = {**self.flat, **(self.marks[-1].overrides if self.marks else {})}
        keys = dict.fromkeys(key for arm in self.arms for key in ask.searched.get(arm, ()))
        return {key: flat[key] for key in keys if key in flat}


def _mark(row: Any, metric: str) -> Mark | None:
    """The kept part of a row; None if it is not a row."""
    try:
        seconds = float(row.get("clock", {}).get("seconds", math.nan))
        value = row["metrics"].get(metric)
        overrides = dict(row.get("overrides", {}))
        number = float(value) if isinstance(value, int | float) else None
        return Mark(row["step"], seconds, number, overrides) if type(row["step"]) is int else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _value(marks: Sequence[Mark], objective: Objective) -> float | None:
    """The number by which a trial is ranked; None if it is missing or not finite."""
    values = [mark.value for mark in marks if mark.value is not None]
    if objective.at == "last":
        values = values[-1:]
    finite = [value for value in values if math.isfinite(value)]
    return (max if objective.mode == "max" else min)(finite, default=None)


def _speed(points: Sequence[tuple[int, float]]) -> float | None:
    """Steps per second over the last minutes of a trial's own clock, which stops while the trial does not run."""
    points = sorted((point for point in [(0, 0.0), *points] if math.isfinite(point[1])), key=lambda p: (p[0], -p[1]))
    step, seconds = points[-1]
    before = [point for point in points if seconds - point[1] >= SPEED_WINDOW_S]
    first_step, first_seconds = before[-1] if before else points[0]
    return (step - first_step) / (seconds - first_seconds) if step > first_step and seconds > first_seconds else None


class _Ended:
    """A trial that had ended when an earlier command read it, and whose files have not changed since."""

    complaints: Mapping[str, str] = {}
    notes: Sequence[str] = ()
    is_read = True

    def __init__(self, folder: TrialFolder, entry: ended.Entry):
        self.folder, self.entry = folder, entry
        fields: dict[str, Any] = entry["seen"]
        self.found = Seen(**{**fields, "arms": tuple(fields["arms"])})

    def to_read(self) -> list[Place]:
        return []

    def refresh(self) -> None:
        """There is nothing to read."""

    def whole(self, live: bool) -> tuple[TrialFolder, Status, int]:
        status: dict[str, Any] = self.entry["status"]
        return self.folder, Status(**status), self.entry["steps"]

    def as_ended(self, ask: Asked) -> ended.Entry:
        return self.entry

    def seen(self, ask: Asked, live: bool, now: float) -> Seen:
        return self.found


class Watcher:
    """Follows one run by reading it repeatedly. With `remembers`, the first look reads only what has changed since an
    earlier command looked at the run."""

    def __init__(self, run: Run, remembers: bool = False):
        self.run = run
        self.remembers = remembers and isinstance(run.path, Path)
        self.asked, self.note = Asked(readable=False), ""
        self.notes: list[str] = []
        """Problems of the folder as a whole."""
        self.sweep_place: Stamp | None = None
        self.readers: dict[str, _Reader | _Ended] = {}
        self.live = False

    def look(self) -> Snapshot:
        with suppress(OSError):  # storage that does not answer says nothing about the driver
            self.live = (
                self.run.is_running()
            )  # checked before the trials, so that the last reports of a driver are read
        seen = _quietly(Run.seen, self.run)
        if seen is not None:
            self._read_sweep(seen)
            self._read_trials(seen)
        now, ask, session_s = time.time(), self.asked, None
        selection = parsed_selection(_quietly(Run.selection, self.run) or {}) if self.live else None
        trials = tuple(reader.seen(ask, self.live, now) for reader in self.readers.values() if reader.is_read)
        if self.live and (began := _quietly(Run.began, self.run)):
            session_s = max(0.0, now - began)
        speed, left_s = _pace(ask, trials, selection) if self.live else (None, None)
        if left_s is not None:
            left_s = max(left_s, _left_by_trials(ask, trials, selection, now, session_s))
        return Snapshot(
            time=now,
            gone=seen is not None and _quietly(Run.exists, seen) is False,
            live=self.live,
            stopping=self.live and seen is not None and bool(_quietly(stamp, seen.stop_path)),
            session_s=session_s,
            trials=trials,
            expected=_expected(ask, trials, selection),
            at_most=ask.at_most is not None,
            selection=selection,
            objective=ask.objective,
            best=_best(trials, ask.objective) if ask.readable else None,
            speed=speed,
            ended_an_hour=_ended_an_hour(_selected(trials, selection), now, session_s),
            left_s=left_s,
            share=_share(ask, trials, selection),
            notes=(
                *([self.note] if self.note else []),
                *self.notes,
                *(note for reader in self.readers.values() for note in reader.notes),
            ),
        )

    def statuses(self, live: bool) -> list[tuple[TrialFolder, Status, int]]:
        """Each trial as it was last read, with its status and steps; a trial that trains now is at its last row, not at
        its last checkpoint. Raises ConfigError for a trial that is damaged."""
        if not self.readers:
            self.run.trials()  # raises for a folder that cannot be read
        return [reader.whole(live) for reader in self.readers.values()]

    def _read_sweep(self, run: Run) -> None:
        place = _quietly(stamp, run.sweep_path)
        if place in (None, self.sweep_place):
            return  # keep what is known if the sweep file is gone
        try:
            new, self.note, self.sweep_place = asked(run.sweep()), "", place
        except Exception as error:  # trials can be shown even if another version wrote something unreadable
            known = (
                "using what was read before"
                if self.asked.readable
                else "the objective is unknown, so no trial is ranked best"
            )
            new, self.note = self.asked, f"the sweep cannot be read; {known}: {' '.join(str(error).split())}"
        self._ask(new)

    def _ask(self, new: Asked) -> None:
        if new.objective.metric != self.asked.objective.metric:
            self.readers = {}
        self.asked = new

    def _read_trials(self, run: Run) -> None:
        try:
            folders, self.notes = run.trials(), run.notes()
            if self.asked.rows_tell and (metrics := _metrics_in_rows(run)):
                self._ask(replace(self.asked, objective=_objective(metrics), rows_tell=False))
        except ConfigError:
            return  # the storage does not answer now
        about = repr((self.asked.settings, self.asked.objective, self.asked.searched))
        is_first = self.remembers and not self.readers and len(folders) >= ended.FEW
        kept = ended.kept(run, about) if is_first else {}
        self.readers = {folder.id: self._reader(folder, kept) for folder in folders}
        if not isinstance(run.path, Path):
            fetch(path for reader in self.readers.values() for path in reader.to_read())
        for reader in self.readers.values():
            reader.refresh()
        if is_first:
            found = {id: entry for id, reader in self.readers.items() if (entry := reader.as_ended(self.asked))}
            if found != kept:
                ended.keep_ended(run, about, found)

    def _reader(self, folder: TrialFolder, kept: Mapping[str, ended.Entry]) -> _Reader | _Ended:
        known = self.readers.get(folder.id)
        if isinstance(known, _Reader):
            known.folder = folder
            return known
        entry = kept.get(folder.id)
        if entry is not None and entry["marks"] == ended.marks_of(folder):
            return _Ended(folder, entry)
        return _Reader(folder, self.asked.objective.metric)


def _quietly(ask: Callable[[Any], T], path: Any) -> T | None:
    """None if the storage does not answer."""
    try:
        return ask(path)
    except OSError:
        return None


def looks(run: Run, every_s: float) -> Iterator[Snapshot]:
    """Pictures of the run until no driver is found, including the last one."""
    watcher = Watcher(run)
    while True:
        picture = watcher.look()
        yield picture
        if not picture.live:
            return
        time.sleep(every_s)


# ---- what follows


def _best(trials: Sequence[Seen], objective: Objective) -> Seen | None:
    """As in tables, failed or diverged trials do not count, and trials that trained to the end come first. Unfinished
    trials are compared by value, because their steps only say which one started first."""
    sign = -1 if objective.mode == "max" else 1
    ranked = [(rank(sign * trial.value, trial.cut, trial.step if trial.ended else trial.steps), trial.id, trial)
              for trial in trials if trial.value is not None and trial.state not in BROKEN]  # fmt: skip
    return min(ranked)[2] if ranked else None


def _ended_an_hour(trials: Sequence[Seen], now: float, session_s: float | None) -> float | None:
    """Trials that ended per hour, measured over at most the last hour of this session."""
    window = min(session_s or 0.0, ENDED_WINDOW_S)
    ended = sum(trial.ended and trial.changed >= now - window for trial in trials)
    return ended / window * 3600 if ended and window else None


def _selected(trials: Sequence[Seen], selection: Selection | None) -> Sequence[Seen]:
    if selection is None or selection.steps is None:
        return trials
    return [trial for trial in trials if trial.id in selection.steps]


def _expected(ask: Asked, trials: Sequence[Seen], selection: Selection | None) -> int:
    """How many trials there will be when the session ends."""
    if selection and selection.steps is not None:
        return len(selection.steps)
    every = max(ask.at_most or 0, len(ask.steps), len(trials))
    return every if selection is None else min(every, selection.most or 0)


def _pace(ask: Asked, trials: Sequence[Seen], selection: Selection | None) -> tuple[float | None, float | None]:
    """Total steps per second of all running trials, and the seconds left: all remaining steps at this speed, but at
    least what the slowest running trial needs. A trial that has just started is assumed to be as fast as the others."""
    trials = _selected(trials, selection)
    running = [trial for trial in trials if trial.state == "running"]
    known = [trial.speed for trial in running if trial.speed] or [trial.speed for trial in trials if trial.speed]
    if not running or not known:
        return None, None
    speeds = [trial.speed or fmean(known) for trial in running]
    steps = _steps_left(ask, trials, selection)
    longest = max(trial.left / speed for trial, speed in zip(running, speeds, strict=True))
    return sum(speeds), max(steps / sum(speeds), longest)


def _left_by_trials(
    ask: Asked, trials: Sequence[Seen], selection: Selection | None, now: float, session_s: float | None
) -> float:
    """Seconds left if trials end as fast as in this session, which counts what steps do not: start-ups, evaluations and
    waiting. 0 until as many trials have ended as are running, since the first ones say little."""
    trials = _selected(trials, selection)
    running = [trial for trial in trials if trial.state == "running"]
    ended = sum(trial.ended and trial.changed >= now - (session_s or 0.0) for trial in trials)
    if not session_s or ended < max(2, len(running)):
        return 0.0
    begun = sum(1 - trial.left / trial.steps for trial in running)
    left = _expected(ask, trials, selection) - sum(trial.ended for trial in trials) - begun
    return session_s * left / (ended + begun)


def _share(ask: Asked, trials: Sequence[Seen], selection: Selection | None) -> float:
    trials = _selected(trials, selection)
    done, left = sum(trial.step for trial in trials), _steps_left(ask, trials, selection)
    return done / (done + left) if done else 0.0


def _steps_left(ask: Asked, trials: Sequence[Seen], selection: Selection | None) -> float:
    return sum(trial.left for trial in trials) + _steps_of_the_unbegun(ask, trials, selection)


def _steps_of_the_unbegun(ask: Asked, trials: Sequence[Seen], selection: Selection | None) -> float:
    """Steps of trials that have no folder yet. With a scheduler, they are expected to end like those that have
    ended."""
    count = max(0, _expected(ask, trials, selection) - len(trials))
    ended = [trial.step for trial in trials if trial.state in FINISHED]
    if ended and isinstance(ask.settings.scheduler, Asha | Median):
        return fmean(ended) * count
    if ask.at_most is not None:
        return fmean(trial.steps for trial in trials) * count if trials else 0.0
    if selection and selection.steps is not None:
        begun = {trial.id for trial in trials}
        return sum(last_step(steps, ask.settings) for id, steps in selection.steps.items() if id not in begun)
    return max(0, sum(ask.steps) - sum(trial.steps for trial in trials))


# ---- what other programs read


def as_json(picture: Snapshot, where: str) -> dict[str, Any]:
    """One plain object; numbers that JSON cannot represent become null."""
    best = picture.best
    return {
        "time": picture.time,
        "running": picture.live,
        "finished": picture.finished,
        "trials": picture.expected,
        "states": picture.states,
        "selection": picture.selection.flags if picture.selection else None,
        "steps_per_second": picture.speed,
        "trials_per_hour": picture.ended_an_hour,
        "seconds_left": picture.left_s,
        "share_of_steps": picture.share,
        "metric": picture.objective.metric,
        "best": None if best is None else {**_trial_json(best), "value": best.value, "point": dict(best.point)},
        "running_trials": [_trial_json(trial) for trial in picture.running],
        "troubles": [_trouble_json(trouble, where) for trouble in picture.troubles[:MOST_TROUBLES]],
        "notes": list(picture.notes),
    }


def _trial_json(trial: Seen) -> dict[str, Any]:
    finite = trial.latest is not None and math.isfinite(trial.latest)
    return {
        "trial_id": trial.id,
        "arms": list(trial.arms),
        "seed": trial.seed,
        "state": trial.state,
        "step": trial.step,
        "steps": trial.steps,
        "seconds": trial.seconds,
        "value": trial.latest if finite else None,
    }


def _trouble_json(trouble: Trouble, where: str) -> dict[str, Any]:
    trial = trouble.trial
    cause, path = first_line(trial.cause), trouble_path(where, trial.id)
    return {"trial_id": trial.id, "state": trial.state, "step": trial.step, "cause": cause, "count": trouble.count,
            "path": path}  # fmt: skip


def trouble_path(where: str, trial_id: str) -> str:
    """The file of a failed trial to read: the log of its errors, or its status if no attempt left a traceback."""
    folder = Run(place(where)).trial(trial_id)
    return str(folder.errors_path if folder.errors_path.exists() else folder.status_path)


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"
