"""One small real sweep on Ray, a fault at a random moment, and an undisturbed sweep to compare with.

A case (cases.py) makes its fault happen and asserts that it has; everything else is done here.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
from _pytest.mark import ParameterSet

from disentune.files.storage import place, read_bytes, read_if_there
from disentune.results.tables import read, write_parquet
from disentune.runs.ledger import Run
from object_store import Store, served, use_store
from processes import Commands, commands_in, family, patience_s, rows_on_disk, wait_until
from simulator import Death, simulate, sweep_file, table

HERE = Path(__file__).parent
Pair = tuple[str, str]
"""A search and a scheduler."""
Fault = dict[str, Any]
"""Its kind (faulty.py), its step, and the beta of the trial that it meets, if not all of them."""
STEPS, CHECKPOINT_STEPS, ROW_STEPS = 320, 30, 80
LONGER = {
    "steps: 12": f"steps: {STEPS}", "every: 3": f"every: {ROW_STEPS}", "grace: 3": f"grace: {ROW_STEPS}",
    "every_steps: 2": f"every_steps: {CHECKPOINT_STEPS}", "seeds: 2": "seeds: 1",
    "framework.name: beta_vae": 'framework.name: "faulty:FRAMEWORK"',
}  # fmt: skip
"""Of the tiny sweep: long enough to be disturbed, with a plug-in that can go wrong in one of its two arms."""
PAGE = 4096
sys.path.append(str(HERE))  # for simulations, which do not look for `faulty` in the sweep's folder


def write_sweep(folder: Path, pair: Pair, settings: str = "") -> Path:
    """The sweep and its plug-in, as a user would have them in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "faulty.py", folder)
    path = sweep_file(folder, *pair, extra=f"pictures: {{when: last}}\n{settings}")
    text = path.read_text()
    for short, long in LONGER.items():
        text = text.replace(short, long)
    path.write_text(text)
    return path


def plan(folder: Path, faults: Sequence[Fault]) -> None:
    """Of trials that use the plug-in, when FAULTS names this folder."""
    (folder / "fault.json").write_text(json.dumps(list(faults)))


# ---- undisturbed


@dataclass(frozen=True)
class Calm:
    """What an undisturbed sweep has come to."""

    run: Run

    @cached_property
    def table(self) -> list[Any]:
        return table(self.run)

    @cached_property
    def parquet(self) -> bytes:
        return read_bytes(write_parquet(read(self.run)))

    @cached_property
    def rows(self) -> int:
        return sum(len(rows) for _, _, rows in self.table)

    def betas(self) -> list[float]:
        """Of the trials that use the plug-in."""
        return [one.config["framework"]["beta"] for one in read(self.run).records if one.arms == ("near",)]


