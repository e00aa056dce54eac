"""One stretch of a trial: what is on disk after it, and when it ends."""

import math

import pytest

from disentune.ledger import Run
from disentune.segment import Best, Segment, plateau, work
from disentune.settings import Objective, Plateau, Settings

MIG = Objective(metric="mig", mode="max")
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

        def make(until=12, settings=None, overrides=None):
            config = trial_with(**SMALL)
            run.trial(config.id).create(config, ("all",))
            plain = (settings or Settings(objective=MIG)).model_dump()
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


def test_the_next_segment_goes_on_and_ends_done_with_its_last_and_best_checkpoints(segment):
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
    steps, outcome = steps_and_outcome(part)
    assert steps[0] <= 9, "an undamaged one would go on with step 10"
    assert outcome == "done"
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
