"""One trial without Ray, and a recorded one again, bit for bit."""

import json
import math
import re
import shutil
import sys

import numpy as np
import pytest

from disentune.cli import train
from disentune.data.prepared import store
from disentune.runs.ledger import Run
from simulator import simulate, sweep_file


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
    assert re.search(r"diverged: the loss was (nan|inf|[0-9.e+]+) at step 3 \(limit 1e\+20\)", err)
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
    assert out.splitlines()[-1] == "all 4 rows equal the recorded ones, bit for bit"
    assert {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()} == before


def test_repeated_rows_as_json_are_the_recorded_ones_and_nothing_else(disentune, finished):
    trial = finished.trials()[1]
    code, out, err = disentune("train", trial.path, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in trial.rows()]
    assert err.splitlines()[-1] == "all 4 rows equal the recorded ones, bit for bit"


def rewritten(trial, change):
    """The trial's rows, each as `change` makes it; None leaves it away."""
    rows = [changed for row in trial.rows() if (changed := change(row)) is not None]
    trial.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def with_numbers(step, **numbers):
    return lambda row: {**row, "metrics": row["metrics"] | numbers} if row["step"] == step else row


def test_the_first_number_that_differs_is_reported_with_both_values(disentune, finished):
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
    assert train._first_difference([row(a=0.0)], [row(a=-0.0)])
    assert not train._first_difference([row(a=float("nan"))], [row(a=float("nan"))])


def test_numbers_and_rows_that_one_side_alone_has_are_differences():
    differs = train._first_difference
    assert (
        differs([row(a=1.0, b=2.0)], [row(a=1.0)]) == "differs first at step 3: b is 2.0 here, but nothing is recorded"
    )
    assert (
        differs([row(a=1.0)], [row(a=1.0, b=2.0)]) == "differs first at step 3: b is nothing here, but 2.0 is recorded"
    )
    assert differs([row(3), row(6)], [row(6)]) == "differs first at step 3: the row exists only here"
    assert differs([row(3)], [row(3), row(6)]) == "differs first at step 6: the row exists only in the record"
    assert differs([row(3), row(6)], [row(3)]) == ""
    assert differs([row(3)], []) == ""
    details = [{**row(3), "details": {"table": [1.0, value]}} for value in (2.0, 3.0)]
    assert differs(details[:1], details[1:]).startswith("differs first at step 3: details.table is [1.0, 2.0] here")


def test_what_is_not_recorded_yet_is_reported(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, lambda row: row if row["step"] <= 6 else None)
    code, out, _ = disentune("train", trial.path)
    assert code == 0
    assert out.splitlines()[-1] == "2 of 4 rows equal the recorded ones, bit for bit; none is recorded after step 6"
    trial.rows_path.unlink()
    code, out, _ = disentune("train", trial.path)
    assert code == 0
    assert out.splitlines()[-1] == "there are no recorded rows to compare with"


def test_a_difference_names_the_environment_that_changed(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, with_numbers(6, kl=0.5))
    path = finished.path / "environment.json"
    then = json.loads(path.read_text())
    then["packages"]["torch"] = "1.0"
    path.write_text(json.dumps(then))
    _, _, err = disentune("train", trial.path)
    assert "note: the run was started in a different environment: torch 1.0 -> " in err


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
    assert "note: the run was started in a different environment: source of own_vae_18 " in err


def test_a_trial_that_diverged_diverges_again(disentune, tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path), np.random.default_rng(0), overrides=["training.learning_rate=1e20"])
    trial = run.trials()[0]
    assert trial.status().state == "diverged"
    code, out, err = disentune("train", trial.path)
    assert code == 1
    assert f"diverged: {trial.status().cause}" in err
    assert out.splitlines()[-1] == "there are no recorded rows to compare with; it diverged as recorded"
    trial.update_status(cause="the loss was 7 at step 9 (limit 1)")
    out = disentune("train", trial.path)[1]
    assert "differs at its end: the loss was" in out
    assert "but 'the loss was 7 at step 9 (limit 1)' is recorded" in out


def test_a_divergence_that_did_not_come_again_is_a_difference(disentune, finished):
    trial = finished.trials()[0]
    rewritten(trial, lambda row: row if row["step"] <= 6 else None)
    trial.update_status(state="diverged", cause="the loss was nan at step 9 (limit 1e+20)")
    code, out, _ = disentune("train", trial.path)
    assert code == 1
    assert out.splitlines()[-1] == (
        "differs at its end: the loss did not diverge here, but 'the loss was nan at step 9 (limit 1e+20)' is recorded"
    )


@pytest.mark.slow
@pytest.mark.parametrize("known_by", ["rows", pytest.param("generations", marks=pytest.mark.long)])
def test_a_trial_that_a_population_changed_is_not_repeated(disentune, tmp_path, known_by):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, "random", "pbt"), np.random.default_rng(0))
    changed = next(trial for trial in run.trials() if any("overrides" in row for row in trial.rows()))
    (changed.rows_path if known_by == "generations" else run.path / "population.json").unlink()
    code, out, err = disentune("train", changed.path)
    assert (code, out) == (2, "")
    assert f"trial {changed.id} cannot be repeated by itself: at step " in err
    assert "population based training" in err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "seed=3"], "--set seed=3: a recorded trial cannot be changed"),
        (["--only", "seed == 0"], "--only seed == 0: selects trials of a sweep"),
    ],
)
def test_a_trials_folder_is_repeated_as_it_is_or_not_at_all(disentune, finished, options, expected):
    code, out, err = disentune("train", finished.trials()[0].path, *options)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_folder_that_is_not_a_trials_is_refused_with_an_example(disentune, finished, tmp_path):
    code, _, err = disentune("train", "runs/tiny/main")
    assert code == 2
    assert f"give a folder such as runs/tiny/main/trials/{finished.trials()[0].id}" in err
    assert "give a folder such as runs/SWEEP/RUN/trials/ID" in disentune("train", ".")[2]


def test_a_config_that_was_edited_is_not_repeated_under_its_old_name(disentune, finished):
    path = finished.trials()[0].path / "config.json"
    path.write_text(path.read_text().replace('"batch_size": 4', '"batch_size": 5'))
    code, out, err = disentune("train", path)
    assert (code, out) == (2, "")
    assert "was edited" in err


@pytest.mark.slow
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
    assert "was trained on different contents of 'xysquares' than those prepared here" in err


def test_a_trial_of_a_gpu_is_refused_where_there_is_none(disentune, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = sweep_file(tmp_path, extra="resources: {gpu: 1}")
    code, out, err = disentune("train", path)
    assert (code, out) == (2, "")
    assert "needs a GPU (training.device: cuda), but this machine has none" in err


def test_a_trial_of_a_mac_is_refused_on_another_machine(disentune, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    code, out, err = disentune("train", sweep_file(tmp_path), "--set", "training.device=mps")
    assert (code, out) == (2, "")
    assert "needs a GPU (training.device: mps), but this machine has none" in err


def test_a_copied_trial_repeats_without_its_run(disentune, finished, tmp_path):
    trial = finished.trials()[0]
    shutil.copytree(trial.path, tmp_path / "elsewhere" / trial.id)
    assert disentune("train", f"elsewhere/{trial.id}")[0] == 0
