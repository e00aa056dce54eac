"""What other programs call keeps its shape, and every wrong input gets one message and exit code 2."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from disentune import load
from disentune.cli import app, terminal
from disentune.data.prepared import store
from disentune.driver.sweep import Ending
from disentune.errors import Unavailable
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from simulator import simulate, sweep_file

QUICKSTART = Path(__file__).parents[2] / "sweeps" / "quickstart.yaml"


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """The folder of a small sweep that has ended; to be copied."""
    folder = tmp_path_factory.mktemp("carried_out")
    simulate(Run(folder / "runs" / "tiny" / "main"), sweep_file(folder), np.random.default_rng(0))
    return folder


@pytest.fixture
def finished(carried_out, tmp_path):
    """A small run that has ended, at runs/tiny/main."""
    shutil.copytree(carried_out, tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "runs" / "tiny" / "main")


def test_plan_as_json_has_exactly_its_keys(disentune):
    code, out, _ = disentune("plan", QUICKSTART, "--json")
    assert code == 0
    assert json.loads(out) == {
        "sweep": "quickstart",
        "trials": 18,
        "done": 0,
        "continuing": 0,
        "new": 18,
        "arms": [{"name": name, "trials": 6} for name in ("overlapping", "adversarial", "rescued")],
        "problems": [],
    }


def test_a_plan_that_takes_a_while_says_how_far_it_is_on_standard_error(disentune, monkeypatch):
    monkeypatch.setattr(terminal, "QUIET_S", math.inf)
    assert disentune("plan", QUICKSTART)[2] == ""
    monkeypatch.setattr(terminal, "QUIET_S", 0.0)
    code, out, err = disentune("plan", QUICKSTART, "--json")
    assert code == 0
    assert json.loads(out)["trials"] == 18
    assert "checking points: 0%" in err


def test_plan_as_json_lists_problems_and_exits_with_2(disentune, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("trial: {framework.name: betavae}\nseeds: -1\n")
    code, out, _ = disentune("plan", bad, "--json")
    plan = json.loads(out)
    assert code == 2
    assert plan["trials"] == 0
    assert all(isinstance(problem, str) for problem in plan["problems"])
    assert any(problem.startswith(f"{bad}:2 seeds: must be") for problem in plan["problems"])


def test_results_as_json_has_exactly_its_keys_and_every_digit(disentune, finished):
    code, out, _ = disentune("results", "tiny", "--json")
    trials = json.loads(out)
    assert code == 0
    assert [trial["trial_id"] for trial in trials] == sorted(trial["trial_id"] for trial in trials)
    assert len(trials) == 12
    for trial in trials:
        assert list(trial) == ["trial_id", "status", "step", "seed", "config", "metrics"]
        row = finished.trial(trial["trial_id"]).rows()[-1]
        assert trial["config"] == finished.trial(trial["trial_id"]).tree()
        assert trial["step"] == row["step"] == 12
        assert {key: trial["metrics"][key] for key in row["metrics"]} == row["metrics"]
        assert repr(row["metrics"]["mig"]) in out


def test_load_gives_a_data_frame_of_rows(finished):
    rows = load(finished.path).rows
    assert len(rows) == 12 * 4
    assert {"trial_id", "arm", "seed", "step", "framework.beta", "mig"} <= set(rows.columns)


def test_results_group_rank_and_print(disentune, finished):
    code, out, _ = disentune("results", "tiny", "--by", "framework.name", "--metric", "recon", "--at", "min")
    assert code == 0
    assert {"ada_gvae", "beta_vae"} <= set(out.split())
    assert len(disentune("results", "tiny", "--csv")[1].splitlines()) == 1 + 48
    assert disentune("results", "tiny", "--parquet")[1].strip() == "runs/tiny/main/results.parquet"
    best = disentune("results", "tiny", "--trials")[1].splitlines()
    migs = [float(line.split()[-1]) for line in best[2:]]
    assert migs == sorted(migs, reverse=True)


def test_status_names_states_and_as_json_every_trial(disentune, finished):
    code, out, _ = disentune("status", "tiny")
    assert code == 0
    assert "not running; 12 done" in out
    status = json.loads(disentune("status", "tiny", "--json")[1])
    assert status["running"] is False
    assert [trial["state"] for trial in status["trials"]] == ["done"] * 12


def test_status_tells_the_best_and_the_file_to_read_of_a_failure(disentune, finished):
    best = max(finished.trials(), key=lambda trial: trial.rows()[-1]["metrics"]["mig"])
    broken = next(trial for trial in finished.trials() if trial.id != best.id)
    broken.update_status(state="failed", cause="ValueError: no\nTraceback")
    _, out, _ = disentune("status", "tiny")
    assert f"  {best.id}  arm " in next(line for line in out.splitlines() if line.startswith("best last value of mig "))
    assert f"at step 12: ValueError: no\n  runs/tiny/main/trials/{broken.id}/status.json" in out
    trial = next(
        one for one in json.loads(disentune("status", "tiny", "--json")[1])["trials"] if one["state"] == "failed"
    )
    assert list(trial) == [
        "trial_id",
        "arms",
        "steps",
        "state",
        "step",
        "cause",
        "attempts",
        "node",
        "seconds",
        "contents",
        "faults",
        "node_id",
    ]


# ---- watching


def test_watching_a_finished_run_shows_it_once_and_ends(disentune, finished, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("waits for nothing"))
    code, out, _ = disentune("status", "tiny", "--watch")
    assert code == 0
    assert "12/12 ended, 100%" in out
    assert out.endswith("all 12 trials have ended\nnext: disentune results runs/tiny/main\n")


def test_watching_what_nobody_runs_says_how_to_go_on_and_ends(disentune, finished):
    finished.trials()[0].update_status(state="running", step=5)
    code, out, _ = disentune("status", "tiny", "--watch")
    assert code == 0
    assert "11/12 ended" in out
    assert out.endswith("not running; go on with: disentune resume runs/tiny/main\n")


def test_watching_goes_on_while_a_driver_does_and_tells_what_changes(disentune, finished, monkeypatch):
    trial, driver, waits = finished.trials()[0], finished.locked(), []
    trial.update_status(state="running", step=5)
    driver.__enter__()

    def sleep(seconds):
        waits.append(seconds)
        trial.update_status(state="failed", cause="ValueError: no")
        if len(waits) == 2:
            driver.__exit__(None, None, None)

    monkeypatch.setattr("time.sleep", sleep)
    code, out, _ = disentune("status", "tiny", "--watch", "--every", "3.5")
    lines = out.splitlines()
    assert (code, waits) == (0, [3.5, 3.5])
    assert lines[0].startswith("11/12 trials ended; 11 done, 1 running; ")
    assert lines[1:3] == [
        f"failed {trial.id} at step 5: ValueError: no",
        f"  runs/tiny/main/trials/{trial.id}/status.json",
    ]
    assert lines[3].startswith("12/12 trials ended; 11 done, 1 failed; ")
    assert lines[-1] == "next: disentune results runs/tiny/main"


def test_watching_as_json_is_an_object_a_line(disentune, finished, monkeypatch):
    driver = finished.locked()
    driver.__enter__()
    monkeypatch.setattr("time.sleep", lambda seconds: driver.__exit__(None, None, None))
    code, out, _ = disentune("status", "tiny", "--watch", "--json")
    assert code == 0
    assert [(one["running"], one["finished"]) for one in map(json.loads, out.splitlines())] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_ends_the_watching_quietly(disentune, finished, monkeypatch, options):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with finished.locked():
        code, out, err = disentune("status", "tiny", "--watch", *options)
    assert (code, err, len(out.splitlines())) == (0, "", 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--every", "5"], "--every 5: goes with --watch alone"),
        (["--watch", "--every", "0"], "--every 0: must be from 0.1 to 86400 seconds"),
        (["--watch", "--every", "nan"], "--every nan: must be from"),
        (["--watch", "--every", "inf"], "--every inf: must be from"),
    ],
)
def test_a_wrong_interval_is_refused(disentune, finished, arguments, expected):
    code, out, err = disentune("status", "tiny", *arguments)
    assert (code, out) == (2, "")
    assert expected in err


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_filter_that_selects_nothing_starts_nothing(disentune, tmp_path, command):
    code, _, err = disentune(command, sweep_file(tmp_path), "--only", "seed == 99")
    assert code == 2
    assert "--only seed == 99: no trial of the sweep is selected" in err


def test_list_frameworks_shows_name_line_and_paper(disentune):
    lines = disentune("list", "frameworks")[1].splitlines()
    place = next(number for number, line in enumerate(lines) if line.split()[:1] == ["beta_tc_vae"])
    assert "total correlation" in lines[place]
    assert lines[place + 1].strip() == "Chen et al., NeurIPS 2018, Eq. 4"
    assert lines[place + 2].strip() == "beta (required), estimator=mws"


def test_list_shows_every_plugin_with_a_line(disentune):
    code, out, _ = disentune("list")
    assert code == 0
    for name in ("xysquares", "conv64", "ada_gvae", "overlap", "dci"):
        line = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert len(line.split()) > 3
    kinds = {"datasets", "models", "frameworks", "recons", "metrics", "figures"}
    assert set(json.loads(disentune("list", "--json")[1])) == kinds


def test_list_figures_shows_what_each_is_and_its_keys(disentune):
    code, out, _ = disentune("list", "figures")
    assert code == 0
    line = next(line for line in out.splitlines() if line.split()[:1] == ["heat_map"])
    assert line.endswith("two swept keys. (title, only, metric, x, y)")


def test_train_runs_one_selected_trial_without_writing_files(disentune, tmp_path):
    path = sweep_file(tmp_path)
    before = set(tmp_path.rglob("*"))
    code, out, _ = disentune("train", path, "--only", "arm == 'far' and seed == 1", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    assert set(tmp_path.rglob("*")) == before


def test_train_says_that_the_loss_diverged_and_where(disentune, tmp_path):
    code, out, err = disentune("train", sweep_file(tmp_path), "--set", "training.learning_rate=1e20")
    assert code == 1
    assert re.search(r"diverged: the loss became (nan|inf|[0-9.e+]+) by step 3 \(limit 1e\+20\)", err)
    assert len(out.splitlines()) == 1


def test_train_takes_the_limit_of_the_sweep_for_a_divergence(disentune, tmp_path):
    path = sweep_file(tmp_path, extra="stop: {divergence: 1e-9}")
    code, _, err = disentune("train", path)
    assert code == 1
    assert "(limit 1e-09)" in err


# ---- repeating a trial


@pytest.mark.parametrize("spelling", ["folder", "slash", "config", "absolute", "inside"])
def test_a_trial_repeats_from_its_folder_to_the_bit_and_writes_nothing(disentune, finished, monkeypatch, spelling):
    trial = finished.trials()[0]
    path = f"runs/tiny/main/trials/{trial.id}"
    given = {
        "folder": path,
        "slash": f"{path}/",
        "config": f"{path}/config.json",
        "absolute": trial.path,
        "inside": ".",
    }
    if spelling == "inside":
        monkeypatch.chdir(trial.path)
    before = {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()}
    code, out, err = disentune("train", given[spelling])
    assert code == 0
    assert err == f"trial {trial.id}: 12 steps\n"
    assert [line.split()[:2] for line in out.splitlines()[:-1]] == [["step", str(step)] for step in (3, 6, 9, 12)]
    assert out.splitlines()[-1] == "all 4 rows equal the recorded ones to the bit"
    assert {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()} == before


def test_repeated_rows_as_json_are_the_recorded_ones_and_nothing_else(disentune, finished):
    trial = finished.trials()[1]
    code, out, err = disentune("train", trial.path, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in trial.rows()]
    assert err.splitlines()[-1] == "all 4 rows equal the recorded ones to the bit"


def rewritten(trial, change):
    """The trial's rows, each as `change` makes it; None leaves it away."""
    rows = [changed for row in trial.rows() if (changed := change(row)) is not None]
    trial.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def with_numbers(step, **numbers):
    return lambda row: {**row, "metrics": row["metrics"] | numbers} if row["step"] == step else row


