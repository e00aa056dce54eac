"""A run is seen as it is, from its folder alone, whatever happens to the files while one looks."""

import json
import math
import os
import shutil
import time
from dataclasses import asdict, replace

import pytest

from conftest import TRIAL
from disentune.files import documents
from disentune.results import watch
from disentune.results.watch import Mark, Watcher, as_json, looks, trouble_path
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.settings import Objective
from run_examples import quick_trial

BETAS = [0.001, 0.01, 0.1, 1.0]
MIG = {"metric": "mig", "mode": "max"}


@pytest.fixture
def maker(make_run):
    """A run of four betas and two seeds that has not begun."""
    maker = make_run()
    sweep(maker, objective=MIG)
    return maker


def sweep(maker, betas=None, seeds=2, steps=1500, **settings):
    domain = betas or {"grid": BETAS}
    trial = {key: value for key, value in TRIAL.items() if key not in ("seed", "framework.beta")}
    content = {"trial": trial | {"training.steps": steps}, "arms": {"all": {"framework.beta": domain}}, "seeds": seeds}
    with open(maker.run.sweep_path, "w") as file:
        documents.dump(content | settings, file)


def add(maker, beta=0.001, seed=0, status="done", rows=(), cause="", seconds=None, **changes):
    """A trial whose rows are {step: mig}; a row took a second for ten steps."""
    made = [{"step": step, "loss": 1.0, "mig": mig} for step, mig in rows] if isinstance(rows, tuple | list) else []
    id = quick_trial(maker, made, status=status, cause=cause, framework__beta=beta, seed=seed, **changes)
    folder = maker.run.trial(id)
    if made:
        clocked = [{"step": row["step"], "metrics": {key: row[key] for key in ("loss", "mig")},
                    "clock": {"seconds": row["step"] / 10}} for row in made]  # fmt: skip
        folder.rows_path.write_text("".join(json.dumps(row) + "\n" for row in clocked))
    state = replace(folder.status(), seconds=(made[-1]["step"] / 10 if made else 0.0) if seconds is None else seconds)
    (folder.path / "status.json").write_text(json.dumps(asdict(state)))
    return folder


def touched(folder, ago):
    """As if its status had been written so many seconds ago."""
    when = time.time() - ago
    os.utime(folder.path / "status.json", (when, when))


def everything(path):
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()}


# ---- states


def test_trials_that_have_not_begun_are_pending(maker):
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    add(maker, 0.001, 1, "failed")
    add(maker, 0.01, 0, "diverged")
    picture = Watcher(maker.run).look()
    assert picture.expected == 8
    assert picture.states == {"done": 1, "pending": 5, "diverged": 1, "failed": 1}
    assert picture.ended == 3
    assert not picture.finished


def test_a_trial_is_running_only_while_a_driver_is(maker):
    add(maker, status="running", rows=[(300, 0.2)])
    watcher = Watcher(maker.run)
    assert [trial.state for trial in watcher.look().trials] == ["pending"]
    with maker.run.locked():
        picture = watcher.look()
        assert picture.live
        assert [trial.state for trial in picture.trials] == ["running"]
        assert picture.session_s == pytest.approx(0, abs=30)
    assert [trial.state for trial in watcher.look().trials] == ["pending"]


def test_an_empty_run_is_seen_before_its_first_trial(maker):
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert (picture.live, picture.trials, picture.expected, picture.best, picture.left_s) == (True, (), 8, None, None)
    assert not Watcher(maker.run).look().finished


def test_a_driver_that_asks_its_workers_to_end_is_stopping(maker):
    with maker.run.locked():
        maker.run.stop_path.touch()
        assert Watcher(maker.run).look().stopping


def test_a_trial_that_may_now_train_longer_is_pending(maker):
    sweep(maker, stop={"steps": 600})
    add(maker, rows=[(300, 0.1)], cause="stop.steps: 300")
    add(maker, seed=1, rows=[(600, 0.1)], cause="stop.steps: 600")
    trials = {trial.seed: trial for trial in Watcher(maker.run).look().trials}
    assert {seed: trial.state for seed, trial in trials.items()} == {0: "pending", 1: "done"}
    assert trials[0].steps == 600


