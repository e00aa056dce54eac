"""One stretch of a trial: what is on disk after it, and when it ends."""

import ctypes
import errno
import gc
import json
import math
import os
import shutil
import sys
import threading
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from disentune.errors import ConfigError, DataError
from disentune.learn import pictures, process
from disentune.learn.training import Training, can_train
from disentune.runs import segment as segment_module
from disentune.runs.checkpoints import Checkpoints
from disentune.runs.ledger import Run
from disentune.runs.segment import Best, Preempted, Segment, Superseded, Watchdog, _Worker, plateau, work
from disentune.runs.trial_folder import TrialFolder, is_final
from disentune.spec.settings import Checkpoint, Objective, Pbt, Plateau, Settings, Stop
from processes import patience_s

MIG = Objective(metric="mig", mode="max")
WHOLE = Settings(objective=MIG, checkpoint=Checkpoint(finished="all"))
"""So that a test can let a finished trial continue."""
SMALL = {
    "dataset__image_size": 8, "dataset__square_size": 2, "dataset__grid_size": 3, "model__width": 8,
    "training__steps": 12, "training__batch_size": 4, "training__log_every": 4, "evaluation__every": 4,
}  # fmt: skip


def rows(*values):
    return [{"step": 10 * (i + 1), "metrics": {"mig": value}} for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("max", (0.1, 0.3, 0.2), 20),
        ("min", (0.1, 0.3, 0.05), 30),
        ("max", (math.nan, 0.1), 20),
        ("max", (0.3, 0.3), 10),
    ],
)
def test_the_best_step_is_the_first_of_the_best_finite_values(mode, values, best):
    assert Best(Objective(metric="mig", mode=mode), rows(*values)).step == best


@pytest.mark.parametrize(
    ("values", "ends"),
    [((0.1, 0.2, 0.2, 0.2), True), ((0.1, 0.2, 0.3, 0.4), False), ((0.3, 0.2), False), ((0.3, 0.2, 0.30001), True)],
)
def test_a_plateau_is_no_improvement_for_so_many_evaluations(values, ends):
    rule = Plateau(evaluations=2, min_delta=0.001)
    assert bool(plateau(rule, Best(MIG, rows(*values)))) == ends


@pytest.fixture
def segment(tmp_path, trial_with):
    """Makes a segment of a small trial in a run that is held for the length of the test."""
    run = Run(tmp_path / "runs" / "demo" / "main")
    with run.locked() as session:

        def make(until=12, settings=None, overrides=None, **changes):
            config = trial_with(**SMALL | changes)
            run.trial(config.id).create(config, ("all",))
            plain = (settings or WHOLE).model_dump()
            return Segment(str(run.path), config.id, until, session, plain, overrides or {})

        make.run = run
        yield make


def steps_and_outcome(segment):
    reports = list(work(segment))
    return [report.step for report in reports], reports[-1].outcome


def test_a_segment_trains_to_its_step_and_pauses_with_a_checkpoint(segment):
    part = segment(until=6)
    steps, outcome = steps_and_outcome(part)
    assert steps == [1, 2, 3, 4, 5, 6, 6]
    assert outcome == "paused"
    folder = segment.run.trial(part.trial_id)
    assert folder.checkpoints.steps()[-1] == 6
    assert (folder.status().state, folder.status().step) == ("pending", 6)
    assert [row["step"] for row in folder.rows()] == [4]


@pytest.mark.parametrize("system", [True, False])
def test_rows_have_what_the_worker_used_if_wandb_asks_for_it(segment, system):
    part = segment(settings=Settings(wandb={"system": system}))
    steps_and_outcome(part)
    clocks = [row["clock"] for row in segment.run.trial(part.trial_id).rows()]
    assert [clock.keys() == {"seconds", *(process.USED if system else ())} for clock in clocks] == [True] * len(clocks)


def test_the_next_segment_continues_and_ends_done_with_its_last_and_best_checkpoints(segment):
    list(work(segment(until=6)))
    part = segment(until=12)
    steps, outcome = steps_and_outcome(part)
    assert steps[0] == 7
    assert outcome == "done"
    folder = segment.run.trial(part.trial_id)
    assert [row["step"] for row in folder.rows()] == [4, 8, 12]
    best = Best(MIG, folder.rows()).step
    assert folder.checkpoints.steps() == sorted({12, best})
    assert folder.status().attempts == 2


def test_a_finished_stretch_that_was_not_recorded_is_recorded_without_training(segment):
    part = segment()
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    before = folder.rows()
    folder.update_status(state="running", step=8)
    assert steps_and_outcome(part) == ([12], "done")
    assert folder.rows() == before


def test_a_damaged_checkpoint_costs_a_note_and_some_steps_but_no_row(segment):
    settings = Settings(objective=MIG, checkpoint={"every_steps": 3})
    list(work(segment(until=9, settings=settings)))
    part = segment(settings=settings)
    folder = segment.run.trial(part.trial_id)
    newest = folder.checkpoints.path(9)
    newest.write_bytes(newest.read_bytes()[:-7])
    reports = list(work(part))
    assert [report.note for report in reports if report.note] == [f"{newest} is damaged; using the previous checkpoint"]
    assert reports[0].step <= 9, "an undamaged one would go on with step 10"
    assert reports[-1].outcome == "done"
    assert [row["step"] for row in folder.rows()] == [4, 8, 12]
    assert "is damaged" in folder.status().cause


