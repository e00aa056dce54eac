"""A segment: one stretch of a trial, from its newest checkpoint to a step, written to its folder. Knows no Ray.

A row is on disk before the checkpoint that follows it, so training from a checkpoint computes no row that is missing
below it; rows that come out again are equal to the bit and are passed over. Pictures of a step are on disk before its
row.
"""

import math
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from disentune import pictures, process
from disentune.config import TrialConfig, flattened, nested
from disentune.data.store import use_root
from disentune.errors import TrialError
from disentune.ledger import Run, Status, TrialFolder
from disentune.settings import Objective, Plateau, Settings
from disentune.training import Training

Outcome = Literal["paused", "done", "diverged", "failed", "interrupted"]
POLL_S = 0.5
"""How often a worker looks whether it has been asked to stop."""


@dataclass(frozen=True)
class Segment:
    """What a worker is asked to do; plain values, so that it can travel."""

    run: str
    trial_id: str
    until: int
    session: str
    settings: Mapping[str, Any]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys that population based training has changed by now."""
    inherited: int = 0
    """The step at which it took over another trial's weights: it cannot start from a checkpoint before that."""
    plugin_folder: str = ""
    """Where the driver was started: a user's own plug-ins are imported from there."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """Said after every training step; `row` when one was new, `outcome` when the segment is over."""

    step: int
    row: dict[str, Any] | None = None
    outcome: Outcome | None = None


class Superseded(Exception):
    """Another driver has taken the run over; this worker must not write any more."""


def work(segment: Segment) -> Iterator[Report]:
    """Carries a segment out. An error of the trial's own code ends the trial as failed, with its traceback."""
    if segment.plugin_folder and segment.plugin_folder not in sys.path:
        sys.path.append(segment.plugin_folder)
    worker = _Worker(segment)
    try:
        yield from worker.reports()
    except (OSError, Superseded):
        raise  # the storage's or the cluster's fault, not the trial's: it may succeed elsewhere
    except Exception as error:
        yield worker.end("failed", f"{_kind(error)}\n{traceback.format_exc(limit=-12)}")


def _kind(error: Exception) -> str:
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return f"{'out of memory: ' if memory else ''}{type(error).__name__}: {error}"


