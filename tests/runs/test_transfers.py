"""Trials are set aside, restored and taken over whole, or not at all."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.runs import transfers as transfers_module
from disentune.runs.ledger import Run
from disentune.runs.preview import make_plan
from disentune.runs.transfers import Transfers, take_over, why_not_taken
from disentune.spec.settings import Settings
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from simulator import simulate, sweep_file, table

SHORT = ("training.steps=6",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(storage, sweep file): a finished run `first` of one seed."""
    folder = tmp_path_factory.mktemp("trained")
    path = sweep_file(folder, extra="pictures: evaluations")
    simulate(Run(folder / "runs" / "tiny" / "first"), path, np.random.default_rng(0), overrides=("seeds=1",))
    return folder / "runs", path


@pytest.fixture
def storage(trained, tmp_path):
    """(storage, sweep file): a copy that a test may change."""
    shutil.copytree(trained[0], tmp_path / "runs")
    return tmp_path / "runs", trained[1]


def planned(run, path, *overrides, **options):
    return make_plan(check(read_sweep(path, overrides)), run, **options)


def session(run, path, *overrides, **options):
    """As `launch`, on the simulator."""
    plan, said = planned(run, path, *overrides, **options), []
    with run.locked():
        plan.transfers.carry_out(run, said.append)
    simulate(run, path, np.random.default_rng(1), overrides=overrides, choice=plan.choice)
    return plan, said


def ids(run):
    return {folder.id for folder in run.trials()}


# ---- taken over


@pytest.mark.slow
def test_finished_trials_of_another_run_are_taken_over_and_the_table_is_the_same(storage, tmp_path):
    first, second = Run(storage[0] / "tiny" / "first"), Run(storage[0] / "other" / "second")
    alone = Run(tmp_path / "elsewhere" / "tiny" / "main")
    simulate(alone, storage[1], np.random.default_rng(2))
    plan, said = session(second, storage[1])
    assert (plan.done, sum(plan.taken.values()), plan.new) == (0, 6, 6)
    assert list(plan.taken) == [str(first.path)]
    assert said == []
    assert table(second) == table(alone)
    for trial_id in ids(first):
        mine, theirs = second.trial(trial_id), first.trial(trial_id)
        assert mine.rows_path.read_bytes() == theirs.rows_path.read_bytes()
        assert mine.status() == theirs.status()
        assert mine.picture_steps() == theirs.picture_steps() != []
        assert mine.checkpoints.steps() == theirs.checkpoints.steps() != []
        assert json.loads(mine.origin_path.read_text())["run"] == str(first.path)


def test_a_plan_without_other_runs_takes_nothing_over(trained, tmp_path):
    run = Run(tmp_path / "elsewhere" / "tiny" / "main")
    assert planned(run, trained[1]).taken == {}


def test_the_arms_of_a_trial_are_those_of_the_sweep_that_takes_it_over(storage, tmp_path):
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text(storage[1].read_text().replace("  near:", "  close:"))
    run = Run(storage[0] / "tiny" / "second")
    session(run, renamed, "seeds=1")
    assert {arm for folder in run.trials() for arm in folder.arms()} == {"close", "far"}


@pytest.mark.parametrize(
    ("search", "scheduler", "reason"),
    [("grid", "asha", "scheduler: asha"), ("random", "pbt", "scheduler: pbt"), ("optuna", "none", "search: optuna")],
)
def test_searches_that_learn_from_their_own_run_take_nothing_over(storage, tmp_path, search, scheduler, reason):
    path = sweep_file(tmp_path, search, scheduler)
    sweep = read_sweep(path)
    assert why_not_taken(sweep.settings).startswith(reason)
    assert planned(Run(storage[0] / "tiny" / "second"), path).taken == {}
    assert why_not_taken(Settings()) == ""


def edited(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: edited(run.path / "environment.json", lambda found: found.update(source="another")),
        lambda run: edited(run.path / "environment.json", lambda found: found.pop("source")),
        lambda run: (run.path / "sessions.json").write_text('[{"source": "another", "packages": {}}]'),
        lambda run: [folder.cut_rows(12) for folder in run.trials()],
        lambda run: [folder.update_status(state="stopped", cause="scheduler.asha: stopped") for folder in run.trials()],
        lambda run: [folder.update_status(state="failed") for folder in run.trials()],
        lambda run: [folder.rows_path.write_bytes(b"damaged\n") for folder in run.trials()],
        lambda run: run.sweep_path.write_text(run.sweep_path.read_text() + "\nstop: {divergence: 5.0}\n"),
        lambda run: run.sweep_path.write_text("damaged"),
    ],
    ids=["code", "unknown code", "later code", "rows", "stopped", "failed", "damage", "stop", "sweep"],
)
def test_only_intact_trials_of_the_same_code_and_rules_are_taken_over(storage, damage):
    run, first = Run(storage[0] / "tiny" / "second"), Run(storage[0] / "tiny" / "first")
    assert planned(run, storage[1]).taken
    damage(first)
    assert planned(run, storage[1]).taken == {}


def test_a_trial_with_overrides_of_a_population_is_not_taken_over(storage):
    run, first = Run(storage[0] / "tiny" / "second"), Run(storage[0] / "tiny" / "first")
    for folder in first.trials():
        rows = folder.rows()
        rows[-1]["overrides"] = {"framework.beta": 0.5}
        folder.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert planned(run, storage[1]).taken == {}


