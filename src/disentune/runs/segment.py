"""A segment: one stretch of a trial, from its newest checkpoint to a step, written to its folder. Knows no Ray.

A row is on disk before the checkpoint that follows it, so no row is missing below a checkpoint unless something has cut
them; then the trial starts from a checkpoint before the first missing row. Rows that come out again are equal to the
bit and are passed over. Pictures of a step are on disk before its row.

What goes wrong in the trial's own code is recorded here, and here it is decided whether the trial goes on. What is the
storage's or the cluster's fault is raised, for the driver to see.
"""

import errno
import faulthandler
import math
import os
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from disentune.data.prepared.store import use_root
from disentune.environment import without_secrets
from disentune.errors import ConfigError, TrialError
from disentune.files.storage import is_of_the_storage, place
from disentune.learn import cuda, pictures, process
from disentune.learn.training import Training
from disentune.runs.ledger import Run
from disentune.runs.rows import last_step
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.config import TrialConfig, flattened, nested
from disentune.spec.settings import Cause, Objective, Plateau, Settings

Outcome = Literal["paused", "done", "diverged", "failed", "interrupted", "retried"]
POLL_S = 0.5
"""How often a worker looks whether it has been asked to stop."""
RECORD_S = 20.0
"""How long a worker that hangs may take to say so; the storage may be what it hangs on."""
WORDS: Mapping[Cause, str] = {
    "error": "had an error",
    "memory": "ran out of memory",
    "lost": "lost its worker",
    "node": "lost its node",
    "preempted": "left a node that is being taken away",
    "hang": "hung",
    "storage": "could not use the storage",
}
TIME_IS_UP = "stop.wall_time_s"
"""How the reason to stop begins when the sweep's own time is up: what is reached then counts as the end."""
BEGIN_AGAIN = "resume with --retry-failed: its population is then computed again from the start"
OPENING_S = 4 * 3600.0
"""How long a trial may take until its first step: the data that it needs may have to be downloaded first."""


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
    source: str = ""
    """The trial that it took over there."""
    plugin_folder: str = ""
    """Where the driver was started: a user's own plug-ins are imported from there."""
    attempt: int = 0
    """Number of this start of the trial; 0: one more than there were."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StepReport:
    """Said after every training step; `row` when one was new, `outcome` when the segment is over, `note` for the user
    when something went wrong and the trial goes on."""

    step: int
    row: dict[str, Any] | None = None
    outcome: Outcome | None = None
    note: str = ""


class Superseded(Exception):
    """Another driver has taken the run over, or another worker this trial; this one must not write any more."""


class Preempted(Exception):
    """This node is being taken away; the trial is checkpointed and goes on elsewhere."""


class Unclean(Exception):
    """This process cannot take another trial; a fresh one can."""


class _Own(Exception):
    """Around an OSError of the trial's own code."""


def work(segment: Segment, node_id: str = "", leaving: Callable[[], bool] = lambda: False) -> Iterator[StepReport]:
    """Carries a segment out. An error of the trial's own code is kept with its traceback and ends the trial as failed
    once its retries are used up. `leaving` says whether this node is about to be taken away."""
    if segment.plugin_folder and segment.plugin_folder not in sys.path:
        sys.path.append(segment.plugin_folder)
    with _storage_told_apart():
        worker = _Worker(segment, node_id, leaving)
    try:
        with _storage_told_apart():
            for report in worker.reports():
                worker.watchdog.rest()
                yield report
                worker.watchdog.hear()
        return
    except (Superseded, Preempted):
        raise  # the storage's or the cluster's fault, not the trial's: it may succeed elsewhere
    except OSError as error:  # the same; what is raised from here Ray writes to files that everyone may read
        if _tells_secrets(error):
            raise _without_secrets(error) from None
        raise
    except Exception as error:
        report = worker.fault(error.__cause__ if isinstance(error, _Own) and error.__cause__ else error)
    finally:
        worker.watchdog.stop()
    yield report  # the error is gone by now, and with it what its frames held in memory


@contextmanager
def _storage_told_apart() -> Iterator[None]:
    """A file of the ledger that could not be read is raised as what the storage said, and not as a mistake."""
    try:
        yield
    except ConfigError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _tells_secrets(error: BaseException) -> bool:
    text = "".join(traceback.format_exception(error))
    return without_secrets(text) != text