def test_a_run_is_finished_when_all_that_the_sweep_asks_for_has_ended_and_no_driver_is_left(maker):
    sweep(maker, {"grid": BETAS[:1]})
    add(maker, seed=0)
    watcher = Watcher(maker.run)
    assert not watcher.look().finished
    add(maker, seed=1, status="failed")
    with maker.run.locked():
        assert not watcher.look().finished
    assert watcher.look().finished


def test_a_sweep_that_grows_while_one_looks_asks_for_more(maker):
    watcher = Watcher(maker.run)
    assert watcher.look().expected == 8
    sweep(maker, seeds=3)
    assert watcher.look().expected == 12


def test_a_model_based_search_asks_for_at_most_its_points_for_each_seed_and_arm(maker):
    search = {"name": "optuna", "points": 5}
    sweep(maker, {"log_uniform": [1e-4, 1.0]}, search=search, objective=MIG)
    add(maker, 0.5)
    picture = Watcher(maker.run).look()
    assert (picture.expected, picture.at_most) == (10, True)
    assert picture.states == {"done": 1, "pending": 9}
    assert picture.finished


def test_running_trials_show_the_step_of_their_newest_row_and_their_time_advances(maker):
    folder = add(maker, status="running", rows=[(300, 0.2), (600, 0.3)], seconds=20.0)
    (folder.path / "status.json").write_text(json.dumps(asdict(Status("running", 500, seconds=20.0))))
    touched(folder, 100)
    with maker.run.locked():
        (trial,) = Watcher(maker.run).look().running
    assert (trial.step, trial.steps) == (600, 1500)
    assert trial.seconds == pytest.approx(120, abs=20)
    (waiting,) = Watcher(maker.run).look().trials
    assert (waiting.step, waiting.seconds) == (500, 20.0)


def test_statuses_of_running_trials_agree_with_the_picture(maker):
    folder = add(maker, status="running", rows=[(300, 0.2), (600, 0.3)])
    (folder.path / "status.json").write_text(json.dumps(asdict(Status("running", 500, seconds=50.0))))
    watcher = Watcher(maker.run)
    watcher.look()
    found = {live: watcher.statuses(live)[0][1] for live in (True, False)}
    assert (found[True].step, found[True].seconds) == (600, 60.0)
    assert (found[False].step, found[False].seconds) == (500, 50.0)  # a dead driver's trial goes back to its checkpoint


def test_those_that_have_run_longest_come_first(maker):
    for seed, seconds in ((0, 5.0), (1, 50.0)):
        add(maker, seed=seed, status="running", seconds=seconds)
    with maker.run.locked():
        assert [trial.seed for trial in Watcher(maker.run).look().running] == [1, 0]


# ---- the best


@pytest.mark.parametrize(
    ("mode", "at", "seed", "value"),
    [("max", "last", 1, 0.5), ("max", "best", 0, 0.9), ("min", "last", 0, 0.2), ("min", "best", 1, 0.1)],
)
def test_the_best_follows_the_objective(maker, mode, at, seed, value):
    sweep(maker, objective={"metric": "mig", "mode": mode, "at": at})
    add(maker, seed=0, rows=[(300, 0.9), (600, 0.2)])
    add(maker, seed=1, rows=[(300, 0.1), (600, 0.5)])
    best = Watcher(maker.run).look().best
    assert (best.seed, best.value) == (seed, value)


def test_a_trial_that_was_stopped_early_is_the_best_only_while_none_was_trained_to_its_end(maker):
    add(maker, seed=0, rows=[(300, 0.9)], cause="scheduler.asha: stopped at step 300")
    watcher = Watcher(maker.run)
    assert watcher.look().best.seed == 0
    add(maker, seed=1, rows=[(300, 0.1), (1500, 0.4)])
    assert watcher.look().best.seed == 1


def test_the_scores_of_a_trials_end_count_until_it_trains_on(maker):
    folder = add(maker, rows=[(300, 0.1)])
    watcher = Watcher(maker.run)
    assert watcher.look().best.value == 0.1
    folder.write_end({"step": 350, "metrics": {"mig": 0.3}})
    assert watcher.look().best.value == 0.3
    folder.append_row({"step": 600, "metrics": {"loss": 1.0}})
    assert watcher.look().best.value == 0.1


