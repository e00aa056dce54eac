"""A segment: one stretch of a trial, from its newest checkpoint to a given step. Independent of Ray.

Rows are written before the checkpoint that follows them, so no row before a checkpoint is missing unless the file was
truncated; then the trial starts from a checkpoint before the first missing row. Rows that are computed again are bit
for bit equal and are skipped. Pictures of a step are written before its row.

Errors in the trial's own code are recorded here, and this module decides whether the trial continues. Errors of the
storage or the cluster are raised, and the driver handles them.
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
from disentune.files.earlier import use_storage
from disentune.files.storage import is_of_the_storage, place
from disentune.learn import cuda, pictures, process
from disentune.learn.training import Training
from disentune.runs.ledger import Run
from disentune.runs.rows import last_step
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.config import TrialConfig, flattened, nested
from disentune.spec.settings import Cause, Objective, Pbt, Plateau, Settings

Outcome = Literal["paused", "done", "diverged", "failed", "interrupted", "retried"]
POLL_S = 0.5
"""Seconds between checks whether the worker has been asked to stop."""
RECORD_S = 20.0
"""How long a hanging worker may take to record that it hangs; it may be the storage that hangs."""
WORDS: Mapping[Cause, str] = {
    "error": "had an error",
    "memory": "ran out of memory",
    "lost": "lost its worker",
    "node": "lost its node",
    "preempted": "left a node that is being reclaimed",
    "hang": "hung",
    "storage": "could not use the storage",
}
TIME_IS_UP = "stop.wall_time_s"
"""Prefix of the reason to stop when the sweep's time limit is reached; trials are then scored where they are."""
BEGIN_AGAIN = "resume with --retry-failed to compute its population again from the start"
OPENING_S = 4 * 3600.0
"""How long a trial may take until its first step; its data may have to be downloaded first."""


@dataclass(frozen=True)
class Segment:
    """What a worker is asked to do; plain values, so that it can be serialised."""

    run: str
    trial_id: str
    until: int
    session: str
    settings: Mapping[str, Any]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys that population based training has changed so far."""
    inherited: int = 0
    """The step at which it copied another trial's weights; it cannot start from an earlier checkpoint."""
    source: str = ""
    """The trial that it copied at that step."""
    plugin_folder: str = ""
    """The working folder of the driver; a user's own plug-ins are imported from there."""
    attempt: int = 0
    """Number of this attempt; 0: the next one."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StepReport:
    """Sent after every training step; has a `row` if there is a new one, an `outcome` when the segment ends, and a
    `note` for the user if something went wrong and the trial continues."""

    step: int
    row: dict[str, Any] | None = None
    outcome: Outcome | None = None
    note: str = ""


class Superseded(Exception):
    """Another driver has taken over the run, or another worker the trial; this worker must not write any more."""


class Preempted(Exception):
    """This node is being pre-empted; the trial is checkpointed and continues elsewhere."""


class Unclean(Exception):
    """This process cannot run another trial, but a new process can."""


class _Own(Exception):
    """Wraps an OSError of the trial's own code."""


def work(segment: Segment, node_id: str = "", leaving: Callable[[], bool] = lambda: False) -> Iterator[StepReport]:
    """Runs a segment. An error in the trial's own code is recorded with its traceback, and the trial fails once its
    retries are used up. `leaving` returns whether this node is about to be pre-empted."""
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
        raise  # the fault of the storage or the cluster; the trial may succeed elsewhere
    except OSError as error:  # the same; Ray writes errors raised here to world-readable files
        if _tells_secrets(error):
            raise _without_secrets(error) from None
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and _ends_the_process(error):
            raise
        report = worker.fault(error.__cause__ if isinstance(error, _Own) and error.__cause__ else error)
    finally:
        worker.watchdog.stop()
    yield report  # the error has been released by now, and with it the memory that its frames held


@contextmanager
def _storage_told_apart() -> Iterator[None]:
    """If a ledger file could not be read, raises the error of the storage instead of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _ends_the_process(error: SystemExit) -> bool:
    """Whether someone asked this process to end: Ray's handler of SIGTERM raises SystemExit wherever the process is. If
    the trial's own code calls `sys.exit`, that is an error like any other."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name: str = frame.f_globals.get("__name__", "")
    return name.split(".")[0] == "ray"


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
    """Distinguishes an OSError of the trial's own code from those of the storage."""
    try:
        yield
    except OSError as error:
        if is_of_the_storage(error):
            raise
        raise _Own from error


