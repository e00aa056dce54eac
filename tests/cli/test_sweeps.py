"""Plans keep their shape, wrong sweeps are refused before anything starts, and what is said after a session."""

import json
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from disentune.cli import terminal
from disentune.driver.sweep import Ending
from disentune.runs.ledger import Run
from disentune.runs.transfers import Transfers
from disentune.runs.trial_folder import Status
from simulator import simulate, sweep_file

QUICKSTART = Path(__file__).parents[2] / "sweeps" / "quickstart.yaml"


@pytest.mark.parametrize(("gpu", "here", "notes"), [(1, False, 1), (1, True, 0), (0, False, 0)])
def test_a_plan_says_when_this_machine_lacks_the_gpu_that_trials_need(
    disentune, tmp_path, monkeypatch, gpu, here, notes
):
    monkeypatch.setattr("disentune.learn.cuda.is_available", lambda: here)
    code, out, _ = disentune("plan", sweep_file(tmp_path), "--set", f"resources.gpu={gpu}")
    assert code == 0
    assert out.count("note: resources.gpu: this machine has no GPU; run with --address of a cluster") == notes


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
    assert "checking points: 0 of 6" in err


def test_plan_as_json_lists_problems_and_exits_with_2(disentune, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("trial: {framework.name: betavae}\nseeds: -1\n")
    code, out, _ = disentune("plan", bad, "--json")
    plan = json.loads(out)
    assert code == 2
    assert plan["trials"] == 0
    assert all(isinstance(problem, str) for problem in plan["problems"])
    assert any(problem.startswith(f"{bad}:2 seeds: must be") for problem in plan["problems"])


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_filter_that_selects_nothing_starts_nothing(disentune, tmp_path, command):
    code, _, err = disentune(command, sweep_file(tmp_path), "--only", "seed == 99")
    assert code == 2
    assert "--only 'seed == 99': selects no trial of the sweep" in err


@pytest.mark.parametrize("given", ["quickstart", "sweeps/quickstrat.yaml"])
def test_the_path_of_a_sweep_is_suggested_for_its_name_or_a_misspelling(disentune, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    Path("sweeps/paper").mkdir(parents=True)
    Path("sweeps/paper/quickstart.yaml").touch()
    expected = f"{given} does not exist. Did you mean sweeps/paper/quickstart.yaml?\n"
    assert disentune("plan", given)[::2] == (2, expected)


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
    "unset": ([("  loss_scale: mean\n", "")], ["loss_scale: is required but not set"]),
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


@pytest.mark.parametrize("command", [("run", "tiny.yaml"), ("resume", "tiny")])
def test_a_second_driver_is_refused_before_a_plan_is_printed(disentune, finished, command):
    with finished.locked():
        code, out, err = disentune(*command)
    assert (code, out) == (2, "")
    assert "runs/tiny/main is already being run by process" in err


@pytest.mark.parametrize("command", ["plan", "run", "submit"])
def test_an_empty_filter_is_refused_alike_by_every_command(disentune, tmp_path, command):
    sweep_file(tmp_path)
    storage = ["--storage", "/runs"] if command == "submit" else []
    code, out, err = disentune(command, "tiny.yaml", "--only", "", *storage)
    assert (code, out) == (2, "")
    assert err.startswith("--only '': is empty; omit it to take every trial, or write for example: framework.name")


def test_an_unwritable_storage_is_refused_before_ray_starts(disentune, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = disentune("run", QUICKSTART, "--storage", "file/runs")
    assert code == 2
    assert "cannot be written" in err


def test_a_changed_sweep_is_explained_and_not_mixed(disentune, finished, tmp_path):
    code, _, err = disentune("run", sweep_file(tmp_path), "--set", "training.learning_rate=0.5")
    assert code == 2
    assert "no longer asks for" in err
    assert "training.learning_rate was 0.01, is 0.5" in err
    assert "--name NEW" in err
    assert "--drop" in err


def test_a_plan_names_the_trials_that_are_set_aside_and_status_lists_them(disentune, finished, tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    code, out, _ = disentune("plan", path, "--set", "seeds=1", "--drop")
    assert code == 0
    assert "6 trials set aside in the run's folder dropped/" in out
    assert run.dropped() == {}  # a plan moves nothing
    with run.locked():
        Transfers(drop=tuple(folder.id for folder in run.trials()[:2])).carry_out(run, print)
    assert "2 trials set aside" in disentune("status", "tiny")[1]
    _, out, _ = disentune("plan", path)
    assert "2 trials restored from dropped/" in out
    assert "12 done" in out


def test_a_plan_says_how_many_trials_are_taken_over_and_from_where(disentune, finished, tmp_path):
    code, out, _ = disentune("plan", sweep_file(tmp_path), "--name", "other", "--set", "seeds=3")
    assert code == 0
    assert "0 done, 12 taken over from runs/tiny/main, 0 to continue, 6 new" in out
    _, out, _ = disentune("plan", sweep_file(tmp_path), "--name", "other", "--json")
    assert json.loads(out)["taken_over"] == {"runs/tiny/main": 12}


def test_a_second_driver_is_refused_before_anything_is_printed(disentune, finished, tmp_path):
    with Run(tmp_path / "runs" / "tiny" / "main").locked():
        code, out, err = disentune("run", sweep_file(tmp_path))
    assert code == 2
    assert "is already being run" in err
    assert out == ""


def test_a_finished_run_starts_no_ray_and_does_not_say_so(disentune, finished, tmp_path):
    code, out, _ = disentune("run", sweep_file(tmp_path))
    assert code == 0
    assert "Ray" not in out
    assert "12 done" in out


# ---- what is said after a session


def stopped_session(monkeypatch, tmp_path, with_checkpoint):
    """A driver that is stopped after two trials have begun, of which some have written a checkpoint. A third trial was
    given a slot when the stop had been asked for already, and trained nothing."""

    def launch(request):
        run, asked = request.run, request.asked
        run.record(asked.sweep)
        for number, point in enumerate(asked.points[:3]):
            folder = run.trial(point.config.id)
            folder.create(point.config, point.arms)
            folder.set_status(Status(state="pending", step=3 if number < 2 else 0, attempts=1))
            if number < with_checkpoint:
                folder.checkpoints.save(3, {})
        return Ending("SIGTERM", 0)

    monkeypatch.setattr("disentune.driver.sweep.launch", launch)
    return sweep_file(tmp_path)


@pytest.mark.parametrize(
    ("with_checkpoint", "text"),
    [
        (2, "stopped (SIGTERM); every trial that had started has a checkpoint. Continue with:"),
        (1, "stopped (SIGTERM); 1 of 2 started trials have a checkpoint; the others start again. Continue with:"),
        (0, "stopped (SIGTERM); 0 of 2 started trials have a checkpoint; the others start again. Continue with:"),
    ],
)
def test_only_checkpoints_that_are_there_are_claimed(disentune, monkeypatch, tmp_path, with_checkpoint, text):
    code, out, _ = disentune("run", stopped_session(monkeypatch, tmp_path, with_checkpoint))
    assert code == 130
    assert text in out


@pytest.mark.slow
def test_commands_that_are_printed_after_a_run_can_be_copied(disentune, monkeypatch, tmp_path):
    path = stopped_session(monkeypatch, tmp_path, 2)
    _, out, _ = disentune("run", path, "--storage", "my runs")
    assert "\n  disentune resume 'my runs/tiny/main'\n" in out
    monkeypatch.setattr("disentune.driver.sweep.launch", lambda request: Ending("", 0))
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
    assert "the output cannot be written (Broken pipe)" in log
    assert log.endswith("stopped (SIGTERM); every trial that had started has a checkpoint. Continue with:\n"
                        "  disentune resume runs/tiny/main\n")  # fmt: skip