def test_the_first_number_that_differs_is_told_with_both_values(disentune, finished):
    trial = finished.trials()[0]
    metrics = trial.rows()[1]["metrics"]
    other = math.nextafter(metrics["kl"], 0)
    rewritten(trial, with_numbers(6, kl=other))
    rewritten(trial, with_numbers(9, loss=5.0))
    code, out, _ = disentune("train", trial.path)
    assert code == 1
    assert out.splitlines()[-1] == f"differs first at step 6: kl is {metrics['kl']!r} here, but {other!r} is recorded"


def row(step=3, **metrics):
    return {"step": step, "metrics": metrics}


def test_zero_and_minus_zero_differ_and_nan_equals_itself():
    assert app._first_difference([row(a=0.0)], [row(a=-0.0)])
    assert not app._first_difference([row(a=float("nan"))], [row(a=float("nan"))])


def test_numbers_and_rows_that_one_side_alone_has_are_differences():
    differs = app._first_difference
    assert (
        differs([row(a=1.0, b=2.0)], [row(a=1.0)]) == "differs first at step 3: b is 2.0 here, but nothing is recorded"
    )
    assert (
        differs([row(a=1.0)], [row(a=1.0, b=2.0)]) == "differs first at step 3: b is nothing here, but 2.0 is recorded"
    )
    assert differs([row(3), row(6)], [row(6)]) == "differs first at step 3: it has a row here alone"
    assert differs([row(3)], [row(3), row(6)]) == "differs first at step 6: it has a row recorded alone"
    assert differs([row(3), row(6)], [row(3)]) == ""
    assert differs([row(3)], []) == ""
    details = [{**row(3), "details": {"table": [1.0, value]}} for value in (2.0, 3.0)]
    assert differs(details[:1], details[1:]).startswith("differs first at step 3: details.table is [1.0, 2.0] here")


