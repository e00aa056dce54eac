"""What other programs call keeps its shape, and every wrong input gets one message and exit code 2."""

import json
from pathlib import Path

import pytest

from disentune import load
from disentune.ledger import Run
from simulator import simulate, sweep_file

QUICKSTART = Path(__file__).parents[1] / "sweeps" / "quickstart.yaml"


@pytest.fixture
def finished(tmp_path):
    """A small run that has ended, at runs/tiny/main."""
    import numpy as np

    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path), np.random.default_rng(0))
    return run


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
    assert set(json.loads(disentune("list", "--json")[1])) == {"datasets", "models", "frameworks", "recons", "metrics"}


def test_train_runs_one_selected_trial_without_writing_files(disentune, tmp_path):
    path = sweep_file(tmp_path)
    before = set(tmp_path.rglob("*"))
    code, out, _ = disentune("train", path, "--only", "arm == 'far' and seed == 1", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    assert set(tmp_path.rglob("*")) == before


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
        (["run", str(QUICKSTART), "--storage", "s3://bucket"], "must be a folder"),
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


def test_a_changed_sweep_is_explained_and_not_mixed(disentune, finished, tmp_path):
    code, _, err = disentune("run", sweep_file(tmp_path), "--set", "training.learning_rate=0.5")
    assert code == 2
    assert "no longer asks for" in err
    assert "training.learning_rate was 0.01, is 0.5" in err
    assert "--name NEW" in err