def steps_of(training: Training, until: int) -> Iterator[Any]:
    """Like `training.run`, but an OSError inside counts as the trial's own."""
    with _own_code():
        yield from training.run(until)


class Watchdog:
    """Calls `bark` in its own thread after `after_s` without a sign of life, and ends the process.

    A sign of life only costs reading the clock. If the interpreter itself is stuck, so that no thread can run, Python's
    fault handler ends the process instead and logs the stacks. A process that was stopped as a whole, by SIGSTOP or a
    scheduler that suspends jobs, does not hang: after it is continued, it has `after_s` again.
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
        """Extends the limit until the next sign of life, while the worker waits for its driver or its data."""
        self.heard = time.monotonic() + seconds

    def stop(self) -> None:
        self.stopped.set()

    def _watch(self) -> None:
        look_s, looked = self.after_s / 4, time.monotonic()
        try:
            while not self.stopped.wait(look_s):
                _end_if_stuck(2 * self.after_s)
                now = time.monotonic()
                if now - looked > 2 * look_s:  # this thread was stopped too
                    self.heard = max(self.heard, now)
                elif now - self.heard > self.after_s:
                    self._end()
                looked = now
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _end(self) -> None:
        _end_if_stuck(2 * RECORD_S)
        recording = threading.Thread(target=self.bark, args=(stacks(),), daemon=True)
        recording.start()
        recording.join(RECORD_S)
        os._exit(1)


def _end_if_stuck(seconds: float) -> None:
    """Ends the process after this time unless it is called again before."""
    with suppress(Exception):  # the handler needs a standard error
        faulthandler.dump_traceback_later(seconds, exit=True)


def stacks() -> str:
    """The stack of every thread of this process."""
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
        self.usage = process.Usage()
        self.notes: list[str] = []
        """Notes on damaged checkpoints and missing rows."""

    def config(self) -> TrialConfig:
        if not self.segment.overrides:
            return self.folder.config()
        return TrialConfig.parse(nested({**flattened(self.folder.tree()), **self.segment.overrides}))

    def reports(self) -> Iterator[StepReport]:
        self._begin()
        if self.run.stop_path.exists():  # requested while this segment waited for a slot
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
        ended = plateau(
            self.settings.stop.plateau, best
        )  # judged by rows whose writer died before it could record the end
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
        """Removes rows and checkpoints after the first missing or damaged row; they are computed again."""
        (rows, flaw), gap, inherited = self.folder.rows_and_flaw(), self.folder.first_missing(), self.segment.inherited
        if gap is None and flaw is None:
            return rows
        gap = last_step(rows) + 1 if gap is None else gap
        problem = f"{self.folder.rows_path}: {flaw}" if flaw else f"{self.folder.rows_path} had no row of step {gap}"
        if gap <= inherited:
            where = f"step {inherited}, where it copied trial {self.segment.source}"
            raise TrialError(f"{self.folder.rows_path} has no row of step {gap}, before {where}; {BEGIN_AGAIN}")
        kept = [row for row in rows if row["step"] < gap]
        self._assert_current()
        self.folder.checkpoints.drop_from(gap)
        self.folder.cut_rows(gap)
        self._set_status("running", step=last_step(kept))
        self.notes.append(f"{problem}; computing again from the checkpoint before it")
        return kept

    def _training(self) -> Training:
        config = self.config()
        use_root(self.settings.data.root)
        use_storage(self.run.path.parent.parent)
        process.prepare(config.training.threads, config.training.device, self.settings.resources.gpu)
        step, state, notes = self.folder.checkpoints.newest()
        if step < self.segment.inherited:
            state = self._taken_over_again()
        elif self.folder.checkpoints.steps()[-1:] > [step]:  # it has only weights, but would count as the newest
            self._assert_current()
            self.folder.checkpoints.drop_from(step + 1)
        for note in notes:
            self._set_status("running", cause=note)
        self.notes += notes
        with _own_code():
            training = Training(config, state, self.settings.data.on_device)
        if training.contents:
            self._set_status("running", contents=training.contents)
        return training

    def _taken_over_again(self) -> dict[str, Any]:
        """The state of another trial at the step at which this trial copied it."""
        step, source = self.segment.inherited, self.segment.source
        other, own = self.run.trial(source).checkpoints, self.folder.checkpoints
        if not source or not other.is_sound(step):
            whose = f"neither this trial nor {source}, which it copied, has an intact checkpoint of step {step}"
            raise TrialError(f"{whose}; {BEGIN_AGAIN}")
        self._assert_current()
        own.copy_from(other, step)
        again = f"{self.folder.id} copies trial {source} at step {step} again"
        self.notes.append(f"{again}: it had no intact checkpoint since then")
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
        """Computes the metrics that are not evaluated at this step, because a trial that ends here is compared by
        them."""
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
        """Records how the segment ended; a paused or interrupted trial becomes pending again."""
        at = self.status.step if step is None else step
        self.folder.keep_rows()
        self._set_status("pending" if outcome in ("paused", "interrupted") else outcome, step=at, cause=cause)
        if outcome == "done" and not self._may_train_again(cause):
            self.folder.checkpoints.slim()  # after the status, because until then the trial may have to continue
        return StepReport(at, row, outcome)

    def _may_train_again(self, cause: str) -> bool:
        """Whether this trial, or one that copies it, may need the whole state of its checkpoints later."""
        by_steps = cause.startswith("stop.steps")  # continues when the number is raised
        return by_steps or isinstance(self.settings.scheduler, Pbt) or self.settings.checkpoint.finished == "all"

    def _left(self, row: dict[str, Any] | None, step: int) -> StepReport:
        """Ends a segment after its checkpoint was written; the trial can continue later, or immediately on another
        node."""
        report = self.end("interrupted", "", row, step)
        if self.leaving():
            raise Preempted(f"at step {step}")
        return report

    def fault(self, error: BaseException) -> StepReport:
        """Records an error of the trial's own code; call it in the exception handler."""
        cause: Cause = "memory" if cuda.is_out_of_memory(error) else "error"
        return self._count(cause, _kind(error), "".join(traceback.format_exception(error, limit=-12)))

    def _hung(self, stacks: str) -> None:
        text = f"no training step finished for {self.settings.retries.hang_after_s:g} s"
        self._count("hang", text, stacks)

    def _count(self, cause: Cause, text: str, details: str) -> StepReport:
        """Records what went wrong and decides whether the trial continues."""
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
        note = f"{self.folder.id} {WORDS[cause]} and continues from step {step}: {next(iter(text.splitlines()), '')}"
        return StepReport(step, None, "retried", note)

    def _write(self, row: dict[str, Any]) -> None:
        if self.segment.overrides:
            row["overrides"] = dict(self.segment.overrides)
        row["clock"] = {"seconds": round(self._seconds(), 3)}
        if self.settings.wandb and self.settings.wandb.system:
            row["clock"] |= self.usage.taken()
        self._assert_current()
        self.folder.append_row(row)

    def _draw_pictures(self, training: Training, is_last: bool) -> None:
        """Draws pictures if they are due. A failure affects only the pictures: it is noted, and the trial continues."""
        if not self._shows(training.config, training.step, is_last):
            return
        try:
            settings = self.settings.pictures
            shown = pictures.drawn(training.trained_model(), order=settings.order, two_latents=settings.plane)
            data = pictures.to_bytes(shown)
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
        """Records a failure in the status, which commands show, and its traceback in a file; never in a row, because
        rows are the same with and without pictures."""
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
            raise Superseded(f"attempt {attempt} of trial {self.folder.id} is outdated")
        if self.status.final:  # the reason for which it ended before no longer applies
            self.status = replace(self.status, cause="")
        self.status = replace(self.status, state="running", attempts=attempt)
        self.status = replace(self.status, node=socket.gethostname(), node_id=self.node_id)
        self.folder.set_status(self.status)

    def _assert_current(self) -> Status:
        """Called before every write: a worker that was cut off for a while must not disturb its replacement."""
        self._assert_session()
        status = self.folder.status()
        if status.attempts != self.status.attempts or status.state != "running":
            raise Superseded(f"attempt {self.status.attempts} of trial {self.folder.id} was given up")
        return status

    def _assert_session(self) -> None:
        session = self.run.session()
        if not session:  # a run has a session as long as its driver lives
            raise OSError(errno.ENODEV, "the run is not visible here; is its storage mounted?", str(self.run.path))
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
    """Why a trial ends as diverged; empty while its loss is within the limit."""
    loss = row["metrics"]["loss"]
    if math.isfinite(loss) and loss <= limit:
        return ""
    return f"the loss was {loss:g} at step {row['step']} (limit {limit:g})"


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
    """Why a trial ends by the plateau rule; empty while it continues."""
    values = [value for _, value in best.values if math.isfinite(value)]
    if rule is None or len(values) <= rule.evaluations:
        return ""
    before, recent = max(values[: -rule.evaluations]), max(values[-rule.evaluations :])
    if recent > before + rule.min_delta:
        return ""
    return f"stop.plateau: no improvement in {rule.evaluations} evaluations"
