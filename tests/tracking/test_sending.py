"""The real wandb client, against a server that remembers everything and fails on demand, and without any."""

import json
import math
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from disentune.files.storage import place
from disentune.learn import pictures
from disentune.results import tables
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from disentune.tracking import sending
from disentune.tracking.connection import connection
from disentune.tracking.sending import Tracker, unsent
from processes import patience_s
from run_examples import course, quick_trial
from wandb_server import KEY, WandbServer, forget_client

# a run that is left open, as a killed tracker leaves it, makes the client's own threads complain at the test's end
pytestmark = [
    pytest.mark.wandb,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning", "ignore:subprocess:ResourceWarning"
    ),
]

OWN = ("step", "clock/seconds", "clock/steps_per_second")
"""Keys that W&B gets beside the metrics."""


@pytest.fixture
def server(monkeypatch, tmp_path):
    found = WandbServer()
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setattr("disentune.tracking.connection.ANSWER_S", 2.0)
    for name, value in (("SETTLE_S", 0.05), ("INIT_S", 2.0), ("FINISH_S", 2.0)):
        monkeypatch.setattr(sending, name, value)
    yield found
    forget_client()
    found.close()


@contextmanager
def impatient():
    """Gives up soon on a server that is known to fail: runs that are opened meanwhile are closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("disentune.tracking.connection.ANSWER_S", 0.2)
        patch.setattr(sending, "FINISH_S", 0.2)
        yield


@pytest.fixture
def maker(make_run):
    made = make_run()
    made.sweep(wandb={"project": "demo", "tags": ["fast"]}, question="What decides?")
    return made


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def place_of(maker, **changes):
    sweep = maker.run.sweep()
    return connection(sweep.settings.wandb.model_copy(update=changes), sweep.name, maker.run.name)


def sent(maker, **changes):
    """Whether everything is known to have arrived after one go."""
    return Tracker(maker.run, place_of(maker, **changes), print).finish()


def steps(server, trial_id):
    return [row["_step"] for row in server.run(trial_id).rows]


def same(one, other):
    return one == other or (one == "NaN" and math.isnan(other)) or (math.isnan(other) and math.isnan(float(one)))


def assert_rows_are_the_tables(rows, frame):
    """Every history row against results.parquet's rows of the trial: every metric, nothing else of ours."""
    metrics = [key for key in frame if key not in (*tables.FIXED, *tables.config_keys(frame))]
    assert [row["step"] for row in rows] == [row["_step"] for row in rows] == list(frame["step"])
    for row, (_, expected) in zip(rows, frame.iterrows(), strict=True):
        told = {key: value for key, value in row.items() if not key.startswith("_") and key not in OWN}
        numbers = {key: value for key, value in told.items() if not isinstance(value, dict)}
        assert set(numbers) == {key for key in metrics if key in numbers or not math.isnan(expected[key])}
        assert all(same(numbers[key], expected[key]) for key in numbers)


def wait_for(condition, timeout_s=20):
    deadline = time.monotonic() + patience_s(timeout_s)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def trial_rows(maker, trial_id):
    frame = tables.read(maker.run).rows
    return frame[frame["trial_id"] == trial_id]


def grow(maker, trial_id, rows, state="done"):
    folder = maker.run.trial(trial_id)
    for row in rows:
        metrics = {key: value for key, value in row.items() if key != "step"}
        folder.append_row({"step": row["step"], "metrics": metrics, "clock": {"seconds": row["step"] / 100}})
    folder.update_status(state=state, step=rows[-1]["step"] if rows else 0)


# ---- online


def test_every_row_arrives_once_and_equals_the_table(server, maker, rng):
    rows = course(0.5, rng)
    rows[1]["mig"] = float("nan")
    trial_id = quick_trial(maker, rows, arm="plain", seed=3)
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))
    assert [row["clock/steps_per_second"] for row in server.run(trial_id).rows] == [100, 100, 100]