def test_what_is_not_recorded_yet_is_told(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, lambda row: row if row["step"] <= 6 else None)
    code, out, _ = disentune("train", trial.path)
    assert code == 0
    assert out.splitlines()[-1] == "2 of 4 rows equal the recorded ones to the bit; none is recorded after step 6"
    trial.rows_path.unlink()
    code, out, _ = disentune("train", trial.path)
    assert code == 0
    assert out.splitlines()[-1] == "no row is recorded to compare with"


def test_a_difference_names_the_environment_that_changed(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, with_numbers(6, kl=0.5))
    path = finished.path / "environment.json"
    then = json.loads(path.read_text())
    then["packages"]["torch"] = "1.0"
    path.write_text(json.dumps(then))
    _, _, err = disentune("train", trial.path)
    assert "note: the run began with another environment: torch 1.0 -> " in err


def test_a_difference_names_the_plug_in_that_changed(disentune, tmp_path, monkeypatch):
    source = """
from disentune.frameworks import beta_vae
from disentune.plugin import Framework
FRAMEWORK = Framework(name="mine", params=beta_vae.Params, loss=beta_vae.loss)
"""
    (tmp_path / "own_vae_18.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    run, path = Run(tmp_path / "runs" / "tiny" / "main"), sweep_file(tmp_path)
    simulate(run, path, np.random.default_rng(0), overrides=["framework.name='own_vae_18:FRAMEWORK'", "seeds=1"])
    trial = run.trials()[0]
    code, _, err = disentune("train", trial.path)
    assert (code, "own_vae_18" in err) == (0, False)
    (tmp_path / "own_vae_18.py").write_text(f"{source}# another\n")
    rewritten(trial, with_numbers(6, kl=0.5))
    code, _, err = disentune("train", trial.path)
    sys.modules.pop("own_vae_18")
    assert code == 1
    assert "note: the run began with another environment: source of own_vae_18 " in err


def test_a_trial_that_diverged_diverges_again(disentune, tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path), np.random.default_rng(0), overrides=["training.learning_rate=1e20"])
    trial = run.trials()[0]
    assert trial.status().state == "diverged"
    code, out, err = disentune("train", trial.path)
    assert code == 1
    assert f"diverged: {trial.status().cause}" in err
    assert out.splitlines()[-1] == "no row is recorded to compare with; it diverged as recorded"
    trial.update_status(cause="the loss became 7 by step 9 (limit 1)")
    out = disentune("train", trial.path)[1]
    assert "differs at its end: the loss became" in out
    assert "but the loss became 7 by step 9 (limit 1) is recorded" in out