def test_broken_trials_and_numbers_that_are_none_are_never_the_best(maker):
    add(maker, seed=0, rows=[(300, 0.1)])
    add(maker, seed=1, rows=[(300, math.nan)])
    add(maker, beta=0.01, seed=0, rows=[(300, math.inf)])
    add(maker, beta=0.01, seed=1, status="failed", rows=[(300, 0.9)])
    add(maker, beta=0.1, seed=0, status="diverged", rows=[(300, 0.8)])
    assert Watcher(maker.run).look().best.value == 0.1


def test_of_trials_that_train_now_the_best_is_not_the_one_that_began_first(maker):
    add(maker, 0.001, 0, "running", [(1200, 0.05)])
    add(maker, 0.001, 1, "running", [(900, 0.72)])
    with maker.run.locked():
        watcher = Watcher(maker.run)
        assert watcher.look().best.value == 0.72
        add(maker, 0.01, 0, "done", [(1500, 0.4)])
        assert watcher.look().best.value == 0.4


def test_the_share_of_steps_counts_what_running_trials_have_trained(maker):
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    add(maker, 0.01, 0, "running", [(300, 0.2)])
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert picture.share == (1500 + 300) / (picture.expected * 1500)


def test_the_time_left_counts_what_happens_between_trials(maker, monkeypatch):
    """Two and a half of four trials took a session that was far longer than their training."""
    now = time.time()
    monkeypatch.setattr("disentune.results.watch.Run.began", lambda run: now - 1e5)
    monkeypatch.setattr("disentune.results.watch.time.time", lambda: now)
    monkeypatch.setattr("disentune.results.watch._expected", lambda *asked: 4)
    for seed in range(2):
        add(maker, 0.001, seed, "done", [(1500, 0.5)])
    add(maker, 0.01, 0, "running", [(750, 0.2)])
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert picture.left_s == pytest.approx(1e5 * 1.5 / 2.5)


def test_a_running_trial_can_be_the_best_by_its_last_number(maker):
    folder = add(maker, status="running", rows=[(300, 0.1), (600, 0.7)])
    folder.append_row({"step": 900, "metrics": {"loss": 0.5}})
    best = Watcher(maker.run).look().best
    assert (best.value, best.latest) == (0.7, 0.7)


def test_without_an_objective_the_first_metric_counts_and_without_any_the_loss(maker):
    sweep(maker)
    assert Watcher(maker.run).look().objective == Objective(metric="mig", mode="max")
    trial = {key: value for key, value in TRIAL.items() if key != "seed"} | {"evaluation.metrics": []}
    with open(maker.run.sweep_path, "w") as file:
        documents.dump({"trial": trial}, file)
    assert Watcher(maker.run).look().objective == Objective(metric="loss", mode="min")


def own(maker, **keys):
    """A sweep of four trials that names plug-ins which nobody can import."""
    trial = {key: value for key, value in TRIAL.items() if key not in ("seed", "framework.beta")}
    named = {"framework.name": "nowhere:FRAMEWORK", "framework.heat": {"grid": [1, 2]}}
    with open(maker.run.sweep_path, "w") as file:
        documents.dump({"trial": trial | named, "seeds": 2} | keys, file)


def test_a_run_of_the_users_own_plug_ins_is_seen_without_them(maker):
    own(maker)
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    add(maker, 0.001, 1, "running", [(500, 0.2)])
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert (picture.expected, picture.states) == (4, {"done": 1, "running": 1, "pending": 2})
    assert picture.left_s == pytest.approx((1000 + 2 * 1500) / 10)
    assert (picture.objective, picture.best.value, picture.notes) == (Objective(**MIG), 0.5, ())


def test_the_first_metric_of_the_users_own_is_known_from_the_rows(maker):
    own(maker, arms={"all": {"evaluation.metrics": ["nowhere:METRIC", "mig"]}})
    watcher = Watcher(maker.run)
    folder = add(maker, status="running")
    folder.append_row({"step": 100, "metrics": {"loss": 2.0, "kl": 1.0, "kl_sum": 1.0, "watch_heat": 3.0}})
    assert watcher.look().objective == Objective(metric="loss", mode="min")
    assert watcher.look().best.value == 2.0
    folder.append_row({"step": 300, "metrics": {"loss": 1.0, "mine": 0.3, "mig": 0.1}})
    picture = watcher.look()
    assert (picture.objective, picture.best.value) == (Objective(metric="mine", mode="max"), 0.3)
    assert watcher.look().best.value == 0.3