def test_overrides_change_the_training_and_stand_in_the_rows(segment):
    plain = segment(until=12)
    list(work(plain))
    folder = segment.run.trial(plain.trial_id)
    first = folder.rows()
    for path in (folder.rows_path, folder.path / "status.json", *folder.checkpoints.folder.iterdir()):
        path.unlink()
    list(work(segment(overrides={"framework.beta": 5.0})))
    changed = folder.rows()
    assert [row["overrides"] for row in changed] == [{"framework.beta": 5.0}] * 3
    assert [row["metrics"]["loss"] for row in changed] != [row["metrics"]["loss"] for row in first]


# ---- what goes wrong


class Trouble:
    """Makes a training fail at steps: `at[step]` is what is raised there, once."""

    def __init__(self, monkeypatch):
        self.at = {}
        real, trouble = Training._batch, self

        def batch(self):
            if (error := trouble.at.pop(self.step, None)) is not None:
                raise error
            return real(self)

        monkeypatch.setattr(Training, "_batch", batch)


@pytest.fixture
def trouble(monkeypatch):
    return Trouble(monkeypatch)


def retrying(**retries):
    return Settings(objective=MIG, checkpoint={"every_steps": 3}, retries=retries)


def undisturbed(segment, settings):
    """What a trial leaves when nothing goes wrong; its folder is then emptied."""
    part = segment(settings=settings)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    before = rows_and_weights(folder)
    shutil.rmtree(folder.path)
    return before


def rows_and_weights(folder):
    """To the bit; the files of states that were saved, loaded and saved again differ in how they name things."""
    rows, files = left_by(folder)
    return (
        rows,
        sorted(files),
        [value.tolist() for value in folder.checkpoints.load(folder.checkpoints.steps()[-1])["model"].values()],
    )


def test_an_error_within_its_retries_continues_from_the_checkpoint_to_the_same_bits(segment, trouble):
    settings = retrying(error=1)
    expected = undisturbed(segment, settings)
    part = segment(settings=settings)
    folder = segment.run.trial(part.trial_id)
    trouble.at = {8: ValueError("the first")}
    *_, last = work(part)
    assert last.outcome == "retried"
    assert last.note == f"{part.trial_id} had an error and continues from step 6: ValueError: the first"
    status = folder.status()
    assert (status.state, status.cause, status.faults) == ("pending", "", {"error": 1})
    assert steps_and_outcome(part) == ([7, 8, 9, 10, 11, 12, 12], "done")
    assert rows_and_weights(folder) == expected
    assert folder.status().faults == {"error": 1}
    log = folder.errors_path.read_text()
    assert "attempt 1 on " in log
    assert "from step 6: had an error\nValueError: the first\nTraceback" in log


def test_code_of_the_trial_that_exits_is_its_error_and_tells_no_key(segment, trouble, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-mine")
    part = segment(settings=retrying(error=0))
    trouble.at = {8: SystemExit("with a-secret-of-mine")}
    assert steps_and_outcome(part)[1] == "failed"
    assert segment.run.trial(part.trial_id).status().cause.startswith("SystemExit: with ***\nTraceback")


def test_a_worker_that_is_asked_to_end_records_no_error(segment, trouble, monkeypatch):
    """Ray's handler of SIGTERM raises SystemExit, so the innermost frame is one of Ray's."""
    handler = {"__name__": "ray._private.worker"}
    exec("def handle():\n    raise SystemExit(1)", handler)
    monkeypatch.setattr("disentune.learn.training.Training.run", lambda *arguments: handler["handle"]())
    part = segment()
    with pytest.raises(SystemExit):
        list(work(part))
    status = segment.run.trial(part.trial_id).status()
    assert (status.state, status.faults) == ("running", {})


def test_errors_beyond_the_retries_end_the_trial_and_all_of_them_are_kept(segment, trouble):
    part = segment(settings=retrying(error=1))
    folder = segment.run.trial(part.trial_id)
    for text, outcome in (("the first", "retried"), ("the second", "failed")):
        trouble.at = {8: ValueError(text)}
        assert steps_and_outcome(part)[1] == outcome
    status = folder.status()
    assert status.state == "failed"
    assert status.cause.startswith("ValueError: the second\nTraceback")
    assert "in batch" in status.cause
    assert "ValueError: the first" in folder.errors_path.read_text()


@pytest.mark.parametrize("error", [MemoryError("no more"), torch.OutOfMemoryError("CUDA out of memory")])
def test_out_of_memory_has_retries_of_its_own(segment, trouble, error):
    part = segment(settings=retrying())
    folder = segment.run.trial(part.trial_id)
    for outcome in ("retried", "failed"):
        trouble.at = {8: error}
        assert steps_and_outcome(part)[1] == outcome
    assert folder.status().faults == {"memory": 2}
    assert folder.status().cause.startswith("out of memory: ")


def test_an_error_holds_no_memory_once_it_is_reported(segment, monkeypatch):
    built = []

    class Remembered(Training):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            built.append(weakref.ref(self))

        def _batch(self):
            raise ValueError("at once")

    monkeypatch.setattr(segment_module, "Training", Remembered)
    reports = work(segment(settings=retrying()))
    assert next(reports).outcome == "failed"
    gc.collect()
    assert built[0]() is None


def test_a_missing_file_of_the_trial_s_own_code_is_its_error(segment, trouble):
    part = segment(settings=retrying())
    trouble.at = {8: FileNotFoundError(2, "No such file", "my_weights.npz")}
    assert steps_and_outcome(part)[1] == "failed"
    assert segment.run.trial(part.trial_id).status().cause.startswith("FileNotFoundError: [Errno 2] No such file")


@pytest.mark.parametrize("number", [None, errno.EMFILE, errno.EINVAL])
def test_any_error_of_the_trial_s_own_code_that_no_storage_gives_is_its_error(segment, trouble, number):
    trouble.at = {8: OSError("cannot identify image file") if number is None else OSError(number, "no")}
    assert steps_and_outcome(segment(settings=retrying()))[1] == "failed"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT])
