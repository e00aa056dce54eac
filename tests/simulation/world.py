"""One simulated sweep from its first session to its last: a driver, its workers, their disk and their clock in this
process, and up to five faults whose kinds and moments come from a seed."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from disentune.errors import ConfigError, Unavailable
from disentune.files import documents, storage
from disentune.runs import ledger, segment
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import Preempted, StepReport, Superseded, work
from disentune.spec.space import SweepPoints, check
from disentune.spec.sweepfile import read_sweep
from simulation.disk import Disk, DiskFault, Failure, Killed, Process
from simulation.stub import HashedTraining
from simulator import SCHEDULERS, SEARCHES, table

SWEEP = """
name: tiny
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2}
  model: {name: linear, latents: 3}
  recon: {name: mse}
  training: {steps: 9, batch_size: 4, learning_rate: 1e-2, log_every: 2}
  evaluation: {metrics: [mig], every: 3}
  loss_scale: mean
arms: {only: {framework.name: beta_vae, framework.beta: BETA}}
seeds: 2
objective: {metric: mig, mode: max}
checkpoint: {every_steps: 2}
retries: {error: 1000, memory: 1000, lost: 1000, hang: 1000}
pictures: never
"""
"""No trial is given up, however many faults there are: what is tested is that no number changes."""
PAIRS = [(s, c) for s in SEARCHES for c in SCHEDULERS if (s, c) != ("optuna", "pbt")]
ENDS = ("", "stop: {steps: 7}", "stop: {plateau: {evaluations: 2}}")
DISK_FAULTS = ("kill", "storage error", "full disk")
OTHER_FAULTS = (
    "driver killed", "worker lost", "preempted", "reports late", "report repeated", "clock jumps", "second driver",
    "stopped",
)  # fmt: skip
KINDS = (*DISK_FAULTS, *OTHER_FAULTS)
MOST_FAULTS = 5
MOST_SESSIONS = 60
DAY_S = 86_400.0
LOST_FOR = ("lost", "node", "memory", "storage", None)


class Wrong(AssertionError):
    """The promise is broken."""


@dataclass(frozen=True)
class Fault:
    """`at` counts operations on the disk for the kinds of DISK_FAULTS, and reports of workers for the others."""

    kind: str
    at: int
    span: int = 1
    share: float = 0.5

    def __str__(self) -> str:
        where = "operation" if self.kind in DISK_FAULTS else "report"
        return f"{self.kind} at {where} {self.at}" + (f", for {self.span}" if self.span > 1 else "")


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    seed: int
    pair: tuple[str, str]
    end: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        ends = f", {self.end}" if self.end else ""
        return f"seed {self.seed} ({' and '.join(self.pair)}{ends}): {'; '.join(map(str, self.faults))}"


@dataclass(frozen=True)
class Calm:
    """A sweep without any fault: its table, and how long it took."""

    table: list[Any]
    operations: int
    reports: int


class Clock:
    """Goes on by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class NoWatchdog:
    """Nothing hangs in a simulation."""

    def __init__(self, *_: Any):
        self.start = self.hear = self.rest = self.stop = lambda *_: None


_TEXTS: dict[str, bytes] = {}
_dumped = documents.dumped


def _dumped_once(value: Any) -> bytes:
    """YAML is slow to write, and every session of a sweep writes the same."""
    key = repr(value)
    if key not in _TEXTS:
        _TEXTS[key] = _dumped(value)
    return _TEXTS[key]


@contextmanager
def simulated(disk: Disk, clock: Clock) -> Iterator[None]:
    """Disentune's own code above a disk, a clock and a training of the simulation."""
    time = SimpleNamespace(
        monotonic=clock, sleep=clock.sleep, time=clock, strftime=lambda *_: "", gmtime=lambda *_: None
    )
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(segment, "Training", HashedTraining)
        patch.setattr(segment, "Watchdog", NoWatchdog)
        for module in (segment, storage, ledger):
            patch.setattr(module, "time", time)
        patch.setattr(ledger, "environment_with", lambda plugins: {})
        patch.setattr(ledger.documents, "dumped", _dumped_once)
        patch.setattr(segment.process, "prepare", lambda *_: None)
        stack.enter_context(disk.mounted())
        yield


@cache
def sweep_of(pair: tuple[str, str], end: str, folder: Path) -> SweepPoints:
    domain, search = SEARCHES[pair[0]]
    path = folder / f"{hashlib.sha256(repr((pair, end)).encode()).hexdigest()[:8]}.yaml"
    path.write_text("\n".join([SWEEP.replace("BETA", domain), search, SCHEDULERS[pair[1]], end]))
    return check(read_sweep(path))


def drawn_case(seed: int, folder: Path) -> Case:
    """The sweep, and the kinds and moments of the faults."""
    rng = np.random.default_rng([seed, 28])
    pair = PAIRS[int(rng.integers(len(PAIRS)))]
    end = ENDS[int(rng.integers(len(ENDS)))] if pair[1] != "pbt" else ""
    calm = calm_of(pair, end, folder)
    faults = tuple(_drawn_fault(rng, calm) for _ in range(int(rng.integers(1, MOST_FAULTS + 1))))
    return Case(seed, pair, end, faults)


