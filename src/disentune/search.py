"""Ray's edge in the driver: a Tune searcher that asks the planner what to run and tells it what happened."""

import json
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from disentune.planner import Planner
from disentune.segment import Report

Listener = Callable[[str, dict[str, Any]], None]
"""Called with (trial id, what its worker said) after the planner has taken it in."""


class LedgerSearch(Searcher):
    """Every Ray trial is one segment of one of our trials. Ray keeps no state that we need."""

    def __init__(
        self, planner: Planner, stopping: Callable[[], bool], listener: Listener, concurrent: int | None = None
    ):
        super().__init__()
        self.planner, self.stopping, self.listener, self.concurrent = planner, stopping, listener, concurrent
        self.segments: dict[str, str] = {}
        self.causes: dict[str, str] = {}

    def suggest(self, trial_id: str) -> Any:
        """A segment; None while nothing can run; FINISHED when nothing ever will in this session."""
        if self.stopping() or self.planner.finished:
            return Searcher.FINISHED
        if self.concurrent is not None and len(self.segments) >= self.concurrent:
            return None
        segment = self.planner.next()
        if segment is None:
            return Searcher.FINISHED if self.planner.finished else None
        self.segments[trial_id] = segment.trial_id
        self.listener(segment.trial_id, {"at_step": None})
        return {"segment": json.dumps(segment.plain())}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        ours = self.segments[trial_id]
        for row in result["rows"]:
            self.planner.report(ours, Report(row["step"], row))
        if result["outcome"] is not None:
            self.planner.report(ours, Report(result["at_step"], None, result["outcome"]))
        self.listener(ours, result)
        self.stopping()  # so that the time limit is seen while every slot is busy

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Ray says how a segment ended; the last result may come only with this call."""
        ours = self.segments[trial_id]
        if error:
            message = self.planner.lost(ours, self.causes.pop(trial_id, "no error was reported"))
            self.listener(ours, {"lost": message})
        elif result and self.planner.trials[ours].active:
            self.on_trial_result(trial_id, result)
        self.segments.pop(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep is resumed from its ledger, never by Tuner.restore")

    def __reduce__(self) -> Any:
        """Tune pickles its searcher at the start and never reads it back here."""
        return (Searcher, ())


class Causes(tune.Callback):
    """Keeps why Ray lost a worker, for the message that the user sees."""

    def __init__(self, search: LedgerSearch):
        self.search = search

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_error()
        self.search.causes[trial.trial_id] = str(error).strip().splitlines()[-1] if error else ""

    def __reduce__(self) -> Any:
        return (tune.Callback, ())