def test_what_a_storage_says_is_never_the_trial_s_error(segment, trouble, number):
    part = segment(settings=retrying())
    trouble.at = {8: OSError(number, "no")}
    with pytest.raises(OSError, match="no"):
        list(work(part))
    assert segment.run.trial(part.trial_id).status().faults == {}


def test_a_ledger_that_cannot_be_read_from_the_start_is_the_storage_s_fault(segment, monkeypatch):
    part = segment()

    def fail(path, most=None):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("disentune.runs.json_files.read_bytes", fail)
    with pytest.raises(PermissionError):
        list(work(part))


def test_a_run_that_is_not_visible_is_the_fault_of_the_storage(segment, tmp_path):
    with pytest.raises(OSError, match="is its storage mounted"):
        list(work(replace(segment(), run=str(tmp_path / "unmounted" / "main"))))


def test_a_trial_that_a_scheduler_had_stopped_ends_as_any_other_when_it_may_continue(segment):
    part = segment(until=6)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    folder.update_status(state="stopped", cause="scheduler.asha: stopped at step 6")
    list(work(segment()))
    assert (folder.status().state, folder.status().cause) == ("done", "")
    assert is_final(folder.status(), 12, Settings())


def test_a_trial_that_took_over_another_does_not_start_from_before_that(segment):
    list(work(segment(until=6)))
    part = replace(segment(), inherited=6, source="0123456789abcdef")
    folder = segment.run.trial(part.trial_id)
    folder.checkpoints.drop_from(5)
    assert steps_and_outcome(part)[1] == "failed"
    assert folder.status().cause.startswith(
        "TrialError: neither this trial nor 0123456789abcdef, which it copied, has an intact checkpoint of step 6; "
        "resume with --retry-failed to compute its population again from the start"
    )


def test_a_trial_that_took_over_another_takes_its_checkpoint_again(segment):
    source = segment(until=6, seed=1)
    list(work(source))
    list(work(segment(until=6)))
    part = replace(segment(), inherited=6, source=source.trial_id)
    folder, other = segment.run.trial(part.trial_id), segment.run.trial(source.trial_id)
    folder.checkpoints.copy_from(other.checkpoints, 6)
    list(work(part))
    expected = rows_and_weights(folder)
    folder.cut_rows(7)
    folder.checkpoints.drop_from(5)
    folder.update_status(state="pending", step=6)
    reports = list(work(part))
    assert reports[-1].outcome == "done"
    assert rows_and_weights(folder) == expected
    assert [report.note for report in reports if report.note] == [
        f"{folder.id} copies trial {source.trial_id} at step 6 again: it had no intact checkpoint since then"
    ]


def test_rows_from_before_a_take_over_cannot_be_computed_again_by_the_trial_alone(segment):
    list(work(segment(until=9)))
    part = replace(segment(), inherited=6, source="0123456789abcdef")
    folder = segment.run.trial(part.trial_id)
    without_rows(folder, 4)
    before = folder.rows_path.read_bytes(), folder.checkpoints.steps()
    assert steps_and_outcome(part)[1] == "failed"
    assert "has no row of step 4, before step 6, where it copied trial 0123456789abcdef" in folder.status().cause
    assert (folder.rows_path.read_bytes(), folder.checkpoints.steps()) == before


def without_rows(folder, *steps):
    lines = [json.dumps(row) for row in folder.rows() if row["step"] not in steps]
    folder.rows_path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(("missing", "start"), [([8], 7), ([4], 1), ([4, 8], 1), ([], 12)])
def test_a_trial_without_a_row_below_its_checkpoint_starts_from_a_checkpoint_before_it(segment, missing, start):
    settings = Settings(checkpoint={"every_steps": 6, "keep": 2, "finished": "all"})
    expected = undisturbed(segment, settings)
    part = segment(until=11, settings=settings)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    assert folder.checkpoints.steps() == [6, 11]
    without_rows(folder, *missing)
    reports = list(work(segment(settings=settings)))
    assert next(report.step for report in reports if not report.note) == start
    assert reports[-1].outcome == "done"
    assert rows_and_weights(folder) == expected
    new = [report.row["step"] for report in reports if report.row]
    assert new == [step for step in (4, 8, 12) if step >= min([*missing, 12])]
    notes = [
        f"{folder.rows_path} had no row of step {step}; computing again from the checkpoint before it"
        for step in missing[:1]
    ]
    assert [report.note for report in reports if report.note] == notes


@pytest.mark.parametrize(("altered", "start"), [(8, 7), (4, 1)])
def test_a_trial_with_an_altered_row_starts_from_a_checkpoint_before_it(segment, altered, start):
    settings = Settings(checkpoint={"every_steps": 6, "keep": 2, "finished": "all"})
    expected = undisturbed(segment, settings)
    part = segment(until=11, settings=settings)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    lines = folder.rows_path.read_bytes().splitlines(keepends=True)
    line = next(at for at, row in enumerate(folder.rows()) if row["step"] == altered)
    lines[line] = lines[line].replace(b'"loss": ', b'"loss": 1', 1)
    folder.rows_path.write_bytes(b"".join(lines))
    reports = list(work(segment(settings=settings)))
    assert next(report.step for report in reports if not report.note) == start
    assert rows_and_weights(folder) == expected
    notes = [report.note for report in reports if report.note]
    assert len(notes) == 1
    assert notes[0].startswith(f"{folder.rows_path}: line {line + 1} ")
    assert "was altered" in notes[0]