class _Worker:
    def __init__(self, segment: Segment):
        self.segment = segment
        self.run = Run(Path(segment.run))
        self.folder: TrialFolder = self.run.trial(segment.trial_id)
        self.settings = Settings.model_validate(segment.settings)
        self.status: Status = self.folder.status()
        self.started = self.checkpointed = self.polled = time.monotonic()

    def config(self) -> TrialConfig:
        if not self.segment.overrides:
            return self.folder.config()
        return TrialConfig.parse(nested({**flattened(self.folder.tree()), **self.segment.overrides}))

    def reports(self) -> Iterator[Report]:
        rows = self.folder.rows()
        watermark = rows[-1]["step"] if rows else 0
        self._set_status("running", attempts=self.status.attempts + 1, node=socket.gethostname())
        training = self._training()
        best = Best(self.settings.objective, rows)
        for progress in training.run(self.segment.until):
            row = progress.row
            if row is not None and progress.step > watermark:
                if cause := divergence(row, self.settings.stop.divergence):
                    yield self.end("diverged", cause, step=progress.step)
                    return
                best.add(row)
                cause = plateau(self.settings.stop.plateau, best)
                self._draw_pictures(training, is_last=bool(cause))
                self._write(row)
                if cause:
                    self._checkpoint(training, best)
                    yield self.end("done", cause, row, progress.step)
                    return
            elif row is None and progress.step == self.settings.stop.steps:
                self._draw_pictures(training, is_last=True)
            if self._due(progress.step) or best.is_new(progress.step):
                self._checkpoint(training, best)
            if self._stop_requested():
                self._checkpoint(training, best)
                yield self.end("interrupted", "", row, progress.step)
                return
            yield Report(progress.step, row if progress.step > watermark else None)
        if self.folder.checkpoints.steps()[-1:] != [training.step]:
            self._checkpoint(training, best)
        yield self._finished(training, best)

    def _training(self) -> Training:
        config = self.config()
        use_root(self.settings.data.root)
        process.prepare(config.training.threads, config.training.device, self.settings.resources.gpu)
        step, state, notes = self.folder.checkpoints.newest()
        if step < self.segment.inherited:
            raise TrialError(
                f"no sound checkpoint from step {self.segment.inherited}, where it took over another trial"
            )
        for note in notes:
            self._set_status("running", cause=note)
        training = Training(config, state, self.settings.data.on_device)
        if training.contents:
            self._set_status("running", contents=training.contents)
        return training

    def _finished(self, training: Training, best: "Best") -> Report:
        if training.step == training.config.training.steps:
            self.folder.checkpoints.prune(1, best.step)
            return self.end("done", self.status.cause, step=training.step)
        if training.step == self.settings.stop.steps:
            return self.end("done", f"stop.steps: {training.step}", step=training.step)
        return self.end("paused", "", step=training.step)

    def end(self, outcome: Outcome, cause: str, row: dict[str, Any] | None = None, step: int | None = None) -> Report:
        """Writes how the segment ended; a paused or interrupted trial is pending again."""
        at = self.status.step if step is None else step
        self._set_status("pending" if outcome in ("paused", "interrupted") else outcome, step=at, cause=cause)
        return Report(at, row, outcome)

    def _write(self, row: dict[str, Any]) -> None:
        if self.segment.overrides:
            row["overrides"] = dict(self.segment.overrides)
        row["clock"] = {"seconds": round(self._seconds(), 3)}
        self._assert_current()
        self.folder.append_row(row)

    def _draw_pictures(self, training: Training, is_last: bool) -> None:
        """Where they are due. A failure is the pictures' own: it is noted, and the trial goes on."""
        if not self._shows(training.config, training.step, is_last):
            return
        try:
            data = pictures.to_bytes(pictures.drawn(training.trained_model()))
        except Exception as error:
            self._note_missing_pictures(training.step, error)
            return
        self._assert_current()
        self.folder.write_pictures(training.step, data)

    def _shows(self, config: TrialConfig, step: int, is_last: bool) -> bool:
        when = self.settings.pictures.when
        if when == "last":
            return is_last or step in (config.training.steps, self.settings.stop.steps)
        return when == "evaluations" and config.evaluates_at(step)

    def _note_missing_pictures(self, step: int, error: Exception) -> None:
        """In the status, which commands show, and with its traceback in a file; never in a row, which is the same
        with and without pictures."""
        cause = f"no pictures at step {step}: {_kind(error)}"
        self._assert_current()
        if not self.folder.pictures_failure():
            self.folder.write_pictures_failure(f"{cause}\n{traceback.format_exc(limit=-12)}")
        self._set_status("running", cause=cause)

    def _due(self, step: int) -> bool:
        checkpoint = self.settings.checkpoint
        by_time = time.monotonic() - self.checkpointed >= checkpoint.every_s
        return by_time or (checkpoint.every_steps is not None and step % checkpoint.every_steps == 0)

    def _checkpoint(self, training: Training, best: "Best") -> None:
        self._assert_current()
        self.folder.checkpoints.save(training.step, training.state())
        self.folder.checkpoints.prune(self.settings.checkpoint.keep, best.step)
        self.checkpointed = time.monotonic()
        self._set_status("running", step=training.step)

    def _stop_requested(self) -> bool:
        now = time.monotonic()
        if now - self.polled < POLL_S:
            return False
        self.polled = now
        self._assert_current()
        return self.run.stop_path.exists()

    def _assert_current(self) -> None:
        if self.run.session() != self.segment.session:
            raise Superseded(f"{self.run.path} is being run by another driver")

    def _seconds(self) -> float:
        return self.status.seconds + time.monotonic() - self.started

    def _set_status(self, state: Any, **changes: Any) -> None:
        changes = {"seconds": round(self._seconds(), 3), **changes}
        self.status = self.folder.update_status(state=state, **changes)
        self.started = time.monotonic()


def divergence(row: Mapping[str, Any], limit: float) -> str:
    """Why a trial ends as diverged; empty while its loss is sound."""
    loss = row["metrics"]["loss"]
    if math.isfinite(loss) and loss <= limit:
        return ""
    return f"the loss became {loss:g} by step {row['step']} (limit {limit:g})"


class Best:
    """The objective's values so far, and the step of the best."""

    def __init__(self, objective: Objective | None, rows: list[dict[str, Any]]):
        self.objective = objective
        self.values: list[tuple[int, float]] = []
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        if self.objective and self.objective.metric in row["metrics"]:
            value = row["metrics"][self.objective.metric]
            self.values.append((row["step"], value if self.objective.mode == "max" else -value))

    @property
    def step(self) -> int | None:
        finite = [(value, -step) for step, value in self.values if math.isfinite(value)]
        return -max(finite)[1] if finite else None

    def is_new(self, step: int) -> bool:
        return bool(self.values) and self.values[-1][0] == step == self.step


def plateau(rule: Plateau | None, best: Best) -> str:
    """Why a trial ends by the plateau rule; empty while it goes on."""
    values = [value for _, value in best.values if math.isfinite(value)]
    if rule is None or len(values) <= rule.evaluations:
        return ""
    before, recent = max(values[: -rule.evaluations]), max(values[-rule.evaluations :])
    if recent > before + rule.min_delta:
        return ""
    return f"stop.plateau: no improvement in {rule.evaluations} evaluations"