def test_a_damaged_trial_does_not_hide_what_the_metric_is(maker):
    own(maker, arms={"all": {"evaluation.metrics": ["nowhere:METRIC"]}})
    first, second = sorted((add(maker, seed=seed) for seed in (0, 1)), key=lambda folder: folder.id)
    first.rows_path.write_text("{ruined\n")
    second.append_row({"step": 300, "metrics": {"loss": 1.0, "mine": 0.3}})
    assert Watcher(maker.run).look().best.value == 0.3


def test_another_objective_is_read_from_the_rows_again(maker):
    add(maker, rows=[(300, 0.4)])
    watcher = Watcher(maker.run)
    assert watcher.look().best.value == 0.4
    sweep(maker, objective={"metric": "loss", "mode": "min"})
    assert watcher.look().best.value == 1.0


def test_a_point_is_what_the_arms_search_over_as_it_is_by_now(maker):
    folder = add(maker, rows=[(300, 0.4)])
    assert Watcher(maker.run).look().best.point == {"framework.beta": 0.001}
    row = {"step": 600, "metrics": {"mig": 0.5}, "overrides": {"framework.beta": 0.0012}}
    folder.append_row(row)
    assert Watcher(maker.run).look().best.point == {"framework.beta": 0.0012}


# ---- speed and time left


def test_speed_is_that_of_the_last_minutes_of_a_trials_own_clock():
    fast_then_slow = [(1000, 10.0), (1100, 110.0), (1200, 210.0), (1300, 310.0), (1400, 410.0)]
    assert watch._speed(fast_then_slow) == pytest.approx(1.0)
    assert watch._speed([(50, 5.0)]) == pytest.approx(10.0)
    assert watch._speed([(0, 30.0), (50, 35.0)]) == pytest.approx(10.0)  # a first attempt that came to nothing
    assert watch._speed([]) is None
    assert watch._speed([(100, 0.0)]) is None
    assert watch._speed([(100, math.nan), (50, 5.0)]) == pytest.approx(10.0)


def test_all_steps_at_the_speed_of_what_runs_is_the_time_left(maker):
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    add(maker, 0.001, 1, "failed", [(300, 0.5)])
    add(maker, 0.01, 0, "running", [(500, 0.2)])  # 10 steps a second
    add(maker, 0.01, 1, "running", [(1000, 0.2)])
    add(maker, 0.1, 0, "pending", [(700, 0.2)])
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert picture.speed == pytest.approx(20)
    assert picture.left_s == pytest.approx((1000 + 500 + 800 + 3 * 1500) / 20)
    assert (Watcher(maker.run).look().speed, Watcher(maker.run).look().left_s) == (None, None)


def test_the_time_left_is_no_less_than_a_running_trial_needs_by_itself(maker):
    sweep(maker, {"grid": BETAS[:1]}, objective=MIG)
    add(maker, seed=0, status="running", rows=[(1490, 0.2)])
    add(maker, seed=1, status="running", rows=[(500, 0.2)])
    with maker.run.locked():
        assert Watcher(maker.run).look().left_s == pytest.approx(1000 / 10)


def test_a_trial_that_has_just_begun_counts_as_fast_as_the_others(maker):
    sweep(maker, {"grid": BETAS[:1]}, objective=MIG)
    add(maker, seed=0, status="done", rows=[(1500, 0.2)])
    add(maker, seed=1, status="running")
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert picture.speed == pytest.approx(10)
    assert picture.left_s == pytest.approx(150)


def test_nothing_is_promised_before_anything_is_known(maker):
    add(maker, status="running")
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert (picture.speed, picture.left_s, picture.ended_an_hour) == (None, None, None)


@pytest.mark.parametrize(("scheduler", "unbegun"), [("none", 1500), ("asha", 400), ("median", 400)])
def test_where_trials_are_cut_the_next_ones_are_taken_to_end_as_the_ended_ones(maker, scheduler, unbegun):
    cut = {"name": scheduler, "grace": 300} if scheduler != "none" else "none"
    sweep(maker, objective=MIG, scheduler=cut)
    add(maker, 0.001, 0, "stopped", [(500, 0.2)], cause=f"scheduler.{scheduler}: stopped at step 500")
    add(maker, 0.001, 1, "done", [(300, 0.2)], cause=f"scheduler.{scheduler}: stopped at step 300")
    add(maker, 0.01, 0, "running", [(500, 0.2)])
    with maker.run.locked():
        picture = Watcher(maker.run).look()
    assert picture.left_s == pytest.approx((1000 + 5 * unbegun) / 10)
    assert picture.states == {"stopped": 2, "running": 1, "pending": 5}