def test_a_row_that_is_missing_among_those_after_the_newest_checkpoint_is_computed_too(segment):
    settings = Settings(checkpoint={"every_steps": 1000, "finished": "all"})
    expected = undisturbed(segment, settings)
    part = segment(settings=settings)
    reports = work(part)
    while next(reports).step < 11:
        pass
    folder = segment.run.trial(part.trial_id)
    assert folder.checkpoints.steps() == []
    without_rows(folder, 4)
    list(work(part))
    assert rows_and_weights(folder) == expected


class Death(BaseException):
    """Of the process."""


@pytest.mark.parametrize("dying", [(Checkpoints, "drop_from"), (TrialFolder, "cut_rows"), (TrialFolder, "append_row"),
                                   (Checkpoints, "save")])  # fmt: skip
def test_a_process_that_dies_while_it_fills_a_gap_leaves_one_that_is_filled_later(segment, monkeypatch, dying):
    settings = Settings(checkpoint={"every_steps": 2, "keep": 3, "finished": "all"})
    expected = undisturbed(segment, settings)
    part = segment(settings=settings)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    without_rows(folder, 8)
    owner, name = dying
    real = getattr(owner, name)

    def dies(self, *arguments):
        real(self, *arguments)
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Death):
            list(work(part))
    assert list(work(part))[-1].outcome == "done"
    assert rows_and_weights(folder)[0] == expected[0]
    assert rows_and_weights(folder)[2] == expected[2]


@pytest.mark.parametrize("dying", [(TrialFolder, "append_row"), (Checkpoints, "save"), (_Worker, "end")])
def test_a_plateau_ends_a_trial_at_the_same_row_whenever_its_process_dies(segment, monkeypatch, dying):
    settings = Settings(objective=MIG, stop={"plateau": {"evaluations": 1, "min_delta": 10}})
    part = segment(settings=settings)
    owner, name = dying
    real = getattr(owner, name)

    def dies(self, *arguments, **options):
        if name != "end":
            real(self, *arguments, **options)
        if [row["step"] for row in folder.rows()] == [4, 8]:
            raise Death

    folder = segment.run.trial(part.trial_id)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Death):
            list(work(part))
    assert steps_and_outcome(part)[1] == "done"
    assert [row["step"] for row in folder.rows()] == [4, 8]
    assert folder.status().cause == "stop.plateau: no improvement in 1 evaluations"
    assert folder.checkpoints.steps()[-1] == 8


def test_a_segment_that_waited_for_a_slot_while_all_were_asked_to_stop_trains_nothing(segment):
    part = segment()
    segment.run.stop_path.touch()
    assert steps_and_outcome(part) == ([0], "interrupted")
    assert segment.run.trial(part.trial_id).status().state == "pending"


@pytest.mark.parametrize("opened", [True, False])
def test_a_missing_file_while_data_is_opened_is_its_error_too(segment, monkeypatch, opened):
    def fail(*arguments):
        raise FileNotFoundError(2, "No such file") if opened else OSError(5, "Input/output error")

    monkeypatch.setattr(segment_module, "Training", fail)
    part = segment(settings=retrying())
    if opened:
        assert steps_and_outcome(part)[1] == "failed"
    else:
        with pytest.raises(OSError, match="Input/output"):
            list(work(part))


def test_a_disk_that_fails_under_the_trial_is_the_storage_s_fault(segment, trouble):
    part = segment(settings=retrying())
    trouble.at = {8: OSError(116, "Stale file handle")}
    with pytest.raises(OSError, match="Stale file handle"):
        list(work(part))
    assert segment.run.trial(part.trial_id).status().faults == {}


def test_a_ledger_that_cannot_be_read_is_the_storage_s_fault(segment, monkeypatch):
    part = segment(settings=retrying())

    def fail(self):
        try:
            raise PermissionError(13, "Permission denied")
        except OSError:
            raise ConfigError("rows.jsonl cannot be read") from None

    monkeypatch.setattr(TrialFolder, "rows_and_flaw", fail)
    with pytest.raises(PermissionError):
        list(work(part))


def test_a_damaged_ledger_is_not(segment):
    part = segment(settings=retrying())
    folder = segment.run.trial(part.trial_id)
    folder.rows_path.write_bytes(b"nonsense\n")
    assert steps_and_outcome(part)[1] == "failed"
    assert "is damaged" in folder.status().cause


# ---- a node that is taken away


def test_a_worker_leaves_its_node_with_a_checkpoint_and_continues_elsewhere(segment, monkeypatch):
    monkeypatch.setattr(segment_module, "POLL_S", 0.0)
    settings = Settings(objective=MIG, checkpoint={"every_steps": 1000})
    expected = undisturbed(segment, settings)
    part, notice = segment(settings=settings), []
    reports = work(part, "node-1", lambda: bool(notice))
    assert [next(reports).step for _ in range(5)] == [1, 2, 3, 4, 5]
    notice.append("soon")
    with pytest.raises(Preempted):
        next(reports)
    folder = segment.run.trial(part.trial_id)
    status = folder.status()
    assert (status.state, status.step, status.node_id, status.faults) == ("pending", 6, "node-1", {})
    steps = [report.step for report in work(part, "node-2")]
    assert steps == [7, 8, 9, 10, 11, 12, 12]
    assert rows_and_weights(folder) == expected
    assert folder.status().node_id == "node-2"


def test_nothing_begins_on_a_node_that_is_being_taken_away(segment):
    part = segment()
    with pytest.raises(Preempted):
        next(work(part, leaving=lambda: True))
    assert segment.run.trial(part.trial_id).status().attempts == 0


# ---- workers that were given up


