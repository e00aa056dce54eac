"""A run as it is now, from its folder alone: looking again reads only what has changed. Knows no terminal.

Whoever looks never writes, and a file that vanishes or is cut short under its eyes costs one look at that file: the
last sound reading stands until the next.
"""

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
from disentune.files.storage import Place, fetch, place
from disentune.metrics import best_of
from disentune.results.tables import BROKEN, evaluated, rank
from disentune.runs.ledger import Run
from disentune.runs.rows import RowReader, missing_row
from disentune.runs.trial_folder import ROWS, Status, TrialFolder, is_cut, is_final, reached
from disentune.spec import space
from disentune.spec.config import flattened, metric_keys, nested
from disentune.spec.settings import Asha, Median, Objective, OptunaSearch, Settings
from disentune.spec.sweepfile import SweepFile

T = TypeVar("T")
SPEED_WINDOW_S = 300.0
"""The speed of a trial is that of its last minutes."""
ENDED_WINDOW_S = 3600.0
STATES = ("done", "running", "pending", "diverged", "failed")
MOST_TROUBLES = 5
LOSS = Objective(metric="loss", mode="min")


class Mark(NamedTuple):
    """What is kept of a row."""

    step: int
    seconds: float
    value: float | None
    overrides: Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """One trial as last read. `steps` is where it is to end, `value` its objective by the sweep's own rule."""

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
    """The keys that its arms search over, as they were at its last row."""
    cut: bool = False
    """As for `results.Record`."""

    @property
    def ended(self) -> bool:
        return self.state not in ("running", "pending")

    @property
    def left(self) -> int:
        return 0 if self.ended else max(0, self.steps - self.step)


@dataclass(frozen=True)
class Trouble:
    """Trials that ended badly for the same reason: the newest, and how many there are."""

    trial: Seen
    count: int


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. Without a driver `speed`, `ended_an_hour` and `left_s` are unknown."""

    time: float
    gone: bool
    """Someone has removed the run."""
    live: bool
    stopping: bool
    session_s: float | None
    trials: tuple[Seen, ...]
    expected: int
    at_most: bool
    """A model-based search may ask for fewer trials than expected: equal suggestions run once."""
    objective: Objective
    best: Seen | None
    speed: float | None
    ended_an_hour: float | None
    left_s: float | None
    notes: tuple[str, ...]
    """What could not be read."""

    @property
    def states(self) -> dict[str, int]:
        """Trials that have not begun are pending too."""
        counts = Counter(trial.state for trial in self.trials)
        counts["pending"] += max(0, self.expected - len(self.trials))
        return {state: counts[state] for state in STATES if counts[state]}

    @property
    def ended(self) -> int:
        return sum(trial.ended for trial in self.trials)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do. What a model-based search might still have asked for does not count."""
        begun = bool(self.trials) and self.ended == len(self.trials)
        return not self.live and begun and (self.at_most or len(self.trials) >= self.expected)

    @property
    def running(self) -> list[Seen]:
        """Those that have taken longest first, so that the lines of a table move little."""
        return sorted((trial for trial in self.trials if trial.state == "running"), key=lambda t: (-t.seconds, t.id))

    @property
    def troubles(self) -> list[Trouble]:
        """The newest first; trials of one cause stand together."""
        by_cause: dict[tuple[str, str], list[Seen]] = {}
        for trial in sorted(self.trials, key=lambda trial: (-trial.changed, trial.id)):
            if trial.state in BROKEN:
                by_cause.setdefault((trial.state, first_line(trial.cause)), []).append(trial)
        return [Trouble(trials[0], len(trials)) for trials in by_cause.values()]


# ---- what the sweep asks for


@dataclass(frozen=True)
class Asked:
    """What a recorded sweep tells about its trials; `steps` is where those known beforehand end. Nothing of the sweep
    is imported to know it: the run may be a stranger's."""

    settings: Settings = field(default_factory=Settings)
    objective: Objective = LOSS
    steps: Sequence[int] = ()
    at_most: int | None = None
    searched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    readable: bool = True
    """Whether the sweep could be read at all; else nobody knows by what its trials are ranked."""
    rows_tell: bool = False
    """Whether the objective is the first metric that comes to stand in a row: only the user's own code knows before."""