def test_what_a_model_based_search_has_not_asked_for_yet_takes_time_too(maker):
    search = {"name": "optuna", "points": 5}
    sweep(maker, {"log_uniform": [1e-4, 1.0]}, search=search, objective=MIG)
    add(maker, 0.5, 0, "running", [(500, 0.2)])
    with maker.run.locked():
        assert Watcher(maker.run).look().left_s == pytest.approx((1000 + 9 * 1500) / 10)


def test_steps_end_where_the_sweep_stops_trials(maker):
    sweep(maker, objective=MIG, stop={"steps": 600})
    add(maker, 0.001, 0, "running", [(500, 0.2)])
    with maker.run.locked():
        assert Watcher(maker.run).look().left_s == pytest.approx((100 + 7 * 600) / 10)


def test_trials_an_hour_are_those_of_this_session_and_of_the_last_hour(maker):
    for number, ago in enumerate((10, 1000, 5000, 9000)):
        touched(add(maker, BETAS[number], 0), ago)
    touched(add(maker, 0.001, 1, "running"), 10)
    with maker.run.locked():
        for began, ended, window in ((2000, 2, 2000), (7200, 2, 3600), (500, 1, 500)):
            then = time.time() - began
            os.utime(maker.run.path / "driver.lock", (then, then))
            assert Watcher(maker.run).look().ended_an_hour == pytest.approx(ended / window * 3600, rel=0.05)


# ---- troubles


def test_troubles_of_one_cause_stand_together_the_newest_first(maker):
    causes = [("failed", "ValueError: no\nTraceback", 300), ("failed", "ValueError: no\nother", 100),
              ("diverged", "the loss was nan", 200), ("failed", "", 50)]  # fmt: skip
    for beta, (status, cause, ago) in zip(BETAS, causes, strict=True):
        touched(add(maker, beta, 0, status, cause=cause), ago)
    add(maker, 0.001, 1, "done", cause="stop.plateau: no improvement")
    found = [(one.trial.point["framework.beta"], one.count) for one in Watcher(maker.run).look().troubles]
    assert found == [(1.0, 1), (0.01, 2), (0.1, 1)]


# ---- reading again


def counted(calls, name, original):
    def call(self):
        calls.append((self.id, name))
        return original(self)

    return call


def test_only_what_has_changed_is_read_again(maker, monkeypatch):
    folders = [add(maker, beta, seed, rows=[(300, 0.1)]) for beta in BETAS for seed in (0, 1)]
    watcher = Watcher(maker.run)
    watcher.look()
    read = []
    for name in ("status", "tree", "arms"):
        original = getattr(TrialFolder, name)
        monkeypatch.setattr(TrialFolder, name, counted(read, name, original))
    watcher.look()
    assert read == []
    folders[3].update_status(state="failed")
    read.clear()
    assert watcher.look().states["failed"] == 1
    assert set(read) == {(folders[3].id, "status")}


def test_rows_are_read_on_from_where_the_last_look_ended(maker, monkeypatch):
    folder = add(maker, status="running", rows=[(300, 0.1), (600, 0.2)])
    watcher, taken = Watcher(maker.run), []
    original = watch._mark
    monkeypatch.setattr(watch, "_mark", lambda row, metric: (taken.append(row), original(row, metric))[1])
    watcher.look()
    assert len(taken) == 2
    folder.append_row({"step": 900, "metrics": {"mig": 0.3}, "clock": {"seconds": 90.0}})
    assert watcher.look().best.value == 0.3
    assert len(taken) == 3


def _seconds(function):
    began = time.process_time()
    assert len(function().trials) == 1000
    return time.process_time() - began


@pytest.mark.slow
def test_a_thousand_trials_cost_little_to_look_at_again(make_run):
    maker = make_run()
    sweep(maker, {"grid": [0.001 * number for number in range(1, 101)]}, seeds=10, objective=MIG)
    for number in range(1, 101):
        for seed in range(10):
            quick_trial(maker, [{"step": step, "mig": 0.1} for step in range(100, 1600, 100)], seed=seed,
                        framework__beta=0.001 * number, status="running" if seed == 9 else "done")  # fmt: skip
    watcher = Watcher(maker.run)
    with maker.run.locked():
        first, *again = (_seconds(watcher.look) for _ in range(4))
    assert min(again) < first / 3, (first, again)