def test_a_run_is_named_grouped_and_described(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng), arm="plain", framework__beta=0.25, seed=3)
    assert sent(maker)
    run = server.run(trial_id, "demo")
    about = {key: run.about[key] for key in ("groupName", "jobType", "tags", "notes")}
    assert about == {"groupName": "demo/main", "jobType": "plain", "tags": ["fast"], "notes": "What decides?"}
    config = {key: entry["value"] for key, entry in run.config.items()}
    assert (config["framework.beta"], config["seed"], config["dataset.name"]) == (0.25, 3, "xysquares")
    assert config["framework"]["beta"] == 0.25
    assert run.exitcode == 0


def test_running_maxima_stay_in_the_summary(server, maker, rng):
    rows = course(0.5, rng)
    rows[1]["mig"] = 0.9
    trial_id = quick_trial(maker, rows)
    assert sent(maker)
    summary = server.run(trial_id).summary
    assert summary["mig_max"] == 0.9
    assert summary["mig"] == rows[-1]["mig"]
    assert summary["state"] == "done"


def test_what_has_arrived_is_not_asked_about_again(server, maker, rng):
    quick_trial(maker, course(0.5, rng))
    assert sent(maker)
    before = server.calls.copy()
    assert sent(maker)
    assert server.calls == before


def test_a_resumed_trial_continues_its_own_run(server, maker, rng):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:2], status="pending")
    assert sent(maker)
    assert steps(server, trial_id) == [500, 1000]
    assert server.run(trial_id).preempting
    grow(maker, trial_id, rows[2:])
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))
    assert len(server.runs) == 1
    assert server.run(trial_id).exitcode == 0


@pytest.mark.parametrize("at", [1000, 1100], ids=["at its last row", "after its last row"])
def test_the_scores_of_a_trials_end_arrive_once_and_the_trial_can_train_on(server, maker, rng, at):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:2], status="pending")
    maker.run.trial(trial_id).write_end({"step": at, "metrics": {"mig": 0.25, "irs": 0.5}})
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))
    assert (server.run(trial_id).rows[-1]["_step"], server.run(trial_id).summary["irs"]) == (at, 0.5)
    grow(maker, trial_id, rows[2:])
    assert sent(maker)
    assert steps(server, trial_id) == sorted({500, 1000, at, 1500})


def test_rows_of_neighbouring_steps_leave_no_gap_either(server, maker):
    rows = [{"step": step, "loss": 1.0, "loss_sum": 2.0, "mig": step / 10} for step in range(1, 7)]
    trial_id = quick_trial(maker, rows[:3], status="pending")
    assert sent(maker)
    grow(maker, trial_id, rows[3:])
    assert sent(maker)
    assert steps(server, trial_id) == [1, 2, 3, 4, 5, 6]


def test_a_tracker_that_was_killed_leaves_no_gap_and_no_repeat(server, maker, rng):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:2], status="running")
    script = """if True:
        import os, sys
        from pathlib import Path
        from disentune.tracking import sending
        from disentune.tracking.connection import connection
        run = sending.Run(Path(sys.argv[1]))
        place = connection(run.sweep().settings.wandb, "demo", run.name)
        sending.Tracker(run, place).bring_up_to_date(sys.argv[2])
        os.kill(os.getpid(), 9)
    """
    killed = subprocess.run([sys.executable, "-c", script, str(maker.run.path), trial_id], timeout=patience_s(60))
    assert killed.returncode == -9
    assert (None, trial_id) not in server.runs
    grow(maker, trial_id, rows[2:])
    assert sent(maker)
    assert steps(server, trial_id) == [500, 1000, 1500]


def test_rows_are_seen_while_a_trial_runs(server, maker, rng):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:1], status="running")
    seen = []

    def hints():
        yield [trial_id]
        seen.append(len(tracker.open))
        grow(maker, trial_id, rows[1:2], "running")
        yield [trial_id]
        grow(maker, trial_id, rows[2:])
        yield [trial_id]

    tracker = Tracker(maker.run, place_of(maker))
    tracker.follow(hints())
    assert seen == [1]
    assert steps(server, trial_id) == [500, 1000, 1500]
    assert unsent(maker.run, place_of(maker)) == []