class Calms:
    """Undisturbed sweeps, each carried out once, in this process and without Ray."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.known: dict[Pair, Calm] = {}

    def of(self, pair: Pair) -> Calm:
        if pair not in self.known:
            self.known[pair] = self.simulated(self.folder / "-".join(pair), pair)
        return self.known[pair]

    @staticmethod
    def simulated(folder: Path, pair: Pair, faults: Sequence[Fault] = ()) -> Calm:
        path, run = write_sweep(folder, pair), Run(folder / "runs" / "tiny" / "main")
        plan(folder, faults)
        with mock.patch.dict(os.environ, {"FAULTS": str(folder)}):
            simulate(run, path, np.random.default_rng(0))
        return Calm(run)


# ---- disturbed

Check = Callable[[], None]
Inject = Callable[["Scene"], Check | None]


@dataclass(frozen=True)
class Case:
    """`inject` disturbs a sweep at a random moment and asserts that it did; no driver is left then. A sweep that could
    not go on by itself is resumed after that, and then the check is made that `inject` gave back."""

    name: str
    inject: Inject
    pair: Pair = ("grid", "none")
    settings: str = ""
    """Lines that the sweep has besides."""
    mounts: bool = False
    """Whether it needs a disk of its own, which only root can mount."""
    long: bool = True
    """Whether only `make test-all` has it."""

    @property
    def param(self) -> ParameterSet:
        return pytest.param(self, id=self.name.replace(" ", "-"), marks=[pytest.mark.long] if self.long else [])


class Driver:
    """A started `run` or `resume`, what it says, as it says it, and how many rows there were before."""

    def __init__(self, process: subprocess.Popen, output: Path, rows_before: int):
        self.process, self.output, self.rows_before = process, output, rows_before

    @property
    def said(self) -> str:
        """In one line: it wraps long ones."""
        return " ".join(self.output.read_text().split())

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(timeout=patience_s())

    def processes(self, title: str) -> list[psutil.Process]:
        """Of its own, by what they are called now: Ray names a worker after the method that it runs."""
        return [one for one in family(self.process) if title in _title(one)]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join([process.name(), *process.cmdline()[:1]])
    except psutil.Error:
        return ""


@dataclass
class Scene:
    """A sweep in a folder of its own, to be disturbed."""

    folder: Path
    commands: Commands
    stack: ExitStack
    """What is to be taken down in the end."""
    rng: np.random.Generator
    pair: Pair
    calm: Calm
    sweep: Path
    storage: str = "runs"
    run: Run = field(init=False)
    drivers: list[Driver] = field(default_factory=list)
    again: tuple[str, ...] = ()
    """What `resume` must be told to come to the end."""

    def __post_init__(self) -> None:
        self.run = Run(self.folder / "runs" / "tiny" / "main")

    # commands

    def start(self, *options: str, program: Sequence[str] = ()) -> Driver:
        return self._drive("run", str(self.sweep), "--storage", self.storage, *options, program=program)

    def resume(self) -> Driver:
        return self._drive("resume", str(self.run.path), *self.again)

    def _drive(self, *arguments: str, program: Sequence[str] = ()) -> Driver:
        output, rows = self.folder / f"output-{len(self.drivers)}.txt", rows_on_disk(self.run.path)
        with open(output, "w") as file:
            process = self.commands.start(*arguments, into=file, program=program)
        self.drivers.append(Driver(process, output, rows))
        return self.drivers[-1]

    def customise(self, folder: str, **variables: str) -> None:
        """Every Python process of the sweep begins with the file `sitecustomize.py` of a folder beside this file."""
        self.commands.environment |= {"PYTHONPATH": str(HERE / folder), **variables}

    def hurry(self, timeouts: Mapping[str, Mapping[str, float]]) -> None:
        """Other time-outs, by module of disentune."""
        self.customise("impatient", TIMEOUTS=json.dumps({f"disentune.{name}": own for name, own in timeouts.items()}))

    def use_store(self) -> Store:
        """The sweep's storage is an object store on this machine."""
        store = self.stack.enter_context(served())
        self.stack.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "cache")}))
        use_store(store, os.environ.__setitem__)
        known = {key: value for key, value in os.environ.items() if key.startswith(("AWS_", "XDG_"))}
        self.commands.environment |= known
        self.storage, self.run = "s3://bucket/runs", Run(place("s3://bucket/runs/tiny/main"))
        return store

    def session_without_ray_dies(self) -> None:
        """In this process, at a random moment before the first trial has ended: it leaves what one on Ray would."""
        dies_after = int(self.rng.uniform(0.15, 0.4) * len(self.calm.table) * STEPS)
        with suppress(Death):
            simulate(self.run, self.sweep, self.rng, dies_after=dies_after)
        assert rows_on_disk(self.run.path) < self.calm.rows

    # moments

    def at_some_row(self, driver: Driver, most: float = 0.6) -> None:
        """Waits for a random share of the rows that the driver has to add. Some are missing then, and it runs."""
        missing = self.calm.rows - driver.rows_before
        wanted = driver.rows_before + 1 + int(self.rng.uniform(0, most) * missing)
        wait_until(lambda: rows_on_disk(self.run.path) >= wanted or driver.ended, f"{wanted} rows")
        assert rows_on_disk(self.run.path) < self.calm.rows, "it is too late for the fault"
        assert not driver.ended, driver.said

    @contextmanager
    def held(self, step: int) -> Iterator[Driver]:
        """A run while the first trial that has come to a step waits in the middle of it."""
        self.plan({"kind": "hold", "step": step})
        driver = self.start()
        wait_until(lambda: self.mark("hold").exists() or driver.ended, f"a trial at step {step}")
        assert not driver.ended, driver.said
        try:
            yield driver
        finally:
            self.mark("hold.go").touch()

    # faults in a trial's own code

    def fault(self, kind: str, beta: float) -> Fault:
        """At a random step of the trial with this beta."""
        return {"kind": kind, "beta": beta, "step": int(self.rng.integers(1, STEPS + 1))}

    def plan(self, *faults: Fault) -> None:
        plan(self.folder, faults)

    def mark(self, kind: str) -> Path:
        """The file that is there once a fault has happened."""
        return self.folder / kind

    def some_betas(self, count: int) -> list[float]:
        return self.rng.permutation(self.calm.betas())[:count].tolist()

    def faults(self) -> dict[str, int]:
        """That trials have counted, by cause."""
        return dict(sum((Counter(trial.status().faults) for trial in self.run.trials()), Counter()))

    # the end

    @property
    def needs_help(self) -> bool:
        return not self.drivers or self.drivers[-1].end() != 0

    def first_row_of_resume_s(self) -> float | None:
        """Resumes to the end. Seconds until there was a new row; None where none was missing."""
        before, began = rows_on_disk(self.run.path), time.monotonic()
        driver, seconds = self.resume(), None
        while not driver.ended and time.monotonic() < began + patience_s():
            if seconds is None and rows_on_disk(self.run.path) > before:
                seconds = time.monotonic() - began
            time.sleep(0.02)
        assert driver.end() == 0, driver.said
        return seconds

    def assert_as_calm(self) -> None:
        """Every trial has exactly its rows, none twice, and no bit is another."""
        assert table(self.run) == self.calm.table
        assert read_bytes(self.run.parquet_path) == self.calm.parquet
        for trial in self.run.trials():
            lines = (read_if_there(trial.rows_path) or b"").splitlines()  # one that diverged at once has none
            written = [json.loads(line)["step"] for line in lines]
            assert written == [row["step"] for row in trial.rows()], f"{trial.id} has a row twice"