def test_a_row_counts_once_it_is_whole(maker):
    folder = add(maker, status="running", rows=[(300, 0.1)])
    watcher = Watcher(maker.run)
    line = json.dumps({"step": 600, "metrics": {"mig": 0.9}}).encode() + b"\n"
    for byte in line[:-1]:
        with open(folder.rows_path, "ab") as file:
            file.write(bytes([byte]))
        picture = watcher.look()
        assert (picture.best.value, picture.notes) == (0.1, ())
    with open(folder.rows_path, "ab") as file:
        file.write(b"\n")
    assert watcher.look().best.value == 0.9


def test_rows_that_were_started_again_are_read_again(maker):
    folder = add(maker, status="running", rows=[(300, 0.1), (600, 0.9)])
    watcher = Watcher(maker.run)
    assert watcher.look().best.value == 0.9
    folder.rows_path.write_text(json.dumps({"step": 300, "metrics": {"mig": 0.2}}) + "\n")
    assert watcher.look().best.value == 0.2
    aside = folder.rows_path.with_name("aside")
    aside.write_text("".join(json.dumps({"step": step, "metrics": {"mig": 0.3}}) + "\n" for step in range(1, 50)))
    os.replace(aside, folder.rows_path)
    assert watcher.look().best.value == 0.3
    folder.rows_path.unlink()
    assert watcher.look().best is None


def test_a_step_that_comes_twice_counts_as_it_came_first(maker):
    folder = add(maker, rows=[(300, 0.1)])
    folder.append_row({"step": 300, "metrics": {"mig": 0.7}})
    assert Watcher(maker.run).look().best.value == 0.1


@pytest.mark.parametrize("line", [b"{ruined", b"[]", b"7", b'{"step": 1}', b'{"step": "x", "metrics": {}}', b"\xff\xfe",
                                  b'{"step": 1, "metrics": 3}', b'{"step": 1, "metrics": {}, "clock": 5}',
                                  b'{"step": 1, "metrics": {}, "overrides": 5}', b"[" * 100_000, b""])  # fmt: skip
def test_a_damaged_line_is_reported_and_the_others_count(maker, line):
    folder = add(maker, rows=[(300, 0.1)])
    folder.rows_path.write_bytes(line + b"\n" + folder.rows_path.read_bytes())
    watcher = Watcher(maker.run)
    for _ in range(2):
        picture = watcher.look()
        assert picture.best.value == 0.1
        assert picture.notes == (f"{folder.rows_path} has a damaged line",)


@pytest.mark.parametrize("value", [None, "high", [1], {"a": 1}])
def test_values_that_are_not_numbers_are_ignored(value):
    assert watch._mark({"step": 3, "metrics": {"mig": value}}, "mig")[:3:2] == (3, None)


TORN = [b"", b"{", b"[]", b'{"state": 3}', b'{"state": "done", "cause": null}', b'{"state": "done", "seconds": "x"}',
        b'{"state": "done", "seconds": NaN}', b'{"config": {"training": {"steps": "x"}}, "arms": []}']  # fmt: skip


@pytest.mark.parametrize("name", ["status.json", "config.json"])
@pytest.mark.parametrize("content", TORN)
def test_the_last_valid_reading_is_kept_while_a_file_is_torn(maker, name, content):
    folder = add(maker, rows=[(300, 0.4)], cause="as it was")
    watcher, path = Watcher(maker.run), folder.path / name
    before, sound = watcher.look(), path.read_bytes()
    path.write_bytes(content)
    during = watcher.look()
    assert during.trials == before.trials
    assert [str(path) in note for note in during.notes] == [True]
    path.write_bytes(sound)
    after = watcher.look()
    assert (after.notes, after.best.value) == ((), 0.4)


def test_a_trial_that_was_never_read_is_reported_and_left_out(maker):
    folder = add(maker)
    (folder.path / "config.json").write_text("{torn")
    picture = Watcher(maker.run).look()
    assert picture.trials == ()
    assert len(picture.notes) == 1


