"""A sweep carried out by a simulator instead of Ray: any order, any number of deaths, the same table."""

import json

import numpy as np
import pytest

from disentune.ledger import Run
from disentune.planner import MOST_LOSSES, Planner
from disentune.results import read, write_parquet
from disentune.segment import work
from disentune.sweepfile import read_sweep
from simulator import SCHEDULERS, SEARCHES, disturbed, sessions_through_kills, simulate, sweep_file, table

PAIRS = [(s, c) for s in SEARCHES for c in SCHEDULERS if (s, c) != ("optuna", "pbt")]


@pytest.mark.parametrize(("search", "scheduler"), PAIRS)
def test_order_and_deaths_change_nothing(tmp_path, search, scheduler):
    path = sweep_file(tmp_path, search, scheduler)
    calm = Run(tmp_path / "runs" / "tiny" / "calm")
    simulate(calm, path, np.random.default_rng(0), slots=1)
    expected = table(calm)
    assert len(expected) == (16 if search == "optuna" else 12)
    for seed in range(3):
        run = Run(tmp_path / "runs" / "tiny" / f"killed-{seed}")
        assert disturbed(run, path, seed) > 0
        assert table(run) == expected
        assert write_parquet(read(run)).read_bytes() == write_parquet(read(calm)).read_bytes()


@pytest.mark.parametrize(("search", "scheduler"), PAIRS)
def test_sigkill_at_any_moment_changes_no_bit(tmp_path, search, scheduler):
    """Real SIGKILLs of real processes, in the middle of whatever they were writing; each sweep has both frameworks."""
    path = sweep_file(tmp_path, search, scheduler)
    calm, killed = (Run(tmp_path / "runs" / "tiny" / name) for name in ("calm", "killed"))
    simulate(calm, path, np.random.default_rng(0))
    assert sessions_through_kills(killed, path, seed=1) >= 2
    assert table(killed) == table(calm)
    assert write_parquet(read(killed)).read_bytes() == write_parquet(read(calm)).read_bytes()


def test_schedulers_stop_some_trials_and_not_others(tmp_path):
    for scheduler in ("asha", "median"):
        run = Run(tmp_path / "runs" / "tiny" / scheduler)
        simulate(run, sweep_file(tmp_path, "grid", scheduler), np.random.default_rng(0))
        ends = [folder.status() for folder in run.trials()]
        stopped = [status for status in ends if status.step < 12]
        assert 0 < len(stopped) < len(ends)
        assert all(status.cause.startswith(f"scheduler.{scheduler}: stopped at step") for status in stopped)
        for folder in run.trials():
            assert folder.rows()[-1]["step"] == folder.status().step


def test_a_population_copies_weights_and_changes_values(tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "pbt")
    path = sweep_file(tmp_path, "random", "pbt")
    simulate(run, path, np.random.default_rng(0))
    generations = run.generations()
    # 2 arms x 2 seeds are 4 populations, each judged at steps 3, 6 and 9; one of three copies another each time.
    assert len(generations) == 12
    assert all(len(generation["moves"]) == 1 for generation in generations)
    changed = {trial for generation in generations for trial in generation["moves"]}
    for folder in run.trials():
        rows = folder.rows()
        assert [row["step"] for row in rows] == [3, 6, 9, 12]
        assert (folder.id in changed) == any("overrides" in row for row in rows)


def test_a_finished_sweep_runs_nothing_again(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0))
    before = table(run)
    planner = simulate(run, path, np.random.default_rng(1), dies_after=1)
    assert planner.finished
    assert table(run) == before


def test_a_grown_sweep_runs_only_its_new_points(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0))
    old = {folder.id: folder.rows_path.stat().st_mtime_ns for folder in run.trials()}
    simulate(run, path, np.random.default_rng(0), overrides=["seeds=3"])
    assert len(run.trials()) == 18
    assert {id: run.trial(id).rows_path.stat().st_mtime_ns for id in old} == old


def test_more_optuna_points_go_on_with_the_same_study(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "grown")
    simulate(run, path, np.random.default_rng(0))
    simulate(run, path, np.random.default_rng(0), overrides=["search.points=6"])
    whole = Run(tmp_path / "runs" / "tiny" / "whole")
    simulate(whole, path, np.random.default_rng(1), overrides=["search.points=6"])
    # The first suggestions are the same; later ones know more results than in one go, so only the number must agree.
    assert len(run.trials()) == len(whole.trials()) == 24


def test_raising_stop_steps_goes_on_where_it_stopped(tmp_path):
    path = sweep_file(tmp_path)
    whole, halves = (Run(tmp_path / "runs" / "tiny" / name) for name in ("whole", "halves"))
    simulate(whole, path, np.random.default_rng(0))
    simulate(halves, path, np.random.default_rng(0), overrides=["stop.steps=6"])
    assert {folder.status().step for folder in halves.trials()} == {6}
    simulate(halves, path, np.random.default_rng(0))
    assert table(halves) == table(whole)