def test_failed_and_diverged_trials_say_so(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng)[:1], status="failed", cause="RuntimeError: boom\n Traceback")
    assert sent(maker)
    run = server.run(trial_id)
    assert (run.exitcode, run.summary["state"], run.summary["cause"]) == (1, "failed", "RuntimeError: boom")


def test_a_trial_that_a_scheduler_stopped_says_so_and_has_not_failed(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng)[:1], status="stopped", cause="scheduler.asha: stopped at step 500")
    assert sent(maker)
    assert (server.run(trial_id).exitcode, server.run(trial_id).summary["state"]) == (0, "stopped")


def test_a_trial_without_rows_has_its_run(server, maker):
    trial_id = quick_trial(maker, [], status="failed", cause="no memory")
    assert sent(maker)
    assert server.run(trial_id).rows == []


def test_values_that_a_population_changed_are_sent(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng)[:1])
    folder = maker.run.trial(trial_id)
    folder.append_row({"step": 900, "metrics": {"loss": 1.0, "loss_sum": 2.0}, "overrides": {"framework.beta": 0.5}})
    assert sent(maker)
    assert server.run(trial_id).rows[-1]["now/framework.beta"] == 0.5


def test_more_runs_than_may_be_open_take_turns(server, maker, rng, monkeypatch):
    monkeypatch.setattr(sending, "MOST_OPEN", 2)
    rows = {seed: course(0.5, rng) for seed in range(4)}
    ids = [quick_trial(maker, rows[seed][:1], status="running", seed=seed) for seed in rows]
    tracker = Tracker(maker.run, place_of(maker))
    for part in (slice(0, 0), slice(1, 2), slice(2, 3)):
        for seed, trial_id in enumerate(ids):
            if rows[seed][part]:
                grow(maker, trial_id, rows[seed][part], "running")
            tracker.bring_up_to_date(trial_id)
            assert len(tracker.open) <= 2
    assert tracker.finish()
    assert all(steps(server, trial_id) == [500, 1000, 1500] for trial_id in ids)


# ---- pictures, tables, checkpoints


@pytest.fixture
def seen():
    """Pictures of a model that sees well."""
    images = np.zeros((2, 8, 8, 1), np.uint8)
    return pictures.Pictures(
        originals=images, reconstructions=images, traversals=images[None], latents=np.array([3]),
        kl=np.array([1.5], np.float32), spans=np.array([[-2, 2]], np.float32),
        distances={"x": np.zeros((5, 4, 4), np.float32)},
    )  # fmt: skip


def add_evaluation(maker, trial_id, step, seen):
    folder = maker.run.trial(trial_id)
    folder.write_pictures(step, pictures.to_bytes(seen))
    metrics = {"loss": 1.0, "loss_sum": 2.0, "mig": 0.3}
    folder.append_row({"step": step, "metrics": metrics, "scored": {"mig": {"size": "full"}}})
    folder.update_status(step=step)


def test_evaluations_bring_pictures_and_a_table_of_scores(server, maker, rng, seen):
    trial_id = quick_trial(maker, [])
    add_evaluation(maker, trial_id, 300, seen)
    assert sent(maker)
    (row,) = server.run(trial_id).rows
    images = {key for key, value in row.items() if isinstance(value, dict) and value["_type"] == "image-file"}
    assert images == {"evaluation/reconstructions", "evaluation/traversals", "evaluation/distances"}
    assert row["evaluation/scores"]["_type"] == "table-file"
    uploaded = " ".join(server.uploads)
    for key in (*images, "evaluation/scores"):
        assert row[key]["path"] in uploaded
    table = next(data for path, data in server.uploads.items() if row["evaluation/scores"]["path"] in path)
    assert json.loads(table)["data"] == [["mig", 0.3]]


def test_an_evaluation_brings_its_traversals_as_an_animation(server, maker, seen):
    trial_id = quick_trial(maker, [])
    add_evaluation(maker, trial_id, 300, seen)
    assert sent(maker)
    (row,) = server.run(trial_id).rows
    assert row["evaluation/animation"]["_type"] == "video-file"
    file = next(data for path, data in server.uploads.items() if row["evaluation/animation"]["path"] in path)
    assert file.startswith(b"GIF89a")