def test_a_divergence_that_did_not_come_again_is_a_difference(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, lambda row: row if row["step"] <= 6 else None)
    trial.update_status(state="diverged", cause="the loss became nan by step 9 (limit 1e+20)")
    code, out, _ = disentune("train", trial.path)
    assert code == 1
    assert out.splitlines()[-1] == (
        "differs at its end: the loss stayed sound here, but the loss became nan by step 9 (limit 1e+20) is recorded"
    )


@pytest.mark.parametrize("known_by", ["rows", "generations"])
def test_a_trial_that_a_population_changed_is_not_repeated(disentune, tmp_path, known_by):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, "random", "pbt"), np.random.default_rng(0))
    changed = next(trial for trial in run.trials() if any("overrides" in row for row in trial.rows()))
    (changed.rows_path if known_by == "generations" else run.path / "population.json").unlink()
    code, out, err = disentune("train", changed.path)
    assert (code, out) == (2, "")
    assert f"trial {changed.id} cannot be repeated by itself: by step " in err
    assert "population based training" in err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "seed=3"], "--set seed=3: would make another trial than"),
        (["--only", "seed == 0"], "--only seed == 0: chooses a trial of a sweep"),
    ],
)
def test_a_trials_folder_is_repeated_as_it_is_or_not_at_all(disentune, finished, options, expected):
    code, out, err = disentune("train", finished.trials()[0].path, *options)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_folder_that_is_no_trials_is_refused_with_one_that_is(disentune, finished, tmp_path):
    code, _, err = disentune("train", "runs/tiny/main")
    assert code == 2
    assert f"name one such as runs/tiny/main/trials/{finished.trials()[0].id}" in err
    assert "name one such as runs/SWEEP/RUN/trials/ID" in disentune("train", ".")[2]