def test_a_storage_that_does_not_answer_changes_nothing(maker, monkeypatch):
    add(maker, status="running", rows=[(300, 0.4)])
    watcher = Watcher(maker.run)
    original = type(maker.run.path).stat

    def stale(self, **options):
        if maker.run.path in (self, *self.parents):
            raise OSError(116, "Stale file handle")
        return original(self, **options)

    def unlocked(self):
        raise OSError(116, "Stale file handle")

    with maker.run.locked():
        before = watcher.look()
        with monkeypatch.context() as broken:
            broken.setattr(type(maker.run.path), "stat", stale)
            broken.setattr(Run, "is_running", unlocked)
            during = watcher.look()
    assert (during.live, during.gone, during.expected) == (True, False, 8)
    assert [trial.step for trial in during.trials] == [trial.step for trial in before.trials]
    assert during.best.value == before.best.value


@pytest.mark.parametrize("name", ["status.json", "rows.jsonl", "config.json"])
def test_a_file_that_cannot_be_reached_for_a_moment_is_not_taken_for_a_missing_one(maker, monkeypatch, name):
    folder = add(maker, rows=[(300, 0.4)])
    watcher, kind = Watcher(maker.run), type(folder.path)
    before, original = watcher.look(), kind.stat

    def stale(self, **options):
        if self.name == name and options == {}:
            raise OSError(116, "Stale file handle")
        return original(self, **options)

    with monkeypatch.context() as broken:
        broken.setattr(kind, "stat", stale)
        broken.setattr(Run, "trials", lambda run: [folder])
        during = watcher.look()
    assert during.trials == before.trials
    assert [str(folder.path / name) in note for note in during.notes] == [True]
    assert watcher.look().notes == ()


def test_trials_and_runs_may_vanish_during_a_refresh(maker):
    folders = [add(maker, beta, rows=[(300, beta)]) for beta in BETAS]
    watcher = Watcher(maker.run)
    assert watcher.look().best.value == 1.0
    shutil.rmtree(folders[3].path)
    assert watcher.look().best.value == 0.1
    maker.run.sweep_path.unlink()
    assert (watcher.look().expected, watcher.look().notes) == (8, ())
    shutil.rmtree(maker.run.path)
    picture = watcher.look()
    assert picture.gone
    assert not picture.live


def test_a_sweep_that_cannot_be_read_leaves_the_trials_to_see(maker):
    add(maker, rows=[(300, 0.4)], status="failed")
    maker.run.sweep_path.write_text("arms: {all: {framework.name: nobodys_vae}}\n")
    watcher = Watcher(maker.run)
    picture = watcher.look()
    assert (picture.expected, picture.states) == (1, {"failed": 1})
    assert picture.notes[0].startswith(
        "the sweep cannot be read; the objective is unknown, so no trial is ranked best: "
    )
    assert "\n" not in picture.notes[0]
    sweep(maker)
    assert (watcher.look().expected, watcher.look().notes) == (8, ())


def test_a_sweep_that_cannot_be_read_ranks_no_trial_by_another_number(maker):
    sweep(maker, objective={"metric": "mig", "mode": "max"})
    add(maker, rows=[(300, 0.4)])
    watcher = Watcher(maker.run)
    assert watcher.look().best.value == 0.4
    maker.run.sweep_path.write_text("arms: {")
    assert watcher.look().best.value == 0.4, "the objective was known before"
    assert Watcher(maker.run).look().best is None


def test_looking_writes_nothing(maker):
    add(maker, rows=[(300, 0.4)])
    before = everything(maker.run.path)
    Watcher(maker.run).look()
    assert everything(maker.run.path) == before


# ---- looking until the end


def test_watching_ends_when_no_driver_is_left(maker, monkeypatch):
    waits, driver = [], maker.run.locked()
    driver.__enter__()

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            driver.__exit__(None, None, None)

    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert [picture.live for picture in looks(maker.run, 7.0)] == [True, True, True, False]
    assert waits == [7.0] * 3


def test_the_last_words_of_a_driver_are_in_the_last_picture(maker, monkeypatch):
    """It ends its trials first and lets go of the run then."""
    sweep(maker, {"grid": BETAS[:1]}, seeds=1)
    folder, original = add(maker, status="running"), Run.is_running

    def ends_just_after(self):
        answer = original(self)
        folder.update_status(state="done", step=1500)
        return answer

    monkeypatch.setattr(Run, "is_running", ends_just_after)
    assert [picture.finished for picture in looks(maker.run, 1.0)] == [True]