def test_what_a_worker_used_is_sent_beside_the_clock():
    clock = {"seconds": 2.0, "cpu_percent": 99.0, "memory_mb": 500.0, "gpu_memory_mb": 0.0}
    told = sending.Telling().told({"step": 4, "metrics": {"loss": 1.0}, "clock": clock})
    assert {key: value for key, value in told.items() if key.startswith("system/")} == {
        "system/cpu_percent": 99.0, "system/memory_mb": 500.0, "system/gpu_memory_mb": 0.0,
    }  # fmt: skip
    plain = sending.Telling().told({"step": 4, "metrics": {"loss": 1.0}, "clock": {"seconds": 2.0}})
    assert not [key for key in plain if key.startswith("system/")]


def test_a_run_that_an_older_version_began_is_continued_as_the_same_run(server, maker, rng, monkeypatch):
    """An older version knew no animations and no statistics of the worker; both name the run by the trial."""
    trial_id = quick_trial(maker, course(0.5, rng)[:2], status="running")
    with monkeypatch.context() as older:
        older.setattr(sending, "_images", lambda folder, step: {})
        older.setattr(sending, "_system", lambda row: {})
        Tracker(maker.run, place_of(maker)).bring_up_to_date(trial_id, close=True)
    began = dict(server.run(trial_id).about)
    grow(maker, trial_id, course(0.5, rng)[2:])
    assert sent(maker)
    assert list(server.runs) == [("demo", trial_id)]
    assert {key: server.run(trial_id).about[key] for key in began} == began
    expected = [row["step"] for row in maker.run.trial(trial_id).rows()]
    assert steps(server, trial_id) == expected
    assert len(expected) > 2


def test_pictures_that_did_not_arrive_are_sent_with_the_next_try(server, maker, seen, monkeypatch):
    """Rows go another way than files, and usually sooner."""
    with impatient():
        settings = sending._settings(server.url)
    settings.x_file_stream_transmit_interval = 1.0  # whole seconds; the client would wait for 15
    monkeypatch.setattr(sending, "_settings", lambda url: settings)
    trial_id = quick_trial(maker, [], status="running")
    add_evaluation(maker, trial_id, 300, seen)
    tracker = Tracker(maker.run, place_of(maker))
    with server.failing(500, only="/upload/"):
        tracker.bring_up_to_date(trial_id)
        wait_for(lambda: server.run(trial_id).rows)
        grow(maker, trial_id, [])
        assert tracker.bring_up_to_date(trial_id) is not None
    settings.finish_timeout = sending.FINISH_S
    assert steps(server, trial_id) == [300]
    assert server.run(trial_id).rows[0]["evaluation/traversals"]["path"] not in " ".join(server.uploads)
    assert tracker.finish()
    assert server.run(trial_id).rows[0]["evaluation/traversals"]["path"] in " ".join(server.uploads)
    assert steps(server, trial_id) == [300]


def test_a_damaged_picture_costs_no_row(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng))
    maker.run.trial(trial_id).write_pictures(1000, b"no pictures")
    assert sent(maker)
    assert steps(server, trial_id) == [500, 1000, 1500]


def test_the_best_trials_checkpoint_is_an_artifact_when_asked_for(server, maker, rng):
    best = quick_trial(maker, course(0.9, rng), seed=1)
    quick_trial(maker, course(0.1, rng), seed=2)
    maker.run.trial(best).checkpoints.save(1500, {"step": 1500})
    assert sent(maker)
    assert server.artifacts == {}
    assert sent(maker, best_checkpoint=True)
    (artifact,) = server.artifacts.values()
    assert artifact["state"] == "COMMITTED"
    metadata = json.loads(artifact["given"]["metadata"])
    assert (metadata["trial"], metadata["step"]) == (best, 1500)
    assert any("step-0000001500.ckpt" in path for path in server.uploads)
    calls = server.calls.copy()
    assert sent(maker, best_checkpoint=True)
    assert server.calls == calls


# ---- a server that is away, slow or refuses


