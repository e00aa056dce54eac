"""A Tune searcher that asks the planner what to run and reports to it what happened."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray import tune
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayActorError, RayError, RayTaskError
from ray.tune.search import Searcher

from disentune.driver import ray_internals
from disentune.driver.nodes import is_dead, own_node
from disentune.driver.placement import some_are
from disentune.environment import without_secrets
from disentune.errors import ConfigError
from disentune.runs.planner import Planner
from disentune.runs.segment import Preempted, StepReport, Superseded, Unclean
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Cause

Listener = Callable[[str, dict[str, Any]], None]
"""Called with (trial id, the worker's report) after the planner has received the report."""
MOST_LETTERS = 300
"""Longest excerpt of a Ray error message."""


class LedgerSearch(Searcher):
    """Every Ray trial is one segment of one of our trials. Ray keeps no state that we need."""

    def __init__(
        self,
        planner: Planner,
        stopping: Callable[[], bool],
        listener: Listener,
        home: Callable[[TrialConfig], str | None] = lambda config: None,
        concurrent: int | None = None,
    ):
        """`home` returns the preferred node of a trial, or None if any node will do."""
        super().__init__()
        self.planner, self.stopping, self.listener = planner, stopping, listener
        self.home, self.concurrent = home, concurrent
        self.segments: dict[str, str] = {}
        self.running = False
        """Whether a segment is running now; others may be waiting for a slot."""
        self._reason: ConfigError | None = None

    def give_up(self, reason: ConfigError) -> None:
        """Suggests nothing more; the session ends with this error after its last running segment has ended."""
        self._reason = reason

    @property
    def trouble(self) -> ConfigError | None:
        """Why this session cannot continue, as found by the driver or else by the planner."""
        return self._reason or self.planner.trouble

    def suggest(self, trial_id: str) -> Any:
        """The next segment; None while nothing can run; FINISHED when this session has nothing left to run."""
        if self.stopping() or self.planner.finished or self.trouble:
            return Searcher.FINISHED
        if self.concurrent is not None and len(self.segments) >= self.concurrent:
            return None
        segment = self.planner.next()
        if segment is None:
            return Searcher.FINISHED if self.planner.finished else None
        self.segments[trial_id] = segment.trial_id
        self.listener(segment.trial_id, {"at_step": None})
        config = self.planner.trials[segment.trial_id].config
        return {"segment": json.dumps(segment.plain()), "home": self.home(config)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        ours = self.segments[trial_id]
        for row in result["rows"]:
            self.planner.report(ours, StepReport(row["step"], row))
        self.planner.report(ours, StepReport(result["at_step"], None, result["outcome"]))
        self.listener(ours, result)
        for note in result.get("note", "").splitlines():
            self.listener(ours, {"lost": note})
        self.stopping()  # so that the time limit is seen while every slot is busy

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Ray reports how a segment ended; the last result may come only with this call. For an error, Ray calls
        `Causes` next, which knows the error itself."""
        if error:
            return
        if result and self.planner.trials[self.segments[trial_id]].active:
            self.on_trial_result(trial_id, result)
        self.segments.pop(trial_id)

    def on_trial_error(self, trial_id: str, error: Exception) -> None:
        """Handles a segment that ended without a last report."""
        ours = self.segments.pop(trial_id)
        if isinstance(error, Superseded) and self.planner.run.session() != self.planner.session:
            self.give_up(ConfigError(f"{self.planner.run.path} was taken over by another driver; this driver stops"))
        node_id = named_node(error) or self.planner.node_of(ours)
        message = self.planner.lost(ours, words(error), cause_of(error, node_id), not node_id or node_id == own_node())
        self.listener(ours, {"lost": message})

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: all state is in the ledger."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep resumes from its ledger, never through Tuner.restore")

    def __reduce__(self) -> Any:
        """Tune pickles its searcher at the start, and here never unpickles it."""
        return (Searcher, ())


class Ends(tune.Stopper):
    """Ends the session after a stop request, once the last running segment has written its checkpoint. Tune by itself
    would first wait for a slot for every segment it has received."""

    def __init__(self, search: LedgerSearch):
        self.search = search

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return (self.search.stopping() or bool(self.search.trouble)) and not self.search.running

    def __reduce__(self) -> Any:
        return (tune.stopper.NoopStopper, ())


class Causes(tune.Callback):
    """Reports to the search whether segments are running, and why Ray ended one."""

    def __init__(self, search: LedgerSearch):
        self.search = search
        self._raised: dict[str, Exception] = {}
        """Why Ray ended a segment, by Ray's trial id, until the search has received it."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Use while Tune runs."""
        with ray_internals.expected_errors(as_expected), ray_internals.heard_errors(self._raised.__setitem__):
            yield

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.search.running = some_are(trials, "RUNNING")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = self._raised.pop(trial.trial_id, None) or RayError("an error that Ray did not report")
        self.search.on_trial_error(trial.trial_id, error)

    def __reduce__(self) -> Any:
        return (tune.Callback, ())


class Beat(tune.Callback):
    """Calls a function whenever Tune looks for events, which is many times per second."""

    def __init__(self, beat: Callable[[], None]):
        self.beat = beat

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.beat()

    def __reduce__(self) -> Any:
        return (tune.Callback, ())


# ---- causes


class Silent(tune.ProgressReporter):
    """Prints nothing. Tune's own report would clear the output of a notebook's cell."""

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None: ...


class Ended(RayActorError):
    """A worker that Ray ended for a reason that Tune does not handle."""

    def __init__(self, reason: Exception):
        super().__init__(error_msg=str(reason))
        self.reason = reason

    def __reduce__(self) -> Any:
        return (Ended, (self.reason,))


def as_expected(error: Exception) -> Exception:
    """The error in a form that Tune handles: errors of actors and tasks."""
    return error if isinstance(error, RayActorError | RayTaskError) else Ended(error)


def cause_of(error: Exception, node_id: str) -> Cause | None:
    """What caused an error; None if it does not count as a fault. A worker that vanished counts as lost unless its node
    is known to be dead."""
    reason = error.reason if isinstance(error, Ended) else error
    if isinstance(reason, Unclean):
        return None
    if isinstance(reason, Preempted) or getattr(reason, "preempted", False):
        return "preempted"
    if isinstance(reason, OutOfMemoryError):
        return "memory"
    if isinstance(reason, OSError):  # `work` raises OSError for trouble with the storage
        return "storage"
    if isinstance(reason, NodeDiedError | LocalRayletDiedError) or (node_id and is_dead(node_id)):
        return "node"
    return "lost"


def named_node(error: Exception) -> str:
    """The node of a dead actor, if Ray names it; else empty."""
    return ray_internals.named_node(str(error)) if isinstance(error, RayActorError) else ""


def words(error: Exception) -> str:
    """The line of a Ray error that says what happened: the first one for memory, else the last one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0] if isinstance(error, Ended) else lines[-1]
    return without_secrets(line.strip())[:MOST_LETTERS]