def test_a_worker_writes_nothing_once_another_has_its_trial(segment):
    settings = Settings(objective=MIG, checkpoint={"every_steps": 1000})
    part = segment(settings=settings)
    folder = segment.run.trial(part.trial_id)
    old, new = work(replace(part, attempt=1)), work(replace(part, attempt=2))
    next(old), next(old)
    assert [next(new).step for _ in range(8)] == list(range(1, 9))
    kept = (folder.path / "status.json").read_bytes(), folder.rows_path.read_bytes()
    with pytest.raises(Superseded, match="attempt 1 of trial"):
        list(old)
    assert ((folder.path / "status.json").read_bytes(), folder.rows_path.read_bytes()) == kept
    assert [*new][-1].outcome == "done"


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_worker_writes_nothing_once_its_driver_has_given_it_up(segment, state):
    part = segment()
    folder = segment.run.trial(part.trial_id)
    reports = work(part)
    next(reports)
    folder.update_status(state=state)
    with pytest.raises(Superseded):
        list(reports)
    assert folder.rows() == []
    assert not folder.path.joinpath("pictures").exists()
    assert folder.checkpoints.steps() == []
    assert folder.status().state == state


def test_an_error_of_a_worker_that_was_given_up_is_not_recorded(segment, trouble):
    part = segment(settings=retrying())
    folder = segment.run.trial(part.trial_id)
    trouble.at = {2: ValueError("too late")}
    reports = work(part)
    next(reports)
    folder.update_status(state="pending")
    with pytest.raises(Superseded):
        list(reports)
    assert not folder.errors_path.exists()
    assert folder.status().faults == {}


def test_a_worker_that_begins_too_late_is_refused(segment):
    part = segment()
    next(work(replace(part, attempt=3)))
    with pytest.raises(Superseded, match=r"attempt 2 .* is outdated"):
        next(work(replace(part, attempt=2)))
    assert segment.run.trial(part.trial_id).status().attempts == 3


# ---- hangs


def exit_code_of(child):
    """Of a function in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(99)
    deadline = time.monotonic() + patience_s(120)
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("retries", "state"), [(1, "pending"), (0, "failed")])
def test_a_trial_that_hangs_ends_its_process_and_says_where_it_hung(segment, monkeypatch, retries, state):
    part = segment(settings=retrying(hang=retries, hang_after_s=0.5))
    monkeypatch.setattr(Training, "_batch", wait_for_ever)
    assert exit_code_of(lambda: list(work(part))) == 1
    folder = segment.run.trial(part.trial_id)
    status = folder.status()
    assert (status.state, status.faults) == (state, {"hang": 1})
    log = folder.errors_path.read_text()
    assert "no training step finished for 0.5 s" in log
    assert "in wait_for_ever" in log
    assert status.cause.startswith("no training step" if state == "failed" else "")


@pytest.mark.slow
def test_a_trial_that_hangs_while_its_data_is_opened_ends_too(segment, monkeypatch):
    part = segment(settings=retrying(hang_after_s=0.2))
    monkeypatch.setattr(segment_module, "OPENING_S", 0.3)
    monkeypatch.setattr(segment_module, "Training", wait_for_ever)
    assert exit_code_of(lambda: list(work(part))) == 1
    assert segment.run.trial(part.trial_id).status().faults == {"hang": 1}


@pytest.mark.slow
def test_opening_data_may_take_longer_than_a_step(segment, monkeypatch):
    part = segment(settings=retrying(hang_after_s=0.2))
    real = segment_module.Training
    monkeypatch.setattr(segment_module, "Training", lambda *arguments: (time.sleep(1), real(*arguments))[1])
    assert steps_and_outcome(part)[1] == "done"


def wait_for_ever(*arguments):
    threading.Event().wait()


@pytest.mark.slow
def test_a_process_ends_also_when_its_hang_cannot_be_recorded(segment, monkeypatch):
    part = segment(settings=retrying(hang_after_s=0.2))
    monkeypatch.setattr(segment_module, "RECORD_S", 0.2)
    monkeypatch.setattr(Training, "_batch", wait_for_ever)
    monkeypatch.setattr(TrialFolder, "add_error", wait_for_ever)
    assert exit_code_of(lambda: list(work(part))) == 1
    assert segment.run.trial(part.trial_id).status().faults == {}


@pytest.mark.slow
def test_a_process_ends_also_when_its_interpreter_is_stuck(segment, monkeypatch):
    """A call into a library that keeps the interpreter's lock: no thread of Python can run."""
    stuck = ctypes.PyDLL(None).pause
    part = segment(settings=retrying(hang_after_s=0.5))
    monkeypatch.setattr(Training, "_batch", lambda self: (time.sleep(0.3), stuck()))
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        assert exit_code_of(lambda: list(work(part))) == 1


@pytest.fixture
def watchdog(monkeypatch):
    """One of a tenth of a second, with what it barked and how often it would have ended the process."""
    barks, exits = [], []

    dog = Watchdog(0.1, barks.append)
    monkeypatch.setattr(segment_module.os, "_exit", lambda code: (exits.append(code), dog.stop()))
    dog.start()
    yield dog, barks, exits
    dog.stop()


def until(condition):
    deadline = time.monotonic() + patience_s(60)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_silence_is_reported_with_the_stacks_and_ends_the_process(watchdog):
    _, barks, exits = watchdog
    until(lambda: exits)
    assert exits == [1]
    assert "in until" in barks[0]


def test_a_worker_that_waits_for_its_driver_does_not_hang(watchdog):
    dog, barks, _ = watchdog
    dog.rest()
    looks = []
    real = time.monotonic
    wait = dog.stopped.wait
    dog.stopped.wait = lambda seconds: (looks.append(real()), wait(seconds))[1]
    until(lambda: len(looks) > 10)
    assert barks == []