@pytest.mark.parametrize("mode", [500, 429, "drop", "stall"])
def test_a_server_that_is_away_loses_nothing(server, maker, rng, mode):
    trial_id = quick_trial(maker, course(0.5, rng))
    with impatient(), server.failing(mode):
        tracker = Tracker(maker.run, place_of(maker))
        assert not tracker.finish()
    assert tracker.trouble
    assert unsent(maker.run, place_of(maker)) == [trial_id]
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))


@pytest.mark.parametrize("mode", [500, 429, "drop", "stall", 403, 404])
def test_a_server_that_goes_away_in_the_middle_gets_the_rest_once(server, maker, rng, mode):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:1], status="running")
    tracker = Tracker(maker.run, place_of(maker))
    with impatient():
        tracker.bring_up_to_date(trial_id)
        with server.failing(mode):
            grow(maker, trial_id, rows[1:])
            tracker.bring_up_to_date(trial_id)
            assert unsent(maker.run, place_of(maker)) == [trial_id]
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))


def test_rows_that_a_server_refuses_in_silence_do_not_count_as_sent(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng))
    with server.failing(403, only="file_stream"):
        tracker = Tracker(maker.run, place_of(maker))
        assert not tracker.finish()
    assert "has not stored them" in tracker.trouble
    assert unsent(maker.run, place_of(maker)) == [trial_id]
    assert sent(maker)
    assert steps(server, trial_id) == [500, 1000, 1500]


def test_a_server_that_is_away_is_not_asked_for_every_trial(server, maker, rng):
    for seed in range(5):
        quick_trial(maker, course(0.5, rng), seed=seed)
    notes = []
    with server.failing(500):
        assert not Tracker(maker.run, place_of(maker), notes.append).finish()
    assert len(notes) == sending.MOST_FAILURES


def test_waits_grow_while_a_server_stays_away(server, maker, rng, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(sending.time, "monotonic", lambda: now[0])
    trial_id = quick_trial(maker, [], status="running")
    tracker = Tracker(maker.run, place_of(maker))
    with server.failing(403):
        waits = [tracker.bring_up_to_date(trial_id) - now[0] for _ in range(7)]
    assert waits == [15, 30, 60, 120, 240, 480, 600]
    tracker.bring_up_to_date(trial_id)
    assert tracker.patience == 15


@pytest.mark.parametrize("damage", ["row", "status", "config"])
def test_a_trial_that_cannot_be_read_does_not_keep_the_others(server, maker, rng, damage):
    bad, good = sorted(quick_trial(maker, course(0.5, rng), seed=seed) for seed in (1, 2))
    path = maker.run.trial(bad).path
    if damage == "row":
        (path / "rows.jsonl").write_text("no row\n" + (path / "rows.jsonl").read_text())
    elif damage == "status":
        (path / "status.json").write_text(json.dumps({"state": "done", "cause": None}))
    else:
        (path / "config.json").write_text(json.dumps({"arms": ["all"], "config": {"seed": 1}}))
    tracker = Tracker(maker.run, place_of(maker))
    assert not tracker.finish()
    assert bad in tracker.trouble
    assert unsent(maker.run, place_of(maker)) == [bad]
    assert steps(server, good) == [500, 1000, 1500]


def test_a_row_that_could_not_be_sent_leaves_no_gap(server, maker, rng, monkeypatch):
    """The disk of the client may be full for a moment."""
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:1], status="running")
    tracker = Tracker(maker.run, place_of(maker))
    tracker.bring_up_to_date(trial_id)

    images, full = sending._images, [True]

    def full_once(folder, step):
        if full.pop() if full else False:
            raise OSError(28, "No space left on device")
        return images(folder, step)

    monkeypatch.setattr(sending, "_images", full_once)
    grow(maker, trial_id, rows[1:2], "running")
    assert tracker.bring_up_to_date(trial_id) is not None
    grow(maker, trial_id, rows[2:])
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))