def test_a_config_that_was_edited_is_not_repeated_under_its_old_name(disentune, finished):
    path = finished.trials()[0].path / "config.json"
    path.write_text(path.read_text().replace('"batch_size": 4', '"batch_size": 5'))
    code, out, err = disentune("train", path)
    assert (code, out) == (2, "")
    assert "was edited" in err


def test_a_repeat_reads_data_where_the_run_did(disentune, tmp_path, monkeypatch):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, extra=f"data: {{root: {tmp_path}}}"), np.random.default_rng(0))
    used = []
    monkeypatch.setattr(store, "use_root", used.append)
    assert disentune("train", run.trials()[0].path)[0] == 0
    assert used == [str(tmp_path)]


def test_a_repeat_on_other_data_is_refused(disentune, finished):
    trial = finished.trials()[0]
    trial.update_status(contents=["0123"])
    code, out, err = disentune("train", trial.path)
    assert (code, out) == (2, "")
    assert "was trained on other contents of 'xysquares' than are prepared here" in err


def test_a_trial_of_a_gpu_is_refused_where_there_is_none(disentune, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = sweep_file(tmp_path, extra="resources: {gpu: 1}")
    code, out, err = disentune("train", path)
    assert (code, out) == (2, "")
    assert "trains on a GPU (training.device: cuda), and this machine has none" in err


def test_a_copied_trial_repeats_without_its_run(disentune, finished, tmp_path):
    trial = finished.trials()[0]
    shutil.copytree(trial.path, tmp_path / "elsewhere" / trial.id)
    assert disentune("train", f"elsewhere/{trial.id}")[0] == 0


def test_only_and_limit_choose_trials(disentune, tmp_path):
    path = sweep_file(tmp_path)
    assert (
        json.loads(disentune("plan", path, "--json", "--only", "seed == 0 and framework.beta < 0.05")[1])["trials"] == 4
    )
    assert json.loads(disentune("plan", path, "--json", "--limit", "5")[1])["new"] == 5


GOOD = QUICKSTART.read_text()
WRONG = {
    "unknown key": ([("batch_size", "batchsize")], ["training.batchsize: unknown key. Did you mean 'batch_size'"]),
    "unknown name": ([("beta_vae]", "betavae]")], ["unknown framework 'betavae'. Did you mean 'beta_vae'?"]),
    "wrong type": ([("steps: 1500", "steps: many")], ["training.steps: must be a whole number, got 'many'"]),
    "empty grid": ([("grid: [ada_gvae, beta_vae]", "grid: []")], ["at least 1 item"]),
    "negative beta": ([("beta: 1e-3", "beta: {grid: [-1]}")], ["framework.beta: must be >= 0, but the grid has -1"]),
    "misfit": ([("spacing: 4", "spacing: 40")], ["dataset.grid_size"]),
    "unset": ([("  loss_scale: mean\n", "")], ["loss_scale: is required, but not set"]),
    "several": ([("batch_size", "batchsize"), ("seeds: 3", "seeds: no")], ["batchsize", "seeds: must be"]),
    "binary": ([(GOOD, "\x00\x01\x02")], ["cannot be read"]),
    "no mapping": ([(GOOD, "just a text")], ["must be a mapping"]),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("command", ["plan", "run", "train"])
def test_a_wrong_sweep_is_refused_with_its_line_and_nothing_is_started(disentune, tmp_path, kind, command):
    changes, expected = WRONG[kind]
    text = GOOD
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    code, out, err = disentune(command, path)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    for part in expected:
        assert part in err
    assert "wrong.yaml" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["resume", "nothing"], "no run 'nothing'"),
        (["results", "../../etc"], "no run"),
        (["status", "nothing"], "There are no runs in runs"),
        (["list", "framework"], "Did you mean 'frameworks'?"),
        (["run", str(QUICKSTART), "--name", "../escape"], "--name '../escape'"),
        (["run", str(QUICKSTART), "--storage", "ftp://host/runs"], "ftp:// is not supported; must be a folder"),
        (["run", str(QUICKSTART), "--set", "training.steps"], "must be key=value"),
        (["run", str(QUICKSTART), "--set", "training.step=3"], "Did you mean 'steps'?"),
        (["run", str(QUICKSTART), "--only", "framework.nam == 1"], "framework.nam"),
        (["run", str(QUICKSTART), "--only", "import os"], "cannot be read"),
        (["plan", str(QUICKSTART), "--set", "search=gird"], "must be one of grid, random, optuna"),
        (["train", str(QUICKSTART), "--only", "seed == 99"], "none of the 18 trials"),
    ],
)
def test_wrong_arguments_are_refused_in_one_message(disentune, arguments, expected):
    code, out, err = disentune(*arguments)
    assert code == 2
    assert expected in err
    assert "Traceback" not in out + err