def _without_secrets(error: OSError) -> OSError:
    """The same error without its traceback, and without the errors that led to it."""
    if error.errno is None:
        return OSError(without_secrets(str(error)))
    texts = [error.strerror, *([] if error.filename is None else [error.filename])]
    return OSError(error.errno, *(without_secrets(str(text)) for text in texts))


def _kind(error: BaseException) -> str:
    return f"{'out of memory: ' if cuda.is_out_of_memory(error) else ''}{type(error).__name__}: {error}"


@contextmanager
def _own_code() -> Iterator[None]:
    """An OSError of the trial's own code is told apart from those of the storage."""
    try:
        yield
    except OSError as error:
        if is_of_the_storage(error):
            raise
        raise _Own from error


def steps_of(training: Training, until: int) -> Iterator[Any]:
    """As `training.run`; an OSError in there may be the trial's own."""
    with _own_code():
        yield from training.run(until)


class Watchdog:
    """Calls `bark` in a thread of its own once nothing was heard for `after_s`, and ends the process.

    Hearing costs a look at the clock. Should the interpreter itself be stuck, so that no thread of it can run, Python's
    fault handler ends the process instead, with the stacks in its log.
    """

    def __init__(self, after_s: float, bark: Callable[[str], None]):
        self.after_s, self.bark = after_s, bark
        self.heard = math.inf
        self.stopped = threading.Event()

    def start(self) -> None:
        self.hear()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def hear(self) -> None:
        self.heard = time.monotonic()

    def rest(self, seconds: float = math.inf) -> None:
        """So much longer, until it hears again: the worker waits for its driver, or for its data."""
        self.heard = time.monotonic() + seconds

    def stop(self) -> None:
        self.stopped.set()

    def _watch(self) -> None:
        try:
            while not self.stopped.wait(self.after_s / 4):
                _end_if_stuck(2 * self.after_s)
                if time.monotonic() - self.heard > self.after_s:
                    self._end()
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _end(self) -> None:
        _end_if_stuck(2 * RECORD_S)
        recording = threading.Thread(target=self.bark, args=(stacks(),), daemon=True)
        recording.start()
        recording.join(RECORD_S)
        os._exit(1)


def _end_if_stuck(seconds: float) -> None:
    """Unless it is called again before."""
    with suppress(Exception):  # without a standard error there is no such handler
        faulthandler.dump_traceback_later(seconds, exit=True)