def test_a_client_whose_background_process_died_continues(server, maker, rng):
    rows = {seed: course(0.5, rng) for seed in range(2)}
    ids = [quick_trial(maker, rows[seed][:1], status="running", seed=seed) for seed in rows]
    tracker = Tracker(maker.run, place_of(maker))
    for trial_id in ids:
        tracker.bring_up_to_date(trial_id)
    cores = [one for one in psutil.Process().children(recursive=True) if "wandb-core" in " ".join(one.cmdline())]
    assert cores
    for core in cores:
        core.kill()
    psutil.wait_procs(cores, timeout=patience_s(10))
    for seed, trial_id in enumerate(ids):
        grow(maker, trial_id, rows[seed][1:])
        tracker.bring_up_to_date(trial_id)
    assert tracker.finish()
    assert all(steps(server, trial_id) == [500, 1000, 1500] for trial_id in ids)


def test_trials_that_the_server_rejects_do_not_keep_the_others(server, maker, rng):
    """As of runs that were deleted there."""
    ids = sorted(quick_trial(maker, course(0.5, rng), seed=seed) for seed in range(4))
    server.rejected |= set(ids[:2])
    tracker = Tracker(maker.run, place_of(maker))
    assert not tracker.finish()
    assert unsent(maker.run, place_of(maker)) == ids[:2]
    assert [steps(server, trial_id) for trial_id in ids[2:]] == [[500, 1000, 1500]] * 2


def test_pictures_that_a_killed_tracker_left_behind_are_sent(server, maker, seen, monkeypatch):
    trial_id = quick_trial(maker, [])
    add_evaluation(maker, trial_id, 300, seen)
    left = maker.run.trial(trial_id).wandb_folder / "run-20260101_000000-x" / "files" / "media" / "images"
    left.mkdir(parents=True)
    (left / "left.png").write_bytes(b"a picture")
    assert sent(maker)
    assert b"a picture" in server.uploads.values()
    assert not maker.run.trial(trial_id).wandb_folder.exists()


def test_the_best_checkpoint_is_of_a_valid_trial_and_nearest_to_its_score(maker, rng):
    rows = course(0.9, rng)
    rows[1]["mig"], rows[2]["mig"] = 0.95, 0.5
    good = quick_trial(maker, rows, seed=1)
    quick_trial(maker, course(1.0, rng), status="failed", seed=2)
    for step in (500, 1000, 1500):
        maker.run.trial(good).checkpoints.save(step, {"step": step})
    maker.sweep(objective={"metric": "mig", "mode": "max", "at": "best"})
    folder, step, about = sending._best_checkpoint(maker.run)
    assert (folder.id, step, about["mig"]) == (good, 1000, 0.95)
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    assert sending._best_checkpoint(maker.run)[1:] == (1500, {"trial": good, "step": 1500, "mig": 0.5})
    quick_trial(maker, course(0.1, rng), status="pending", seed=3)
    assert sending._best_checkpoint(maker.run) is None


def test_offline_the_best_checkpoint_is_in_the_offline_run(server, maker, rng):
    best = quick_trial(maker, course(0.9, rng))
    maker.run.trial(best).checkpoints.save(1500, {"step": 1500})
    assert sent(maker, mode="offline", best_checkpoint=True)
    assert offline_run(maker, best).is_dir()
    assert maker.run.trial(best).arrived()["offline artifact"] == 1500


def test_an_artifact_that_was_refused_is_sent_again(server, maker, rng):
    best = quick_trial(maker, course(0.9, rng))
    maker.run.trial(best).checkpoints.save(1500, {"step": 1500})
    with server.failing(403, only="/upload/artifact"):
        Tracker(maker.run, place_of(maker, best_checkpoint=True)).finish()
    assert [one["state"] for one in server.artifacts.values()] == ["PENDING"]
    assert sent(maker, best_checkpoint=True)
    assert [one["state"] for one in server.artifacts.values()] == ["COMMITTED"]


