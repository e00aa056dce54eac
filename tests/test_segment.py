"""One stretch of a trial: what is on disk after it, and when it ends."""

import json
import math
import time

import pytest
import torch

from disentune import pictures
from disentune.errors import DataError
from disentune.ledger import Run, TrialFolder
from disentune.segment import Best, Segment, Superseded, plateau, work
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

        def make(until=12, settings=None, overrides=None, **changes):
            config = trial_with(**SMALL | changes)
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
@pytest.mark.slow
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
    assert steps_and_outcome(part)[0][0] == 1
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


def test_a_stop_between_evaluations_draws_nothing_more(segment, drawings):
    list(work(segment(until=10, settings=shown("evaluations", stop={"steps": 10}))))
    assert drawings == [4, 8]


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

    def fail(trained):
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

    def taken_over(trained):
        monkeypatch.setattr(Run, "session", lambda self: "another")
        if fails:
            raise DataError("and no pictures either")
        return real(trained)

    real = pictures.drawn
    monkeypatch.setattr(pictures, "drawn", taken_over)
    with pytest.raises(Superseded):
        list(work(part))
    assert not (folder.path / "pictures").exists()


def test_time_spent_on_pictures_is_the_trial_s(segment, monkeypatch):
    real = pictures.drawn
    monkeypatch.setattr(pictures, "drawn", lambda trained: (time.sleep(0.2), real(trained))[1])
    part = segment(settings=shown("evaluations"))
    list(work(part))
    folder = segment.run.trial(part.trial_id)
    assert folder.rows()[0]["clock"]["seconds"] >= 0.2
    assert folder.status().seconds >= 0.6