def stacks() -> str:
    """What every thread of this process is doing."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")


class _Worker:
    def __init__(self, segment: Segment, node_id: str, leaving: Callable[[], bool]):
        self.segment, self.node_id, self.leaving = segment, node_id, leaving
        self.run = Run(place(segment.run))
        self.folder: TrialFolder = self.run.trial(segment.trial_id)
        self.settings = Settings.model_validate(segment.settings)
        self.status: Status = self.folder.status()
        self.started = self.checkpointed = self.polled = time.monotonic()
        self.watchdog = Watchdog(self.settings.retries.hang_after_s, self._hung)
        self.notes: list[str] = []
        """On damaged checkpoints and missing rows."""

    def config(self) -> TrialConfig:
        if not self.segment.overrides:
            return self.folder.config()
        return TrialConfig.parse(nested({**flattened(self.folder.tree()), **self.segment.overrides}))

    def reports(self) -> Iterator[StepReport]:
        self._begin()
        if self.run.stop_path.exists():  # asked for while this segment waited for a slot
            yield self.end("interrupted", self.status.cause)
            return
        rows = self._whole_rows()
        watermark = last_step(rows)
        self.watchdog.start()
        self.watchdog.rest(OPENING_S)
        training = self._training()
        self.watchdog.hear()
        for note in self.notes:
            yield StepReport(training.step, note=note)
        best = Best(self.settings.objective, rows)
        ended = plateau(self.settings.stop.plateau, best)  # by rows whose writer died before it could say so
        if ended and training.step == watermark:
            yield self.end("done", ended, step=training.step)
            return
        for progress in steps_of(training, self.segment.until):
            self.watchdog.hear()
            row = progress.row
            if ended and progress.step == watermark:
                self._checkpoint(training, best)
                yield self.end("done", ended, step=progress.step)
                return
            if row is not None and progress.step > watermark:
                if cause := divergence(row, self.settings.stop.divergence):
                    yield self.end("diverged", cause, step=progress.step)
                    return
                best.add(row)
                cause = plateau(self.settings.stop.plateau, best)
                is_last = bool(cause) or progress.step == self.settings.stop.steps
                self._draw_pictures(training, is_last)
                if is_last:
                    self._evaluate_end(training)
                self._write(row)
                if cause:
                    self._checkpoint(training, best)
                    yield self.end("done", cause, row, progress.step)
                    return
            elif row is None and progress.step == self.settings.stop.steps:
                self._draw_pictures(training, is_last=True)
                self._evaluate_end(training)
            if self._due(progress.step) or best.is_new(progress.step):
                self._checkpoint(training, best)
            if self._stop_requested():
                self._checkpoint(training, best)
                if (self.run.stop_reason() or "").startswith(TIME_IS_UP):
                    self._evaluate_end(training)
                yield self._left(row, progress.step)
                return
            yield StepReport(progress.step, row if progress.step > watermark else None)
        if self.folder.checkpoints.steps()[-1:] != [training.step]:
            self._checkpoint(training, best)
        yield self._finished(training, best)

    def _whole_rows(self) -> list[dict[str, Any]]:
        """Up to the first row that is missing. Later rows and checkpoints go: they are computed again."""
        rows, gap, inherited = self.folder.rows(), self.folder.first_missing(), self.segment.inherited
        if gap is None:
            return rows
        if gap <= inherited:
            where = f"step {inherited}, where it took over trial {self.segment.source}"
            raise TrialError(f"{self.folder.rows_path} had no row of step {gap}, from before {where}; {BEGIN_AGAIN}")
        kept = [row for row in rows if row["step"] < gap]
        self._assert_current()
        self.folder.checkpoints.drop_from(gap)
        self.folder.cut_rows(gap)
        self._set_status("running", step=last_step(kept))
        self.notes.append(f"{self.folder.rows_path} had no row of step {gap}: computed again from before it")
        return kept

    def _training(self) -> Training:
        config = self.config()
        use_root(self.settings.data.root)
        process.prepare(config.training.threads, config.training.device, self.settings.resources.gpu)
        step, state, notes = self.folder.checkpoints.newest()
        if step < self.segment.inherited:
            state = self._taken_over_again()
        for note in notes:
            self._set_status("running", cause=note)
        self.notes += notes
        with _own_code():
            training = Training(config, state, self.settings.data.on_device)
        if training.contents:
            self._set_status("running", contents=training.contents)
        return training

    def _taken_over_again(self) -> dict[str, Any]:
        """The state that another trial had when this one took it over."""
        step, source = self.segment.inherited, self.segment.source
        other, own = self.run.trial(source).checkpoints, self.folder.checkpoints
        if not source or not other.is_sound(step):
            whose = f"neither this trial nor {source}, which it took over, has a sound checkpoint of step {step}"
            raise TrialError(f"{whose}; {BEGIN_AGAIN}")
        self._assert_current()
        own.copy_from(other, step)
        again = f"{self.folder.id} takes over trial {source} at step {step} again"
        self.notes.append(f"{again}: it had no sound checkpoint since then")
        return own.load(step)

    def _finished(self, training: Training, best: "Best") -> StepReport:
        if training.step == training.config.training.steps:
            self.folder.checkpoints.prune(1, best.step)
            return self.end("done", self.status.cause, step=training.step)
        if training.step == self.settings.stop.steps:
            self._evaluate_end(training)
            return self.end("done", f"stop.steps: {training.step}", step=training.step)
        return self.end("paused", "", step=training.step)

    def _evaluate_end(self, training: Training) -> None:
        """Scores what no evaluation of this step does: a trial that ends here is compared by its scores here."""
        known = self.folder.end()
        if known is not None and known["step"] == training.step:
            return
        end = training.scores_between()
        if end is not None:
            self.watchdog.hear()
            self._assert_current()
            self.folder.write_end(end)

    def end(
        self, outcome: Outcome, cause: str, row: dict[str, Any] | None = None, step: int | None = None
    ) -> StepReport:
        """Writes how the segment ended; a paused or interrupted trial is pending again."""
        at = self.status.step if step is None else step
        self.folder.keep_rows()
        self._set_status("pending" if outcome in ("paused", "interrupted") else outcome, step=at, cause=cause)
        return StepReport(at, row, outcome)

    def _left(self, row: dict[str, Any] | None, step: int) -> StepReport:
        """The checkpoint is written: the trial can go on later, or at once on another node."""
        report = self.end("interrupted", "", row, step)
        if self.leaving():
            raise Preempted(f"at step {step}")
        return report

    def fault(self, error: BaseException) -> StepReport:
        """An error of the trial's own code; to be called while it is being handled."""
        cause: Cause = "memory" if cuda.is_out_of_memory(error) else "error"
        return self._count(cause, _kind(error), "".join(traceback.format_exception(error, limit=-12)))

    def _hung(self, stacks: str) -> None:
        text = f"no training step was finished for {self.settings.retries.hang_after_s:g} s"
        self._count("hang", text, stacks)

    def _count(self, cause: Cause, text: str, details: str) -> StepReport:
        """Keeps what went wrong and decides whether the trial goes on."""
        text, details = without_secrets(text), without_secrets(details)
        self._assert_current()
        step, times = self.status.step, self.status.faults.get(cause, 0) + 1
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        where = f"attempt {self.status.attempts} on {self.status.node}, from step {step}"
        self.folder.add_error(f"{stamp} UTC, {where}: {WORDS[cause]}\n{text}\n{details}\n")
        faults = {**self.status.faults, cause: times}
        if not self.settings.retries.allow(cause, times):
            self._set_status("failed", cause=f"{text}\n{details}", faults=faults)
            return StepReport(step, None, "failed")
        self._set_status("pending", faults=faults)
        note = f"{self.folder.id} {WORDS[cause]} and goes on from step {step}: {next(iter(text.splitlines()), '')}"
        return StepReport(step, None, "retried", note)

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
            return is_last or step == config.training.steps
        return when == "evaluations" and (is_last or config.evaluates_at(step))

    def _note_missing_pictures(self, step: int, error: Exception) -> None:
        """In the status, which commands show, and with its traceback in a file; never in a row, which is the same
        with and without pictures."""
        cause = without_secrets(f"no pictures at step {step}: {_kind(error)}")
        self._assert_current()
        if not self.folder.pictures_failure():
            self.folder.write_pictures_failure(f"{cause}\n{without_secrets(traceback.format_exc(limit=-12))}")
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
        if now - self.polled < max(POLL_S, self.run.poll_s):
            return False
        self.polled = now
        self._assert_session()
        return self.leaving() or self.run.stop_path.exists()

    def _begin(self) -> None:
        if self.leaving():
            raise Preempted("before it began")
        attempt = self.segment.attempt or self.status.attempts + 1
        self._assert_session()
        if self.status.attempts > attempt:
            raise Superseded(f"attempt {attempt} of trial {self.folder.id} comes too late")
        if self.status.final:  # what ended it before holds no longer
            self.status = replace(self.status, cause="")
        self.status = replace(self.status, state="running", attempts=attempt)
        self.status = replace(self.status, node=socket.gethostname(), node_id=self.node_id)
        self.folder.set_status(self.status)

    def _assert_current(self) -> Status:
        """Before every write: a worker that was cut off for a while must not disturb the one that took its place."""
        self._assert_session()
        status = self.folder.status()
        if status.attempts != self.status.attempts or status.state != "running":
            raise Superseded(f"attempt {self.status.attempts} of trial {self.folder.id} was given up")
        return status

    def _assert_session(self) -> None:
        session = self.run.session()
        if not session:  # while its driver lives a run always has one
            raise OSError(errno.ENODEV, "the run is not to be seen here; is its storage mounted?", str(self.run.path))
        if session != self.segment.session:
            raise Superseded(f"{self.run.path} is being run by another driver")

    def _seconds(self) -> float:
        return self.status.seconds + time.monotonic() - self.started

    def _set_status(self, state: Any, **changes: Any) -> None:
        current = self._assert_current()
        self.status = replace(current, state=state, **{"seconds": round(self._seconds(), 3), **changes})
        self.folder.set_status(self.status)
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