def test_a_damaged_checkpoint_is_found_while_it_is_copied_and_the_trial_is_trained(storage):
    run, first = Run(storage[0] / "tiny" / "second"), Run(storage[0] / "tiny" / "first")
    damaged = first.trials()[0]
    damaged.checkpoints.path(12).write_bytes(b"damaged")
    plan, said = session(run, storage[1], "seeds=1")
    assert sum(plan.taken.values()) == 6
    assert len(said) == 1
    assert said[0].startswith(f"trial {damaged.id} is trained instead of copied: ")
    assert table(run) == table(first)
    assert not run.trial(damaged.id).origin_path.exists()


def test_a_process_that_is_killed_at_any_write_leaves_no_half_trial(storage, monkeypatch):
    run = Run(storage[0] / "tiny" / "second")
    plan = planned(run, storage[1], "seeds=1")
    taken = next(iter(plan.transfers.take.values()))
    writes, limit = [], 0

    class Killed(BaseException):
        pass

    def dying(act):
        def act_or_die(*args, **kwargs):
            writes.append(act)
            if len(writes) > limit:
                raise Killed
            return act(*args, **kwargs)

        return act_or_die

    monkeypatch.setattr(transfers_module, "_copy_file", dying(transfers_module._copy_file))
    monkeypatch.setattr(transfers_module, "write_json", dying(transfers_module.write_json))
    monkeypatch.setattr(transfers_module.os, "rename", dying(os.rename))
    monkeypatch.setattr(transfers_module.shutil, "rmtree", lambda *args, **kwargs: None)  # nor does it clean up
    for limit in range(50):  # noqa: B007
        writes.clear()
        try:
            take_over(run, taken)
            break
        except Killed:
            assert run.trials() == []
    else:
        pytest.fail("it never came to its end")
    assert limit > 5
    assert ids(run) == {taken.folder.id}


def test_what_a_killed_process_left_is_cleared_by_the_next_session(storage):
    run = Run(storage[0] / "tiny" / "second")
    (run.incoming_folder / ("0" * 12)).mkdir(parents=True)
    with run.locked():
        assert not run.incoming_folder.exists()


def test_a_limit_counts_only_trials_that_are_trained(storage):
    run = Run(storage[0] / "tiny" / "second")
    plan = planned(run, storage[1], limit=2)
    assert (plan.new, len(plan.transfers.take)) == (2, 6)


# ---- set aside and restored


def test_a_smoke_test_does_not_block_the_name_of_the_run(storage):
    run = Run(storage[0] / "tiny" / "first")
    full = table(run)
    session(run, storage[1], "seeds=1", *SHORT, drop=True)
    assert len(run.dropped()) == 6
    assert len(ids(run)) == 6
    with pytest.raises(ConfigError, match=r"holds 6 trial.*no longer asks for") as error:
        planned(run, storage[1], "seeds=1")
    assert "--drop" in str(error.value)
    assert "--name NEW" in str(error.value)
    plan = planned(run, storage[1], "seeds=1", drop=True)
    assert (plan.done, plan.new, len(plan.transfers.restore), plan.dropped) == (6, 0, 6, 6)
    session(run, storage[1], "seeds=1", drop=True)
    assert table(run) == full


def test_a_grid_that_lost_a_value_keeps_the_others_and_gets_it_back(storage, tmp_path):
    run, smaller = Run(storage[0] / "tiny" / "first"), tmp_path / "smaller.yaml"
    smaller.write_text(storage[1].read_text().replace("[1e-3, 1e-2, 1e-1]", "[1e-3, 1e-2]"))
    full, before = table(run), ids(run)
    plan, _ = session(run, smaller, "seeds=1", drop=True)
    assert (plan.trials, plan.done, len(plan.transfers.drop)) == (4, 4, 2)
    assert ids(run) | set(run.dropped()) == before
    plan, _ = session(run, storage[1], "seeds=1")
    assert (plan.done, plan.new, len(plan.transfers.restore)) == (6, 0, 2)
    assert table(run) == full


def test_a_driver_that_dies_while_it_drops_leaves_a_run_that_the_recorded_sweep_restores(storage):
    run = Run(storage[0] / "tiny" / "first")
    full, some = table(run), sorted(ids(run))[:3]
    with run.locked():
        Transfers(drop=tuple(some)).carry_out(run, print)
    plan, _ = session(run, run.sweep_path)
    assert (plan.done, plan.new) == (6, 0)
    assert table(run) == full


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "scheduler", "reason"),
    [
        ("random", "pbt", "whose trials copy each other"),
        ("grid", "median", "judges each trial by the trials before"),
    ],
)
def test_trials_that_others_depend_on_are_not_dropped(tmp_path, search, scheduler, reason):
    path, run = sweep_file(tmp_path, search, scheduler), Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=f"--drop cannot be used with .*{reason}"):
        planned(run, path, "seeds=1", drop=True)


@pytest.mark.slow
def test_a_run_of_early_stopping_may_drop_all_its_trials(tmp_path):
    path, run = sweep_file(tmp_path, "grid", "asha"), Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0))
    plan = planned(run, path, "training.steps=9", drop=True)
    assert (plan.new, len(plan.transfers.drop)) == (12, 12)


def test_a_run_in_an_object_store_names_another_way():
    remote = Run(Path("/nowhere"))
    object.__setattr__(remote, "path", "s3://bucket/runs/tiny/main")
    with pytest.raises(ConfigError, match="--name NEW"):
        transfers_module.assert_droppable(remote, Settings(), everything=True)