@contextmanager
def scene(case: Case, seed: int, calms: Calms, folder: Path) -> Iterator[Scene]:
    rng = np.random.default_rng([seed, zlib.crc32(case.name.encode())])
    with commands_in(folder) as commands, ExitStack() as stack:
        commands.environment |= {"FAULTS": str(folder), "TMPDIR": commands.environment["RAY_TMPDIR"]}
        sweep = write_sweep(folder, case.pair, case.settings)
        yield Scene(folder, commands, stack, rng, case.pair, calms.of(case.pair), sweep)


def survive(case: Case, seed: int, calms: Calms, folder: Path) -> float | None:
    """Puts a sweep through a case. Seconds from `resume` to the first new row; None where it went on by itself, or no
    row was missing."""
    with scene(case, seed, calms, folder) as disturbed:
        check = case.inject(disturbed)
        seconds = disturbed.first_row_of_resume_s() if disturbed.needs_help else None
        if check is not None:
            check()
        disturbed.assert_as_calm()
        return seconds


# ---- disks


def can_mount() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("mount", "umount")))


class Disk:
    """A small disk, mounted on a folder until the scene is over."""

    def __init__(self, scene: Scene, folder: Path, size_mb: int = 24, most_files: int = 4096):
        self.folder, self.ballast, self.stack = folder, folder / "ballast", scene.stack
        folder.mkdir(parents=True, exist_ok=True)
        options = f"size={size_mb}m,nr_inodes={most_files}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "disentune", folder], check=True)
        scene.stack.callback(subprocess.run, ["umount", "--lazy", folder], check=True)

    def show(self, name: str, folder: Path) -> None:
        """A folder of it in another place."""
        (self.folder / name).mkdir()
        folder.mkdir(parents=True)
        subprocess.run(["mount", "--bind", self.folder / name, folder], check=True)
        self.stack.callback(subprocess.run, ["umount", "--lazy", folder], check=True)

    def fill(self, left: int = 0) -> None:
        """Also what has become free since the last time. With a page `left`, what is larger is cut in the middle."""
        with open(self.ballast, "ab", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(PAGE)):
                    pass
            assert os.statvfs(self.folder).f_bavail == 0
            file.truncate(file.tell() - left)

    def use_up_inodes(self) -> None:
        """No further file can be created, though there is space."""
        self.ballast.mkdir()
        with suppress(OSError):
            for number in itertools.count():
                (self.ballast / str(number)).touch()
        found = os.statvfs(self.folder)
        assert found.f_favail == 0
        assert found.f_bavail > 0

    def clear(self) -> None:
        shutil.rmtree(self.ballast) if self.ballast.is_dir() else self.ballast.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For whoever opens a file there from now on. (The disk itself cannot be made so while a file of it is open for
    writing, as the driver's lock always is.)"""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