# ---- what other programs read


def test_as_json_has_exactly_its_keys_and_only_numbers_that_json_has(maker):
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    add(maker, 0.01, 0, "running", [(300, math.nan)])
    broken = add(maker, 0.1, 0, "failed", [(300, 0.9)], cause="ValueError: no\nTraceback")
    with maker.run.locked():
        found = json.loads(json.dumps(as_json(Watcher(maker.run).look(), "runs/demo/main"), allow_nan=False))
    assert list(found) == [
        "time", "running", "finished", "trials", "states", "selection", "steps_per_second", "trials_per_hour",
        "seconds_left", "share_of_steps", "metric", "best", "running_trials", "troubles", "notes",
    ]  # fmt: skip
    assert found["states"] == {"done": 1, "running": 1, "pending": 5, "failed": 1}
    assert (found["running"], found["finished"], found["trials"], found["metric"]) == (True, False, 8, "mig")
    assert found["best"]["value"] == 0.5
    assert found["best"]["point"] == {"framework.beta": 0.001}
    assert [(one["step"], one["value"]) for one in found["running_trials"]] == [(300, None)]
    assert found["troubles"] == [{
        "trial_id": broken.id, "state": "failed", "step": 300, "cause": "ValueError: no", "count": 1,
        "path": f"runs/demo/main/trials/{broken.id}/status.json",
    }]  # fmt: skip


def test_the_best_as_json_has_the_value_it_is_the_best_by(maker):
    sweep(maker, objective=MIG | {"at": "best"})
    add(maker, rows=[(300, 0.9), (600, 0.2)])
    assert as_json(Watcher(maker.run).look(), "runs/demo/main")["best"]["value"] == 0.9


def test_the_file_to_read_is_the_log_of_errors_or_the_status_without_one(maker):
    folder = add(maker)
    assert trouble_path(str(maker.run.path), folder.id) == str(folder.path / "status.json")
    folder.add_error("Traceback ...")
    assert trouble_path(str(maker.run.path), folder.id) == str(folder.path / "errors.log")


def test_a_mark_keeps_what_is_needed_of_a_row():
    row = {"step": 3, "metrics": {"mig": 1, "loss": 2.0}, "clock": {"seconds": 4.5}, "overrides": {"a": 1}}
    assert watch._mark(row, "mig") == Mark(3, 4.5, 1.0, {"a": 1})


# ---- a session that runs a part of the sweep


def test_counts_and_times_are_of_the_trials_that_the_session_was_asked_for(maker):
    add(maker, 0.001, 0, "done", [(1500, 0.5)])
    chosen = [add(maker, 0.001, 1, "running", [(500, 0.2)]).id, add(maker, 0.01, 0, "pending").id, "0" * 12]
    with maker.run.locked() as session:
        selection = {"flags": "--limit 3", "steps": dict.fromkeys(chosen, 1500), "most": None}
        maker.run.record_selection(session, selection)
        picture = Watcher(maker.run).look()
    assert (picture.ended, picture.expected) == (0, 3)
    assert picture.states == {"running": 1, "pending": 2}
    assert picture.left_s == pytest.approx((1000 + 2 * 1500) / 10)
    assert as_json(picture, "run")["selection"] == "--limit 3"
    after = Watcher(maker.run).look()
    assert (after.selection, after.expected) == (None, 8)


def test_the_selection_of_an_earlier_session_does_not_count(maker):
    maker.run.record_selection("earlier", {"flags": "--limit 1", "steps": {"0" * 12: 1500}, "most": None})
    with maker.run.locked():
        assert Watcher(maker.run).look().expected == 8


def test_a_limited_search_is_expected_to_end_so_many_trials(maker):
    search = {"name": "optuna", "points": 5}
    sweep(maker, {"log_uniform": [1e-4, 1.0]}, search=search, objective=MIG)
    add(maker, 0.5, 0, "done", [(1500, 0.2)])
    with maker.run.locked() as session:
        maker.run.record_selection(session, {"flags": "--limit 2", "steps": None, "most": 3})
        picture = Watcher(maker.run).look()
    assert (picture.ended, picture.expected, picture.at_most) == (1, 3, True)