def asked(sweep: SweepFile) -> Asked:
    settings, search = sweep.settings, sweep.settings.search
    searched = {arm: tuple(space.domains(entries)) for arm, entries in sweep.arms.items()}
    metrics = [] if settings.objective else _metrics(sweep)
    objective = settings.objective or _objective(metrics or [])
    ask = Asked(settings, objective, searched=searched, rows_tell=metrics is None)
    if isinstance(search, OptunaSearch):
        return replace(ask, at_most=search.points * len(sweep.seeds) * len(sweep.arms))
    return replace(ask, steps=[last_step(steps, settings) for steps in space.steps_of_trials(sweep)])


def _metrics(sweep: SweepFile) -> list[str] | None:
    """What the first trial evaluates; None where only the user's own code could tell."""
    points = space.corners if isinstance(sweep.settings.search, OptunaSearch) else space.arm_points
    first = nested(next(points(sweep, next(iter(sweep.arms)))))
    return metric_keys(first.get("evaluation", {}))


def _objective(metrics: Sequence[str]) -> Objective:
    """Of a sweep that names none: the first metric that its trials evaluate, or else the loss."""
    return Objective(metric=metrics[0], mode=best_of(metrics[0])) if metrics else LOSS


def _metrics_in_rows(run: Run) -> list[str]:
    """Of the first row that has any."""
    for folder in run.trials():
        with suppress(ConfigError, OSError):  # what cannot be read is said elsewhere
            if found := next(filter(None, (evaluated(row["metrics"]) for row in folder.rows_to_end())), None):
                return found
    return []


def last_step(steps: int, settings: Settings) -> int:
    return min(steps, settings.stop.steps or steps)


# ---- reading


Stamp = tuple[int, int, int]
"""Inode, size and time of a file: they differ whenever its content does, but an object's time has whole seconds."""
COARSE_S = 2.0


def _stamp(path: Place) -> Stamp | None:
    """None without a file. OSError when the storage does not answer."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Reader:
    """One trial's files; each is read again only when it has changed on disk."""

    def __init__(self, folder: TrialFolder, metric: str):
        self.folder, self.metric = folder, metric
        self.places: dict[str, Stamp | None] = {}
        self.unsettled: dict[str, float] = {}
        """When an object was first seen as it is: it may still be replaced without a sign of it."""
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
                place = _stamp(path)
                if self._is_news(name, place):
                    read(place)
                    self._settle(name, place)
                    self.places[name], self.last = place, None
                self.complaints.pop(name, None)
            except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
                self.complaints[name] = f"{path} cannot be read now: {first_line(str(error))}"
        if self.places != known and not self.complaints:
            with suppress(ConfigError, OSError):  # what cannot be read now is read again at the next look
                self.gap = self._gap()

    def _gap(self) -> int | None:
        gap = missing_row(self.tree, reached(self.status), (mark.step for mark in self.marks))
        if gap is None or isinstance(self.folder.path, Path):
            return gap
        return TrialFolder(place(str(self.folder.path))).sound().gap  # objects may have been read out of order

    def to_read(self) -> list[Place]:
        """The files that a refresh would read."""
        return [path for path, _ in self._files if self._is_news(path.name, _quietly(_stamp, path))]

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
            raise TypeError("its cause is no text or its seconds no number")
        self.status, self.changed = status, place[2] / 1e9 if place else 0.0

    def _rows(self, place: Stamp | None) -> None:
        """Rows are only ever appended, so what was read stays; another or a shorter file is read from its start."""
        before = self.places.get(ROWS)
        if place is None or before is None or place[0] != before[0] or place[1] < self.reader.offset:
            self.marks, self.reader, self.damaged = [], RowReader(self.folder.rows_path), False
        if place is None:
            return
        self.reader.path = self.folder.rows_path  # of the newest view of the run
        for row in self.reader.loose_rows():
            self._take_in(_mark(row, self.metric))

    def _end(self, place: Stamp | None) -> None:
        end = self.folder.end()
        self.end = None if end is None else _mark(end, self.metric)

    @property
    def _marks_to_end(self) -> list[Mark]:
        """What rows say, and the scores of the trial's end while nothing came after it."""
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
        lacks = f"{self.folder.rows_path} lacks the row of step {self.gap}; resume computes it again"
        return [*self.complaints.values(), *damage, *([lacks] if self.gap and not self.damaged else [])]

    def seen(self, ask: Asked, live: bool, now: float) -> Seen:
        """Made anew only when something has changed; a running trial's time goes on by itself."""
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
        """A trial that a dead driver left as running waits to be resumed, as does one that may now train longer."""
        if self.status.final:
            return self.status.state if is_final(self.status, steps, settings) else "pending"
        return self.status.state if live else "pending"

    def _point(self, ask: Asked) -> dict[str, Any]:
        flat = {**self.flat, **(self.marks[-1].overrides if self.marks else {})}
        keys = dict.fromkeys(key for arm in self.arms for key in ask.searched.get(arm, ()))
        return {key: flat[key] for key in keys if key in flat}