def test_a_plateau_ends_a_trial_at_the_same_step_every_time(tmp_path):
    path = sweep_file(tmp_path, extra="stop: {plateau: {evaluations: 1, min_delta: 0.02}}")
    runs = [Run(tmp_path / "runs" / "tiny" / name) for name in ("calm", "killed")]
    simulate(runs[0], path, np.random.default_rng(0))
    assert disturbed(runs[1], path, 5) > 0
    assert table(runs[0]) == table(runs[1])
    causes = [folder.status().cause for folder in runs[0].trials()]
    assert any(cause.startswith("stop.plateau") for cause in causes)


def test_a_trial_that_diverges_ends_with_its_last_good_row_and_the_sweep_goes_on(tmp_path):
    path = sweep_file(tmp_path)
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0), overrides=["training.learning_rate={grid: [1e-2, 1e18]}"])
    states = [(folder.status().state, folder.rows()) for folder in run.trials()]
    assert {state for state, _ in states} == {"done", "diverged"}
    for state, rows in states:
        assert all(np.isfinite(row["metrics"]["loss"]) for row in rows)
        assert bool(rows and rows[-1]["step"] == 12) == (state == "done")


def test_optuna_is_told_of_a_point_that_diverged(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0), overrides=["training.learning_rate=1e18"])
    assert {trial.state.name for study in planner.studies.values() for trial in study.trials} == {"FAIL"}


def test_optuna_is_told_the_mean_over_seeds(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0))
    last = {record.trial_id: record.last()["metrics"]["mig"] for record in read(run).records}
    for arm, study in planner.studies.items():
        for trial, replicates in zip(study.trials, planner._points[arm], strict=True):
            assert len(replicates) == 2
            assert trial.value == pytest.approx(sum(last[one.id] for one in replicates) / 2)


def test_a_lost_worker_is_replaced_but_not_for_ever(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    sweep = read_sweep(path)
    with run.locked() as session:
        planner = Planner(run, sweep, session)
        for _ in range(MOST_LOSSES):
            segment = planner.next()
            message = planner.lost(segment.trial_id, "the node burnt")
        assert "failed" in message
        status = run.trial(segment.trial_id).status()
        assert status.state == "failed"
        assert "the node burnt" in status.cause
        assert planner.next().trial_id != segment.trial_id


def test_a_failing_trial_keeps_its_traceback_and_the_others_go_on(tmp_path, monkeypatch):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    from disentune import segment

    class Broken(segment.Training):
        def _batch(self):
            if self.config.seed == 1 and self.step > 4:
                raise RuntimeError("the disk of batches is scratched")
            return super()._batch()

    monkeypatch.setattr(segment, "Training", Broken)
    simulate(run, path, np.random.default_rng(0))
    by_seed = {0: set(), 1: set()}
    for folder in run.trials():
        by_seed[folder.tree()["seed"]].add(folder.status().state)
    assert by_seed == {0: {"done"}, 1: {"failed"}}
    cause = next(f.status().cause for f in run.trials() if f.status().state == "failed")
    assert cause.startswith("RuntimeError: the disk of batches is scratched")
    assert "_batch" in cause


def test_a_worker_of_an_earlier_driver_writes_no_more(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        planner = Planner(run, read_sweep(path), session)
        segment = planner.next()
        stale = work(segment)
        next(stale)
    with run.locked():
        from disentune.segment import Superseded

        with pytest.raises(Superseded):
            list(stale)
    assert run.trial(segment.trial_id).rows() == []


def test_a_stop_request_checkpoints_where_it_stands(tmp_path, monkeypatch):
    from disentune import segment as module

    monkeypatch.setattr(module, "POLL_S", 0.0)
    path, run = sweep_file(tmp_path, extra=""), Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        planner = Planner(run, read_sweep(path, ["checkpoint.every_steps=1000"]), session)
        segment = planner.next()
        reports = work(segment)
        assert [next(reports).step for _ in range(5)] == [1, 2, 3, 4, 5]
        run.stop_path.touch()
        last = next(reports)
    assert (last.step, last.outcome) == (6, "interrupted")
    assert run.trial(segment.trial_id).checkpoints.steps()[-1] == 6
    assert run.trial(segment.trial_id).status().state == "pending"


def test_a_suggestion_cut_short_in_the_journal_is_taken_back(tmp_path):
    path = sweep_file(tmp_path, "optuna")
    calm = Run(tmp_path / "runs" / "tiny" / "calm")
    simulate(calm, path, np.random.default_rng(0))
    lines = calm.journal_path.read_bytes().splitlines(keepends=True)
    cuts = [i for i, line in enumerate(lines) if json.loads(line)["op_code"] in (4, 5)]
    for cut in cuts[1::3]:
        torn = Run(tmp_path / "runs" / "tiny" / f"torn-{cut}")
        torn.path.mkdir(parents=True)
        torn.journal_path.write_bytes(b"".join(lines[: cut + 1]) + b'{"op_code": 5, "wor')
        simulate(torn, path, np.random.default_rng(cut))
        assert table(torn) == table(calm)