def test_an_unwritable_storage_is_refused_before_ray_starts(disentune, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = disentune("run", QUICKSTART, "--storage", "file/runs")
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.parametrize("name", ["status.json", "config.json", "rows.jsonl"])
@pytest.mark.parametrize("command", ["results", "resume"])
def test_a_corrupt_ledger_file_is_named_and_nothing_is_lost(disentune, finished, name, command):
    path = finished.trials()[3].path / name
    path.write_text("{ruined\n")
    before = {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()}
    code, _, err = disentune(command, "tiny")
    assert code == 2
    assert str(path) in err
    assert "Traceback" not in err
    assert {file: data for file, data in before.items() if file.name not in ("driver.lock", "sweep.yaml")}.items() <= {
        file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()
    }.items()


@pytest.mark.parametrize("command", [["results", "tiny"], ["results", "tiny", "--json"], ["status", "tiny"],
                                     ["status", "tiny", "--json"], ["plan", "tiny.yaml"]])  # fmt: skip
def test_a_copy_of_a_trial_beside_it_counts_nowhere_and_is_named(disentune, finished, tmp_path, command):
    sweep_file(tmp_path)
    before = disentune(*command)
    copied = finished.trials()[0].path
    shutil.copytree(copied, copied.with_name(f"{copied.name}.bak"))
    code, out, err = disentune(*command)
    assert code == 0
    assert f"trials: {copied.name}.bak ignored" in out + err
    kept = [line for line in out.splitlines() if "note:" not in line]
    assert kept == [line for line in before[1].splitlines() if "note:" not in line]


@pytest.mark.parametrize("command", [["results", "tiny"], ["results", "tiny", "--json"], ["results", "tiny", "--csv"],
                                     ["status", "tiny"], ["status", "tiny", "--json"], ["plan", "tiny.yaml"],
                                     ["report", "tiny"]])  # fmt: skip
def test_whoever_looks_at_a_run_hears_of_rows_that_were_cut(disentune, finished, tmp_path, command):
    sweep_file(tmp_path)
    folder = finished.trials()[2]
    folder.rows_path.write_bytes(b"".join(folder.rows_path.read_bytes().splitlines(keepends=True)[:2]))
    code, out, err = disentune(*command)
    assert code == 0
    told = out + err
    assert f"{folder.id} from step 9 on" in told or f"{folder.id}/rows.jsonl lacks the row of step 9" in told


def test_a_changed_sweep_is_explained_and_not_mixed(disentune, finished, tmp_path):
    code, _, err = disentune("run", sweep_file(tmp_path), "--set", "training.learning_rate=0.5")
    assert code == 2
    assert "no longer asks for" in err
    assert "training.learning_rate was 0.01, is 0.5" in err
    assert "--name NEW" in err


# ---- what is said after a session


def stopped_session(monkeypatch, tmp_path, with_checkpoint):
    """A driver that is stopped after two trials have begun, of which some have written a checkpoint."""

    def launch(run, asked, *_):
        run.record(asked.sweep)
        for number, point in enumerate(asked.points[:2]):
            folder = run.trial(point.config.id)
            folder.create(point.config, point.arms)
            folder.set_status(Status(state="pending", attempts=1))
            if number < with_checkpoint:
                folder.checkpoints.save(3, {})
        return Ending("SIGTERM", 0)

    monkeypatch.setattr("disentune.driver.sweep.launch", launch)
    return sweep_file(tmp_path)


@pytest.mark.parametrize(
    ("with_checkpoint", "text"),
    [
        (2, "stopped (SIGTERM); every trial is checkpointed. Continue with:"),
        (1, "stopped (SIGTERM); 1 of 2 begun trials have a checkpoint, the others start again. Continue with:"),
        (0, "stopped (SIGTERM); 0 of 2 begun trials have a checkpoint, the others start again. Continue with:"),
    ],
)
def test_only_checkpoints_that_are_there_are_claimed(disentune, monkeypatch, tmp_path, with_checkpoint, text):
    code, out, _ = disentune("run", stopped_session(monkeypatch, tmp_path, with_checkpoint))
    assert code == 130
    assert text in out


def test_commands_that_are_printed_after_a_run_can_be_copied(disentune, monkeypatch, tmp_path):
    path = stopped_session(monkeypatch, tmp_path, 2)
    _, out, _ = disentune("run", path, "--storage", "my runs")
    assert "\n  disentune resume 'my runs/tiny/main'\n" in out
    monkeypatch.setattr("disentune.driver.sweep.launch", lambda run, sweep, *_: Ending("", 0))
    run = Run(tmp_path / "my runs" / "tiny" / "main")
    shutil.rmtree(run.path)
    simulate(run, path, np.random.default_rng(0))
    _, out, _ = disentune("run", path, "--storage", "my runs")
    assert "next:\n  disentune report 'my runs/tiny/main'\n  disentune results 'my runs/tiny/main'\n" in out


def test_a_session_whose_output_breaks_runs_to_its_end_and_logs_it(disentune, monkeypatch, tmp_path):
    path = stopped_session(monkeypatch, tmp_path, 2)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as broken, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", broken)
        code, _, _ = disentune("run", path)
    assert code == 130
    log = (tmp_path / "runs" / "tiny" / "main" / "run.log").read_text()
    assert "an output cannot be written (Broken pipe)" in log
    assert log.endswith("stopped (SIGTERM); every trial is checkpointed. Continue with:\n"
                        "  disentune resume runs/tiny/main\n")  # fmt: skip


def test_a_full_disk_behind_standard_output_is_not_called_the_storage(finished):
    command = [sys.executable, "-m", "disentune.cli", "results", str(finished.path)]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*command, "--csv"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "standard output cannot be written: No space left on device\n")


def test_a_ray_that_does_not_answer_ends_with_75(disentune, monkeypatch, tmp_path):
    def launch(*_):
        raise Unavailable("a local Ray could not be started (took too long); 3 attempts failed")

    monkeypatch.setattr("disentune.driver.sweep.launch", launch)
    code, _, err = disentune("run", sweep_file(tmp_path))
    assert code == 75
    assert "a local Ray could not be started" in err