def _mark(row: Any, metric: str) -> Mark | None:
    """None for what is no row."""
    try:
        seconds = float(row.get("clock", {}).get("seconds", math.nan))
        value = row["metrics"].get(metric)
        overrides = dict(row.get("overrides", {}))
        number = float(value) if isinstance(value, int | float) else None
        return Mark(row["step"], seconds, number, overrides) if type(row["step"]) is int else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _value(marks: Sequence[Mark], objective: Objective) -> float | None:
    """The number by which a trial is ranked; None without a finite one."""
    values = [mark.value for mark in marks if mark.value is not None]
    if objective.at == "last":
        values = values[-1:]
    finite = [value for value in values if math.isfinite(value)]
    return (max if objective.mode == "max" else min)(finite, default=None)


def _speed(points: Sequence[tuple[int, float]]) -> float | None:
    """Steps a second over the last minutes of a trial's own clock, which stands still while the trial does."""
    points = sorted((point for point in [(0, 0.0), *points] if math.isfinite(point[1])), key=lambda p: (p[0], -p[1]))
    step, seconds = points[-1]
    before = [point for point in points if seconds - point[1] >= SPEED_WINDOW_S]
    first_step, first_seconds = before[-1] if before else points[0]
    return (step - first_step) / (seconds - first_seconds) if step > first_step and seconds > first_seconds else None


class Watcher:
    """Looks at one run again and again."""

    def __init__(self, run: Run):
        self.run = run
        self.asked, self.note = Asked(readable=False), ""
        self.notes: list[str] = []
        """On the folder as a whole."""
        self.sweep_place: Stamp | None = None
        self.readers: dict[str, _Reader] = {}
        self.live = False

    def look(self) -> Snapshot:
        with suppress(OSError):  # a storage that does not answer says nothing of the driver
            self.live = self.run.is_running()  # before the trials, so that the last words of a driver are read
        seen = _quietly(Run.seen, self.run)
        if seen is not None:
            self._read_sweep(seen)
            self._read_trials(seen)
        now, ask, session_s = time.time(), self.asked, None
        trials = tuple(reader.seen(ask, self.live, now) for reader in self.readers.values() if reader.flat)
        if self.live and (began := _quietly(Run.began, self.run)):
            session_s = max(0.0, now - began)
        speed, left_s = _pace(ask, trials) if self.live else (None, None)
        return Snapshot(
            time=now,
            gone=seen is not None and _quietly(Run.exists, seen) is False,
            live=self.live,
            stopping=self.live and seen is not None and bool(_quietly(_stamp, seen.stop_path)),
            session_s=session_s,
            trials=trials,
            expected=max(ask.at_most or 0, len(ask.steps), len(trials)),
            at_most=ask.at_most is not None,
            objective=ask.objective,
            best=_best(trials, ask.objective) if ask.readable else None,
            speed=speed,
            ended_an_hour=_ended_an_hour(trials, now, session_s),
            left_s=left_s,
            notes=(
                *([self.note] if self.note else []),
                *self.notes,
                *(note for reader in self.readers.values() for note in reader.notes),
            ),
        )

    def _read_sweep(self, run: Run) -> None:
        place = _quietly(_stamp, run.sweep_path)
        if place in (None, self.sweep_place):
            return  # a sweep that has gone leaves what was known of it
        try:
            new, self.note, self.sweep_place = asked(run.sweep()), "", place
        except Exception as error:  # whatever another version wrote there, the trials can be seen without
            known = (
                "as it was read before is used" if self.asked.readable else "is not known, so no trial is called best"
            )
            new, self.note = self.asked, f"the sweep {known}: {' '.join(str(error).split())}"
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
        known, metric = self.readers, self.asked.objective.metric
        self.readers = {folder.id: known.get(folder.id) or _Reader(folder, metric) for folder in folders}
        for folder in folders:
            self.readers[folder.id].folder = folder
        if not isinstance(run.path, Path):
            fetch(path for reader in self.readers.values() for path in reader.to_read())
        for reader in self.readers.values():
            reader.refresh()


