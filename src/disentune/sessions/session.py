"""One session of one run: its plan, its data, and the trials on Ray. A `Display` receives what there is to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from disentune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from disentune.data.prepared.download import Progress
    from disentune.driver.sweep import Ending
    from disentune.plugin import Source
    from disentune.runs.ledger import Run
    from disentune.runs.planner import Planner
    from disentune.runs.preview import Cost, Plan
    from disentune.runs.trial_folder import TrialFolder
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile
    from disentune.tracking.connection import Connection

    Say = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Wanted:
    """The options of a command that plans or runs a sweep."""

    only: str | None = None
    limit: int | None = None
    address: str | None = None
    retry_failed: bool = False
    drop: bool = False


class Live(Protocol):
    """Follows the trials of a session."""

    def __call__(self, planner: Planner, trial_id: str, news: dict[str, Any]) -> None: ...

    def beat(self) -> None:
        """Called many times per second."""

    def is_drawn(self) -> bool:
        """Whether it is on the terminal now, and shows that the session is stopping."""


class Display(Protocol):
    """Shows a session to its user."""

    def say(self, text: str) -> None: ...

    def waiting(self) -> AbstractContextManager[Say]:
        """Progress of work that is usually short."""

    def preparing(self) -> AbstractContextManager[Progress]:
        """Progress of data that is downloaded and prepared."""

    def during(self, run: Run) -> AbstractContextManager[None]:
        """Around everything that follows the checks."""

    def plan(self, planned: Plan, estimate: Cost, run: Run, sweep: SweepFile) -> None: ...

    def place(self, connection: Connection, run: Run) -> None:
        """Where the rows are streamed to."""

    def live(self, run: Run) -> AbstractContextManager[Live]: ...

    def end(self, run: Run, ending: Ending, connection: Connection | None, is_stage: bool) -> None:
        """How a session ended; a stage of a study says less."""


def planned_trials(asked: SweepPoints, run: Run, wanted: Wanted, display: Display) -> Plan:
    """Raises ConfigError for filters that are not allowed or select nothing."""
    from disentune.runs.choice import filters_allowed
    from disentune.runs.preview import make_plan

    only, limit = wanted.only, wanted.limit
    filters_allowed(asked.sweep, only is not None, limit is not None)
    with display.waiting() as say:
        planned = make_plan(asked, run, only, limit, wanted.retry_failed, say, wanted.drop)
    if only is not None and not limit and not planned.trials:
        raise ConfigError(f"--only {only!r}: selects no trial of the sweep")
    return planned


def carry_out(run: Run, asked: SweepPoints, wanted: Wanted, display: Display, is_stage: bool = False) -> Ending:
    """Runs what is unfinished. Raises ConfigError before anything is spent."""
    from disentune.driver.sweep import LaunchRequest, launch
    from disentune.files.storage import assert_writable
    from disentune.runs.preview import cost, unprepared
    from disentune.tracking.connection import connection

    sweep = asked.sweep
    run.assert_free()
    place = connection(sweep.settings.wandb, sweep.name, run.name)
    planned = planned_trials(asked, run, wanted, display)
    missing = unprepared(planned) if not wanted.address else []  # else each node prepares its own
    with display.waiting() as say:
        estimate = cost(asked, planned, probe=False, say=say)
    assert_writable(run.path)
    with display.during(run):
        display.plan(planned, estimate, run, sweep)
        for source in missing:
            _prepare(source, display)
        if place is not None:
            display.place(place, run)
        with display.live(run) as live:
            ending = launch(LaunchRequest(
                run, asked, planned.choice, live, wanted.address, wanted.retry_failed, place, display.say,
                planned.sources, planned.transfers, live.beat, live.is_drawn,
            ))  # fmt: skip
        display.end(run, ending, place, is_stage)
    return ending


def _prepare(source: Source, display: Display) -> None:
    from disentune.data.prepared.preparing import prepare

    with display.preparing() as say:
        about = prepare(source, say=say)
    display.say(f"prepared {source.key}: {about.count:,} images")


# ---- how it ended


def stopped_line(run: Run, ending: Ending) -> str:
    """Why a session was stopped, and what was saved."""
    return f"stopped ({ending.interrupted}); {_checkpointed(run)}"


def is_budget(ending: Ending) -> bool:
    """Whether a limit of the sweep itself ended the session, such as stop.wall_time_s."""
    return ending.interrupted.startswith("stop.")


def _checkpointed(run: Run) -> str:
    """How many of the started, unfinished trials have a checkpoint."""
    open_ = [folder for folder in run.known_trials("status.json").values() if not folder.status().final]
    begun = [folder for folder in open_ if _has_trained(folder)]
    safe = sum(bool(folder.checkpoints.steps()) for folder in begun)
    if not begun:
        return "no trial was running"
    if safe == len(begun):
        return "every trial that had started has a checkpoint"
    return f"{safe} of {len(begun)} started trials have a checkpoint; the others start again"


def _has_trained(folder: TrialFolder) -> bool:
    """Whether there is work to lose. A trial that got a slot after the stop request has none; one whose worker died
    still has the state `running`."""
    status = folder.status()
    return status.step > 0 or status.state == "running" or bool(status.faults) or bool(folder.checkpoints.steps())