def _drawn_fault(rng: np.random.Generator, calm: Calm) -> Fault:
    kind = KINDS[int(rng.integers(len(KINDS)))]
    moments = calm.operations if kind in DISK_FAULTS else calm.reports
    at = int(rng.integers(1, int(moments * 1.2)))  # work that is repeated makes a run longer
    span = 1 if kind == "kill" else int(rng.geometric(0.1))
    return Fault(kind, at, span, float(rng.random()))


@cache
def calm_of(pair: tuple[str, str], end: str, folder: Path) -> Calm:
    """The same sweep undisturbed, one trial after the other."""
    world = World(Case(0, pair, end, ()), folder, folder / "calm" / f"{'-'.join(pair)}{ENDS.index(end)}", slots=1)
    world.live()
    return Calm(table(world.run), world.disk.count, world.reports)


@dataclass
class Worker:
    trial_id: str
    process: Process
    reports: Iterator[StepReport]
    leaves: bool = False
    """Whether its node has been told that it will be taken away."""
    held: list[StepReport] = field(default_factory=list)
    """Reports that have not reached the driver yet."""

    def begin(self, found: segment.Segment) -> None:
        self.reports = work(found, leaving=lambda: self.leaves)


class SessionEnds(Exception):
    """The driver is gone, or has given up."""