def _quietly(ask: Callable[[Any], T], path: Any) -> T | None:
    """None when the storage does not answer."""
    try:
        return ask(path)
    except OSError:
        return None


def looks(run: Run, every_s: float) -> Iterator[Snapshot]:
    """The run again and again; the last picture is the one that finds no driver."""
    watcher = Watcher(run)
    while True:
        picture = watcher.look()
        yield picture
        if not picture.live:
            return
        time.sleep(every_s)


# ---- what follows


def _best(trials: Sequence[Seen], objective: Objective) -> Seen | None:
    """As in tables, a trial that failed or diverged does not count, and one that was trained to its end comes first."""
    sign = -1 if objective.mode == "max" else 1
    ranked = [(rank(sign * trial.value, trial.cut, trial.step), trial.id, trial) for trial in trials
              if trial.value is not None and trial.state not in BROKEN]  # fmt: skip
    return min(ranked)[2] if ranked else None


def _ended_an_hour(trials: Sequence[Seen], now: float, session_s: float | None) -> float | None:
    """By what ended in this session, of the last hour at most."""
    window = min(session_s or 0.0, ENDED_WINDOW_S)
    ended = sum(trial.ended and trial.changed >= now - window for trial in trials)
    return ended / window * 3600 if ended and window else None


def _pace(ask: Asked, trials: Sequence[Seen]) -> tuple[float | None, float | None]:
    """Steps a second of all running trials together, and the seconds left: all steps at this speed, but no less than
    the slowest running trial needs by itself. A trial that has just begun counts as fast as the others."""
    running = [trial for trial in trials if trial.state == "running"]
    known = [trial.speed for trial in running if trial.speed] or [trial.speed for trial in trials if trial.speed]
    if not running or not known:
        return None, None
    speeds = [trial.speed or fmean(known) for trial in running]
    steps = sum(trial.left for trial in trials) + _steps_of_the_unbegun(ask, trials)
    longest = max(trial.left / speed for trial, speed in zip(running, speeds, strict=True))
    return sum(speeds), max(steps / sum(speeds), longest)


def _steps_of_the_unbegun(ask: Asked, trials: Sequence[Seen]) -> float:
    """Of trials that have no folder yet. Where a scheduler cuts trials they are taken to end as the ended ones did."""
    count = max(0, (ask.at_most or len(ask.steps)) - len(trials))
    ended = [trial.step for trial in trials if trial.state == "done"]
    if ended and isinstance(ask.settings.scheduler, Asha | Median):
        return fmean(ended) * count
    if ask.at_most is not None:
        return fmean(trial.steps for trial in trials) * count
    return max(0, sum(ask.steps) - sum(trial.steps for trial in trials))


# ---- what other programs read


def as_json(picture: Snapshot, where: str) -> dict[str, Any]:
    """One plain object; a number that JSON cannot write is null."""
    best = picture.best
    return {
        "time": picture.time,
        "running": picture.live,
        "finished": picture.finished,
        "trials": picture.expected,
        "states": picture.states,
        "steps_per_second": picture.speed,
        "trials_per_hour": picture.ended_an_hour,
        "seconds_left": picture.left_s,
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
    cause, path = first_line(trial.cause), status_path(where, trial.id)
    return {"trial_id": trial.id, "state": trial.state, "step": trial.step, "cause": cause, "count": trouble.count,
            "path": path}  # fmt: skip


def status_path(where: str, trial_id: str) -> str:
    """Where a trial's cause stands in full."""
    return str(Run(place(where)).trial(trial_id).status_path)


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"