def test_the_key_is_used_and_is_in_no_file(server, maker, rng):
    for seed, state in enumerate(("done", "running", "failed")):
        quick_trial(maker, course(0.5, rng), status=state, seed=seed)
    with impatient(), server.failing(500, only="file_stream"):
        Tracker(maker.run, place_of(maker)).finish()
    assert any(seen.endswith(KEY) or "Basic" in seen for seen in server.keys_seen)
    files = [path for path in maker.run.path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


# ---- offline


def read_back(server, folder: Path):
    """What wandb's own reader makes of an offline run: its `sync` command, to our server."""
    command = [sys.executable, "-m", "wandb", "sync", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s(60), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(server.runs) == 1
    return next(iter(server.runs.values())).rows


def offline_run(maker, trial_id) -> Path:
    (file,) = maker.run.trial(trial_id).wandb_folder.glob("offline-run-*/*.wandb")
    return file.parent


def test_the_offline_file_has_every_row_of_the_table(server, maker, rng):
    rows = course(0.5, rng)
    rows[1]["mig"] = float("nan")
    rows[2]["loss"] = 1e-320
    trial_id = quick_trial(maker, rows, seed=1)
    assert sent(maker, mode="offline")
    assert server.runs == {}
    rows = read_back(server, offline_run(maker, trial_id))
    assert_rows_are_the_tables(rows, trial_rows(maker, trial_id))


def test_a_resumed_trial_has_one_complete_offline_file(server, maker, rng):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:2], status="pending")
    assert sent(maker, mode="offline")
    grow(maker, trial_id, rows[2:])
    assert sent(maker, mode="offline")
    assert server.runs == {}
    rows = read_back(server, offline_run(maker, trial_id))
    assert_rows_are_the_tables(rows, trial_rows(maker, trial_id))


def test_what_a_user_synced_by_hand_is_not_sent_again(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng))
    assert sent(maker, mode="offline")
    read_back(server, offline_run(maker, trial_id))
    assert sent(maker)
    assert steps(server, trial_id) == [500, 1000, 1500]


def test_an_offline_run_can_be_sent_later_once(server, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng))
    assert sent(maker, mode="offline")
    assert server.runs == {}
    assert sent(maker)
    assert sent(maker)
    assert_rows_are_the_tables(server.run(trial_id).rows, trial_rows(maker, trial_id))


# ---- reading along


def test_status_is_read_before_rows(maker, rng, server):
    """A trial that ends in between is closed at the next look, with all its rows."""
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:1], status="running")
    tracker = Tracker(maker.run, place_of(maker))
    stream = tracker._stream(maker.run.trial(trial_id))
    tell = stream.tell

    def tell_late():
        grow(maker, trial_id, rows[1:])
        tell()

    stream.tell = tell_late
    assert tracker.bring_up_to_date(trial_id) is None
    assert trial_id in tracker.open
    assert maker.run.trial(trial_id).status() != Status()
    assert tracker.finish()
    assert steps(server, trial_id) == [500, 1000, 1500]


# ---- in an object store


def uploaded(maker) -> Run:
    """The run, there."""
    run = Run(place("s3://bucket/runs/demo/main"))
    for path in maker.run.path.rglob("*"):
        if path.is_file():
            (run.path / str(path.relative_to(maker.run.path))).write_bytes(path.read_bytes())
    return run


def test_a_run_in_a_store_is_sent_and_has_none_of_the_clients_files(server, object_store, maker, rng):
    trial_id = quick_trial(maker, course(0.5, rng))
    run = uploaded(maker)
    with run.tracked(patience_s=0):
        assert Tracker(run, place_of(maker)).finish()
    assert steps(server, trial_id) == [500, 1000, 1500]
    assert unsent(run, place_of(maker)) == []
    assert not any(".wandb" in name or "/wandb/" in name for name in object_store.names)
    assert not run.trial(trial_id).wandb_folder.exists()


def test_offline_files_of_a_run_in_a_store_are_kept_there_whole(server, object_store, maker, rng):
    rows = course(0.5, rng)
    trial_id = quick_trial(maker, rows[:2], status="pending")
    run = uploaded(maker)
    assert Tracker(run, place_of(maker, mode="offline")).finish()
    for row in rows[2:]:
        run.trial(trial_id).append_row({"step": row["step"], "metrics": {"loss": 1.0}})
    assert Tracker(run, place_of(maker, mode="offline")).finish()
    (name,) = (name for name in object_store.names if name.endswith(".wandb"))
    (file,) = run.trial(trial_id).wandb_folder.glob("offline-run-*/*.wandb")
    assert name.startswith(f"runs/demo/main/trials/{trial_id}/wandb/offline-run-")
    assert object_store[name] == file.read_bytes()
