"""The runs below a storage, and what a list says about each."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from disentune.errors import ConfigError, DisentuneError, first_line
from disentune.files.storage import Place, assert_reachable, shown, sizes_below
from disentune.results.steady import steady
from disentune.results.watch import Snapshot, Watcher, stamp
from disentune.runs.ledger import Run, assert_own_files

PATTERNS = ("*/sweep.yaml", "*/*/sweep.yaml")
"""A storage holds SWEEP/RUN; the folder of one sweep holds its runs."""


def runs_below(storage: Place) -> dict[str, Run]:
    """The runs of a storage, or the run that it is, by name. Raises OSError if the storage does not answer, and
    FileNotFoundError if it does not exist."""
    found = {name_of(storage, path): Run(path.parent) for path in _sweeps(storage)}
    if not found and not storage.exists():
        raise FileNotFoundError(f"{shown(storage)} does not exist")
    return found


def assert_storage(storage: Place, command: str) -> dict[str, Run]:
    """`runs_below`; raises ConfigError, with the command to repeat, if there is no such storage."""
    assert_reachable(storage)
    try:
        return runs_below(storage)
    except FileNotFoundError as error:
        raise ConfigError(f"{error}; run a sweep first, or name a storage: {command} STORAGE") from None
    except OSError as error:
        text = f"{shown(storage)} cannot be read: {error.strerror or error}"
        raise ConfigError(f"{text}; name another storage: {command} STORAGE") from None


def _sweeps(storage: Place) -> Iterable[Place]:
    own = storage / "sweep.yaml"
    if own.is_file():
        return [own]
    return [path for pattern in PATTERNS for path in storage.glob(pattern)]


def name_of(storage: Place, sweep: Place) -> str:
    """`SWEEP/RUN`; bytes that are no text are spelled out."""
    folder = sweep.parent
    relative = folder.name if folder == storage else str(folder)[len(str(storage)) :].strip("/")
    return relative.encode(errors="backslashreplace").decode()


# ---- what a list says


@dataclass(frozen=True)
class Listed:
    """A run of a list; `picture` is None if it was not read yet or cannot be read."""

    name: str
    live: bool
    changed: float
    """When a driver last took the run, its sweep was written, or a trial changed."""
    picture: Snapshot | None
    problem: str = ""

    @property
    def state(self) -> str:
        """`running`, `stopping`, `finished`, `interrupted`, `unreadable`, or `gone`."""
        if self.picture is None:
            return "unreadable"
        if self.picture.gone:
            return "gone"
        if self.picture.live:
            return "stopping" if self.picture.stopping else "running"
        return "finished" if self.picture.finished else "interrupted"


def surveyed(name: str, run: Run) -> Listed:
    """A run as it is now. A run that cannot be read is listed with the problem."""
    try:
        assert_own_files(run)
        picture = Watcher(run, remembers=True).look()
        return Listed(name, picture.live, newest(changed_at(run), picture), picture)
    except (OSError, DisentuneError) as error:
        return Listed(name, False, 0.0, None, first_line(str(error)))


def changed_at(run: Run) -> float:
    """When a driver last took the run or its sweep was written."""
    times = [found[2] / 1e9 for path in (run.sweep_path, run.lock_path) if (found := stamp(path))]
    return max(times, default=0.0)


def newest(changed: float, picture: Snapshot | None) -> float:
    """Or a trial changed."""
    return max([changed, *(trial.changed for trial in picture.trials)] if picture else [changed])


def size_of(run: Run) -> int | None:
    """Bytes of all files of the run; None if they cannot be listed."""
    try:
        return sum(sizes_below(run.path).values())
    except OSError:
        return None


def told(name: str, run: Run) -> dict[str, Any]:
    """A run as one plain object."""
    found = steady(run, "run", [name, shown(run.path)], lambda: as_json(surveyed(name, run), run, size_of(run)))
    changed = found["changed"]
    return found | {"age_s": None if changed is None else max(0.0, time.time() - changed)}


def as_json(listed: Listed, run: Run, size: int | None) -> dict[str, Any]:
    """Numbers that JSON cannot represent become null; the age is left to the moment of the answer."""
    picture = listed.picture
    sweep, _, name = run.name.rpartition("/")
    best = picture.best if picture else None
    is_known = best is not None and best.value is not None and math.isfinite(best.value)
    return {
        "sweep": sweep,
        "run": name,
        "path": shown(run.path),
        "state": listed.state,
        "trials": picture.expected if picture else None,
        "done": picture.ended if picture else None,
        "states": picture.states if picture else {},
        "metric": picture.objective.metric if picture else None,
        "best": best.value if best is not None and is_known else None,
        "best_trial": best.id if best is not None and is_known else None,
        "changed": listed.changed or None,
        "age_s": None,
        "size_bytes": size,
        "problem": listed.problem or None,
    }