class World:
    """Carries one case out."""

    def __init__(self, case: Case, sweeps: Path, storage_folder: Path, slots: int | None = None):
        self.case, self.clock = case, Clock()
        self.rng = np.random.default_rng([case.seed, 29])
        self.slots = slots or int(self.rng.integers(1, 5))
        self.asked = sweep_of(case.pair, case.end, sweeps)
        self.disk = Disk([DiskFault(f.kind, f.at, f.span, f.share) for f in case.faults if f.kind in DISK_FAULTS])
        self.others = [f for f in case.faults if f.kind not in DISK_FAULTS]
        self.run = Run(storage_folder / "tiny" / "main")
        self.reports, self.sessions, self.happened = 0, 0, list[str]()
        self.workers: dict[str, Worker] = {}
        self.strays: list[Worker] = []
        """Workers whose driver is dead or has given them up, and who do not know it."""
        self.told: dict[tuple[str, int], dict[str, Any]] = {}
        """Rows that a driver has received."""
        self.late_until = 0

    def live(self) -> None:
        """Session after session until the sweep is finished."""
        with simulated(self.disk, self.clock):
            while not self._session():
                self.sessions += 1
                if self.sessions > MOST_SESSIONS:
                    raise Wrong(f"the sweep is not finished after {MOST_SESSIONS} sessions")
                self._assert_nothing_lost()
            while self.strays:
                self._drag_on()
        self._assert_nothing_lost()

    # one driver

    def _session(self) -> bool:
        """Whether the sweep was finished."""
        driver = Process(f"driver {self.sessions}")
        failures = sum(fault.happened for fault in self.disk.faults)
        try:
            with self.disk.used_by(driver), self.run.locked() as session:
                self.run.record(self.asked.sweep)
                planner = Planner(self.run, self.asked, session, clock=self.clock)
                self._drive(planner, driver)
                return planner.finished
        except (Killed, SessionEnds):
            pass
        except (OSError, ConfigError, Unavailable) as error:
            if not _is_injected(error) and sum(fault.happened for fault in self.disk.faults) == failures:
                raise
        self._orphan()
        return False

    def _orphan(self) -> None:
        """The workers of a dead driver die with it, or live on elsewhere for a while."""
        for worker in self.workers.values():
            if self.rng.random() < 0.5:
                self.strays.append(worker)
        self.workers = {}

    def _drive(self, planner: Planner, driver: Process) -> None:
        while not planner.finished:
            if planner.trouble:
                raise SessionEnds
            self._fill(planner)
            if self.strays and self.rng.random() < 0.3:
                self._drag_on()
            if not self.workers:
                continue
            trial_id = list(self.workers)[int(self.rng.integers(len(self.workers)))]
            self._advance(planner, self.workers[trial_id])
            self.reports += 1
            self._strike(planner, driver)

    def _fill(self, planner: Planner) -> None:
        while len(self.workers) < self.slots and not self.run.stop_path.exists():
            found = planner.next()
            if found is None:
                break
            worker = Worker(found.trial_id, Process(f"worker of {found.trial_id}"), iter(()))
            worker.begin(found)
            self.workers[found.trial_id] = worker
        if not self.workers and self.run.stop_path.exists():
            raise SessionEnds

    def _advance(self, planner: Planner, worker: Worker) -> None:
        """The worker makes a step, and the driver receives what has arrived."""
        try:
            with self.disk.used_by(worker.process):
                report = next(worker.reports)
        except Killed:
            self._lose(planner, worker, "killed", "lost")
        except Superseded:
            if self.run.session() != planner.session:
                raise SessionEnds from None
            self._lose(planner, worker, "superseded", "lost")
        except Preempted:
            self._lose(planner, worker, "pre-empted", "preempted")
        except OSError:
            self._lose(planner, worker, "its storage failed", "storage")
        else:
            worker.held.append(report)
            if report.outcome is not None or self.reports >= self.late_until:
                self._deliver(planner, worker)

    def _lose(self, planner: Planner, worker: Worker, why: str, cause: Any) -> None:
        del self.workers[worker.trial_id]
        planner.lost(worker.trial_id, why, cause)

    def _deliver(self, planner: Planner, worker: Worker) -> None:
        for report in worker.held:
            if report.outcome is not None:
                del self.workers[worker.trial_id]
            if report.row is not None:
                self.told[worker.trial_id, report.row["step"]] = report.row["metrics"]
            planner.report(worker.trial_id, report)
        worker.held = []

    def _drag_on(self) -> None:
        """One step of a worker that was given up; it may end, and nothing that it does may change a number."""
        worker = self.strays[int(self.rng.integers(len(self.strays)))]
        try:
            with self.disk.used_by(worker.process):
                ended = next(worker.reports).outcome is not None
        except (Superseded, Preempted, Killed, OSError, StopIteration):
            ended = True
        if ended:
            self.strays.remove(worker)

    # faults that are not the disk's

    def _strike(self, planner: Planner, driver: Process) -> None:
        for fault in [fault for fault in self.others if fault.at <= self.reports]:
            self.others.remove(fault)
            self.happened.append(fault.kind)
            getattr(self, f"_{fault.kind.replace(' ', '_')}")(planner, driver, fault)

    def _some_worker(self) -> Worker | None:
        names = list(self.workers)
        return self.workers[names[int(self.rng.integers(len(names)))]] if names else None

    def _driver_killed(self, planner: Planner, driver: Process, fault: Fault) -> None:
        driver.dead = True
        raise Killed(driver.name)

    def _worker_lost(self, planner: Planner, driver: Process, fault: Fault) -> None:
        worker = self._some_worker()
        if worker is not None:
            self._lose(planner, worker, "simulated", LOST_FOR[fault.span % len(LOST_FOR)])
            if fault.share < 0.5:
                self.strays.append(worker)

    def _preempted(self, planner: Planner, driver: Process, fault: Fault) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.leaves = True

    def _reports_late(self, planner: Planner, driver: Process, fault: Fault) -> None:
        self.late_until = self.reports + fault.span

    def _report_repeated(self, planner: Planner, driver: Process, fault: Fault) -> None:
        known = [key for key in self.told if key[0] in self.workers]
        if known:
            trial_id, step = known[int(fault.share * len(known))]
            planner.report(trial_id, StepReport(step, {"step": step, "metrics": self.told[trial_id, step]}))

    def _clock_jumps(self, planner: Planner, driver: Process, fault: Fault) -> None:
        self.clock.now += DAY_S * fault.share

    def _second_driver(self, planner: Planner, driver: Process, fault: Fault) -> None:
        with self.disk.used_by(Process("second driver")):
            try:
                with self.run.locked():
                    raise Wrong("a second driver got the lock of a run that is being run")
            except ConfigError:
                pass

    def _stopped(self, planner: Planner, driver: Process, fault: Fault) -> None:
        self.run.stop_path.touch()

    # the promise

    def _assert_nothing_lost(self) -> None:
        """Every row that a driver has received is on disk, unchanged."""
        kept = {(trial, row[0]): row[1] for trial, _, rows in table(self.run) for row in rows} if self.told else {}
        for key, metrics in self.told.items():
            if any(kept.get(key, {}).get(name) != value for name, value in metrics.items()):
                raise Wrong(f"trial {key[0]}: the row of step {key[1]} was received and is lost or changed")

    def assert_equal(self, calm: Calm) -> None:
        now = table(self.run)
        if now != calm.table:
            first = next((a, b) for a, b in zip(now, calm.table, strict=False) if a != b) if len(now) == len(
                calm.table) else (len(now), len(calm.table))  # fmt: skip
            raise Wrong(f"another table than without faults: {first}")


def _is_injected(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Failure):
            return True
        error = error.__cause__ or error.__context__
    return False


def lived(case: Case, sweeps: Path, folder: Path) -> list[str]:
    """Carries a case out and checks it; returns the kinds of faults that happened. Raises Wrong."""
    world = World(case, sweeps, folder)
    world.live()
    world.assert_equal(calm_of(case.pair, case.end, sweeps))
    return [*world.happened, *(fault.kind for fault in world.disk.faults if fault.happened)]


def shortened(case: Case, fails: Any) -> Case:
    """The case with only those faults that are needed to make it fail."""
    faults: Sequence[Fault] = case.faults
    for fault in case.faults:
        fewer = [other for other in faults if other is not fault]
        if fails(replace(case, faults=tuple(fewer))):
            faults = fewer
    return replace(case, faults=tuple(faults))