@pytest.mark.parametrize(
    ("looks_s", "barks"), [([25] * 5, 1), ([150, 25, 25], 0), ([1e6, *[25] * 4], 0), ([1e6, *[25] * 5], 1)]
)
def test_a_process_that_was_stopped_as_a_whole_does_not_hang(monkeypatch, looks_s, barks):
    """The thread wants to look every 25 s; where it comes much later, so did the trial, which then has 100 s again."""
    now, heard = [1000.0], []
    dog, looks = Watchdog(100.0, heard.append), iter(looks_s)

    def wait(seconds):
        late_s = next(looks, None)
        now[0] += late_s or 0
        return late_s is None

    monkeypatch.setattr(segment_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(segment_module, "_end_if_stuck", lambda seconds: None)
    monkeypatch.setattr(dog, "_end", lambda: heard.append("ended"))
    monkeypatch.setattr(dog.stopped, "wait", wait)
    dog.hear()
    dog._watch()
    assert len(heard) == barks


def test_a_worker_s_watchdog_ends_with_its_segment(segment):
    list(work(segment()))
    until(lambda: not any(thread.name == "watchdog" for thread in threading.enumerate()))


def test_a_watchdog_changes_no_bit(segment):
    left = []
    for after in (1e-3 * 3600, 1e6):
        part = segment(settings=retrying(hang_after_s=after))
        folder = segment.run.trial(part.trial_id)
        list(work(part))
        left.append(left_by(folder))
        shutil.rmtree(folder.path)
    assert left[0] == left[1]


# ---- pictures


def shown(when, **settings):
    return Settings(objective=MIG, pictures={"when": when}, **settings)


def left_by(folder):
    """What a trial leaves that must not depend on pictures: rows without times, and checkpoints."""
    rows = [{key: value for key, value in row.items() if key != "clock"} for row in folder.rows()]
    files = {path.name: path.read_bytes() for path in folder.checkpoints.folder.iterdir()}
    return json.dumps(rows), files


@pytest.fixture
def drawings(monkeypatch):
    """Steps at which pictures are written, in order."""
    steps = []
    real = TrialFolder.write_pictures
    monkeypatch.setattr(
        TrialFolder, "write_pictures", lambda self, step, data: (steps.append(step), real(self, step, data))[1]
    )
    return steps


@pytest.mark.parametrize(("when", "steps"), [("evaluations", [4, 8, 12]), ("last", [12]), ("never", [])])
def test_pictures_are_drawn_when_the_settings_say(segment, drawings, when, steps):
    part = segment(settings=shown(when))
    assert steps_and_outcome(part)[1] == "done"
    folder = segment.run.trial(part.trial_id)
    assert drawings == folder.picture_steps() == steps
    for step in steps:
        assert len(pictures.from_bytes(folder.read_pictures(step)).originals) == 8
    assert (folder.path / "pictures").exists() == bool(steps)
    assert folder.status().cause == ""


def test_rows_of_losses_alone_have_no_pictures(segment, drawings):
    part = segment(settings=shown("evaluations"), training__log_every=2)
    list(work(part))
    assert [row["step"] for row in segment.run.trial(part.trial_id).rows()] == [2, 4, 6, 8, 10, 12]
    assert drawings == [4, 8, 12]


NORMED = """
from torch import nn
from disentune.models import MODELS
from disentune.plugin import AutoEncoder, Model

def build(shape, channels, params, generator):
    plain = MODELS["mlp"].build(shape, channels, params, generator)
    encoder = nn.Sequential(nn.BatchNorm2d(shape[0]), plain.encoder, nn.Dropout(0.1))
    return AutoEncoder(encoder, plain.decoder, plain.latents)

MODEL = Model(name="normed", params=MODELS["mlp"].params, build=build)
"""


@pytest.mark.parametrize(
    "changes", [{}, {"model__name": "pictured_normed:MODEL"}, {"framework__name": "ada_gvae"}], ids=str
)
def test_a_trial_is_the_same_to_the_bit_with_and_without_pictures(segment, tmp_path, monkeypatch, changes):
    (tmp_path / "pictured_normed.py").write_text(NORMED)
    monkeypatch.syspath_prepend(tmp_path)
    assert_same_whenever_drawn(segment, changes)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.long
def test_a_compiled_trial_is_the_same_to_the_bit_with_and_without_pictures(segment):
    assert_same_whenever_drawn(segment, {"training__compile": True})


def assert_same_whenever_drawn(segment, changes):
    left = []
    for when in ("never", "evaluations", "last"):
        part = segment(settings=shown(when, checkpoint={"keep": 100, "every_steps": 3}), **changes)
        folder = segment.run.trial(part.trial_id)
        torch.manual_seed(0)  # dropout draws from the global generator
        assert steps_and_outcome(part)[1] == "done"
        left.append(left_by(folder))
        for path in (folder.rows_path, folder.path / "status.json", *folder.checkpoints.folder.iterdir()):
            path.unlink()
    assert left[0] == left[1] == left[2]
    assert len(left[0][1]) >= 1
    assert folder.picture_steps() == [4, 8, 12], "and pictures were drawn"


def test_pictures_are_on_disk_before_their_row_and_come_out_equal_again(segment, monkeypatch):
    part = segment(settings=shown("evaluations"))
    folder = segment.run.trial(part.trial_id)
    with monkeypatch.context() as patch:
        patch.setattr(TrialFolder, "append_row", lambda self, row: (_ for _ in ()).throw(OSError("killed here")))
        with pytest.raises(OSError, match="killed here"):
            list(work(part))
    assert folder.rows() == []
    assert folder.picture_steps() == [4]
    before = folder.read_pictures(4)
    assert steps_and_outcome(part)[1] == "done"
    assert folder.read_pictures(4) == before
    assert folder.picture_steps() == [4, 8, 12]


def test_a_paused_trial_draws_nothing_twice(segment, drawings):
    for until in (5, 8, 12):
        list(work(segment(until=until, settings=shown("evaluations"))))
    assert drawings == [4, 8, 12]


def test_steps_that_are_trained_again_draw_nothing_again(segment, drawings):
    settings = shown("evaluations", checkpoint={"every_steps": 3})
    list(work(segment(until=9, settings=settings)))
    part = segment(settings=settings)
    for checkpoint in segment.run.trial(part.trial_id).checkpoints.folder.iterdir():
        checkpoint.write_bytes(b"damaged")
    reports = list(work(part))
    damaged = [report.note for report in reports if report.note]
    assert damaged
    assert all("is damaged; using the previous checkpoint" in note for note in damaged)
    assert next(report.step for report in reports if not report.note) == 1
    assert drawings == [4, 8, 12]


def test_interrupted_and_whole_trials_draw_the_same(segment):
    part = segment(settings=shown("evaluations"))
    folder = segment.run.trial(part.trial_id)
    list(work(part))
    whole = [folder.read_pictures(step) for step in (4, 8, 12)]
    for path in (folder.rows_path, folder.path / "status.json", *folder.checkpoints.folder.iterdir(),
                 *(folder.path / "pictures").iterdir()):  # fmt: skip
        path.unlink()
    for until in (3, 7, 12):
        list(work(segment(until=until, settings=shown("evaluations"))))
    assert [folder.read_pictures(step) for step in (4, 8, 12)] == whole
    assert len(set(whole)) == 3


@pytest.mark.parametrize("when", ["evaluations", "last"])
def test_a_diverged_row_draws_nothing(segment, drawings, when):
    settings = shown(when, stop={"divergence": 1e-9})
    part = segment(settings=settings)
    assert steps_and_outcome(part)[1] == "diverged"
    assert drawings == []


@pytest.mark.parametrize("stop", [8, 10], ids=["with a row", "between rows"])
def test_the_last_step_is_the_one_at_which_the_sweep_stops(segment, drawings, stop):
    settings = shown("last", stop={"steps": stop})
    assert steps_and_outcome(segment(until=stop, settings=settings))[1] == "done"
    assert drawings == [stop]


def test_a_stop_between_evaluations_is_drawn_as_the_evaluation_it_is(segment, drawings):
    list(work(segment(until=10, settings=shown("evaluations", stop={"steps": 10}))))
    assert drawings == [4, 8, 10]


# ---- the end of a trial is evaluated


BETWEEN = {"evaluation__metrics": ["mig", {"name": "sap", "every": 6}], "training__log_every": 5}


def mig_by_step(segment):
    """Of an undisturbed training that is evaluated after each step."""
    part = segment(**{**BETWEEN, "evaluation__every": 1, "evaluation__metrics": ["mig"]})
    list(work(part))
    return {row["step"]: row["metrics"]["mig"] for row in segment.run.trial(part.trial_id).rows()}


def without_clock(some):
    return [{key: value for key, value in row.items() if key != "clock"} for row in some]


@pytest.mark.parametrize("stop", [7, 10], ids=["between rows", "at a row of losses"])
def test_a_trial_that_stop_steps_ends_between_evaluations_is_evaluated_there(segment, stop):
    part = segment(until=stop, settings=Settings(objective=MIG, stop={"steps": stop}), **BETWEEN)
    assert steps_and_outcome(part)[1] == "done"
    folder = segment.run.trial(part.trial_id)
    assert [row["step"] for row in folder.rows() if "mig" in row["metrics"]] == [4, 8][: stop // 4]
    last = folder.rows_to_end()[-1]
    assert last["step"] == stop
    assert last["metrics"]["mig"] == mig_by_step(segment)[stop]
    assert {"mig", "sap"} <= last["scored"].keys()


@pytest.mark.slow
def test_a_trial_that_is_allowed_to_train_on_has_the_rows_of_one_that_never_stopped(segment):
    whole = segment(**BETWEEN, seed=3)
    list(work(whole))
    expected = segment.run.trial(whole.trial_id).rows()
    shutil.rmtree(segment.run.trial(whole.trial_id).path)
    for until, stop in ((7, 7), (10, 10), (12, None)):
        part = segment(until=until, settings=Settings(objective=MIG, stop={"steps": stop}), **BETWEEN, seed=3)
        list(work(part))
    folder = segment.run.trial(part.trial_id)
    assert without_clock(folder.rows()) == without_clock(expected)
    assert without_clock(folder.rows_to_end()) == without_clock(expected)


def test_every_metric_is_evaluated_where_a_plateau_ends_the_trial(segment):
    settings = Settings(objective=MIG, stop={"plateau": {"evaluations": 1, "min_delta": 10}})
    part = segment(settings=settings, **BETWEEN)
    assert steps_and_outcome(part)[0][-1] == 8
    last = segment.run.trial(part.trial_id).rows_to_end()[-1]
    assert last["step"] == 8
    assert {"mig", "sap"} <= last["scored"].keys()


@pytest.mark.parametrize(("reason", "evaluated"), [("stop.wall_time_s is over", True), ("SIGINT", False)])
def test_a_trial_is_evaluated_where_the_time_ends_it_but_not_where_a_person_does(
    segment, monkeypatch, reason, evaluated
):
    monkeypatch.setattr(segment_module, "POLL_S", 0.0)
    part = segment(**BETWEEN)
    for report in work(part):
        if report.step == 6:
            segment.run.ask_to_stop(reason)
    folder = segment.run.trial(part.trial_id)
    assert (report.step, report.outcome) == (7, "interrupted")
    assert folder.status().state == "pending"
    assert (folder.end() is not None) == evaluated
    if evaluated:
        segment.run.stop_path.unlink()
        assert folder.rows_to_end()[-1]["metrics"]["mig"] == mig_by_step(segment)[7]


def test_a_damaged_end_is_named_with_what_to_do(segment):
    folder = segment.run.trial(segment().trial_id)
    folder.write_end({"step": 3, "metrics": {"mig": 0.5}})
    path = folder.path / "end.json"
    whole = path.read_text()
    for damaged in (whole.replace("0.5", "0.7"), whole.replace("0.5", '"high"'), whole[:-5]):
        path.write_text(damaged)
        with pytest.raises(ConfigError, match=r"end\.json is damaged .*remove it"):
            folder.rows_to_end()


def test_the_last_step_is_the_one_at_which_a_plateau_ends_the_trial(segment, drawings):
    settings = shown("last", stop={"plateau": {"evaluations": 1, "min_delta": 10}})
    steps, outcome = steps_and_outcome(segment(settings=settings))
    assert (steps[-1], outcome) == (8, "done")
    assert drawings == [8]


def test_a_pause_is_not_the_last_step(segment, drawings):
    list(work(segment(until=8, settings=shown("last"))))
    assert drawings == []


def test_pictures_that_cannot_be_drawn_cost_a_note_and_no_row(segment, monkeypatch):
    plain = segment(settings=shown("never"))
    folder = segment.run.trial(plain.trial_id)
    list(work(plain))
    before = left_by(folder)
    for path in (folder.rows_path, folder.path / "status.json", *folder.checkpoints.folder.iterdir()):
        path.unlink()

    calls = []

    def fail(trained, **asked):
        calls.append(trained)
        raise DataError(f"no room for picture {len(calls)}") if len(calls) < 3 else MemoryError("none")

    monkeypatch.setattr(pictures, "drawn", fail)
    assert steps_and_outcome(segment(settings=shown("evaluations")))[1] == "done"
    assert left_by(folder) == before
    assert len(calls) == 3
    assert folder.picture_steps() == []
    first, *rest = folder.pictures_failure().splitlines()
    assert first == "no pictures at step 4: DataError: no room for picture 1"
    assert "Traceback" in rest[0]
    assert folder.status().cause == "no pictures at step 12: out of memory: MemoryError: none"


def test_a_disk_that_takes_no_pictures_is_the_storage_s_fault(segment, monkeypatch):
    def fail(self, step, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrialFolder, "write_pictures", fail)
    with pytest.raises(OSError, match="No space left"):
        list(work(segment(settings=shown("evaluations"))))


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_of_an_older_driver_writes_no_pictures(segment, monkeypatch, fails):
    part = segment(settings=shown("evaluations"))
    folder = segment.run.trial(part.trial_id)

    def taken_over(trained, **asked):
        monkeypatch.setattr(Run, "session", lambda self: "another")
        if fails:
            raise DataError("and no pictures either")
        return real(trained, **asked)

    real = pictures.drawn
    monkeypatch.setattr(pictures, "drawn", taken_over)
    with pytest.raises(Superseded):
        list(work(part))
    assert not (folder.path / "pictures").exists()


@pytest.mark.slow
def test_time_spent_on_pictures_is_the_trial_s(segment, monkeypatch):
    real = pictures.drawn
    monkeypatch.setattr(pictures, "drawn", lambda trained, **asked: (time.sleep(0.2), real(trained, **asked))[1])
    part = segment(settings=shown("evaluations"))
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    assert folder.rows()[0]["clock"]["seconds"] >= 0.2
    assert folder.status().seconds >= 0.6


# ---- what a finished trial keeps


def whole_states(folder):
    return [can_train(folder.checkpoints.load(step)) for step in folder.checkpoints.steps()]


def test_a_trial_that_never_trains_again_keeps_only_weights(segment):
    part = segment(settings=Settings(objective=MIG))
    list(work(part))
    assert not any(whole_states(segment.run.trial(part.trial_id)))


@pytest.mark.parametrize(
    "settings",
    [
        Settings(objective=MIG, stop=Stop(steps=8)),
        WHOLE,
        Settings(objective=MIG, scheduler=Pbt(name="pbt", every=4, keys=["framework.beta"])),
    ],
    ids=["stop.steps", "all", "pbt"],
)
def test_a_trial_whose_state_may_be_needed_again_keeps_it_whole(segment, settings):
    part = segment(settings.stop.steps or 12, settings)
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    assert folder.status().state == "done"
    assert all(whole_states(folder))


def test_a_trial_is_recorded_as_done_before_its_state_is_dropped(segment, monkeypatch):
    """A worker that is killed between the two leaves nothing that must be computed again."""
    part, seen = segment(settings=Settings(objective=MIG)), []
    monkeypatch.setattr(Checkpoints, "slim", lambda self: seen.append(segment.run.trial(part.trial_id).status().state))
    list(work(part))
    assert seen == ["done"]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_finished_trial_whose_rows_are_lost_comes_to_the_same_rows_again(segment, keep):
    part = segment(settings=Settings(objective=MIG, checkpoint=Checkpoint(keep=keep, every_steps=1)))
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    before = [(row["step"], row["metrics"]) for row in folder.rows()]
    folder.cut_rows(12)
    folder.update_status(state="pending")
    reports = work(part)
    while next(reports).step < 7:  # killed in the middle of the training
        pass
    assert folder.checkpoints.newest()[0] >= 6
    list(work(part))
    assert [(row["step"], row["metrics"]) for row in folder.rows()] == before
    assert folder.status().state == "done"
