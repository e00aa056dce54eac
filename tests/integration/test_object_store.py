"""A sweep whose ledger is in an object store: the same table, bit for bit, whatever happens on the way."""

import json
import signal

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.files.storage import place, read_bytes
from disentune.results.tables import read, write_parquet
from disentune.results.watch import Watcher
from disentune.runs.ledger import Run
from disentune.spec.config import PLAIN_SECTIONS, PLUGIN_SECTIONS, id_of
from processes import patience_s, wait_until
from simulator import disturbed, simulate, sweep_file, table

LONGER = ["seeds=1", "training.steps=960", "training.log_every=80", "evaluation.every=80", "checkpoint.every_steps=80"]
"""Long enough to be interrupted in the middle."""


@pytest.fixture
def runs(object_store, tmp_path):
    """One in a folder, one in the store; both of the same name."""
    return Run(tmp_path / "runs" / "tiny" / "main"), Run(place("s3://bucket/runs/tiny/main"))


def small_sweep(folder, search, scheduler):
    path = sweep_file(folder, search, scheduler)
    path.write_text(path.read_text().replace("seeds: 2", "seeds: 1"))
    return path


def written(run):
    return read_bytes(write_parquet(read(run)))


@pytest.mark.long
@pytest.mark.parametrize(("search", "scheduler"), [("optuna", "none"), ("grid", "pbt")])
def test_a_folder_and_a_store_give_the_same_table_and_the_same_bytes(runs, tmp_path, search, scheduler):
    local, remote = runs
    path = small_sweep(tmp_path, search, scheduler)
    for run in runs:
        simulate(run, path, np.random.default_rng(0))
    assert table(remote) == table(local)
    assert written(remote) == written(local)


@pytest.mark.long
@pytest.mark.parametrize(("search", "scheduler"), [("grid", "none"), ("optuna", "asha")])
def test_deaths_of_the_driver_and_stumbles_of_the_store_change_nothing(runs, object_store, tmp_path, search, scheduler):
    local, remote = runs
    path = small_sweep(tmp_path, search, scheduler)
    simulate(local, path, np.random.default_rng(0))
    object_store.faults = [*[""] * 40, 503, *[""] * 40, "drop", *[""] * 40, 500] * 3
    assert disturbed(remote, path, seed=1) > 0
    assert object_store.faults == []
    assert table(remote) == table(local)
    assert written(remote) == written(local)


@pytest.mark.slow
def test_looking_at_a_run_lists_it_once_and_reads_each_file_once(runs, object_store, tmp_path):
    _, remote = runs
    for number in range(40):
        folder = remote.path / "trials" / id_of(config(number))
        (folder / "config.json").write_bytes(json.dumps({"arms": ["all"], "config": config(number)}).encode())
        (folder / "status.json").write_bytes(json.dumps({"state": "done", "step": 10}).encode())
        (folder / "rows.jsonl").write_bytes(b'{"step": 10, "metrics": {"loss": 1.0}}\n')
        (folder / "checkpoints" / "step-0000000010.ckpt").write_bytes(b"large")
    object_store.requests.clear()
    assert len(read(remote).records) == 40
    assert_few(object_store.requests, files=3 * 40)
    object_store.requests.clear()
    watcher = Watcher(remote)
    assert len(watcher.look().trials) == 40
    assert_few(object_store.requests, files=3 * 40)


def config(seed):
    named = {section: {"name": "any"} for section in PLUGIN_SECTIONS}
    return named | {section: {} for section in PLAIN_SECTIONS} | {"training": {"steps": 10}, "seed": seed}


def assert_few(requests, files):
    """For each file its size, its content and its size again; and little besides."""
    assert sum("list-type" in request for request in requests) <= 4
    assert len(requests) <= 3 * files + 15
    assert not any("checkpoints" in request for request in requests)


@pytest.mark.slow
def test_a_second_look_reads_only_what_changed(runs, object_store, monkeypatch):
    from disentune.results import watch

    monkeypatch.setattr(watch, "COARSE_S", 0.0)
    _, remote = runs
    for number in range(5):
        folder = remote.path / "trials" / id_of(config(number))
        (folder / "config.json").write_bytes(json.dumps({"arms": ["all"], "config": config(number)}).encode())
        (folder / "status.json").write_bytes(json.dumps({"state": "running", "step": 1}).encode())
    watcher = Watcher(remote)
    watcher.look()
    watcher.look()  # an object's time has whole seconds: a second reading is needed to be sure
    object_store.requests.clear()
    remote.trial(id_of(config(3))).update_status(step=7)
    watcher.look()
    reads = [request for request in object_store.requests if request.startswith("GET") and "list-type" not in request]
    assert {request.split("/")[-2] for request in reads if "status.json" in request} == {id_of(config(3))}
    assert not any("config.json" in request for request in reads)
    assert sorted(trial.step for trial in watcher.look().trials) == [1, 1, 1, 1, 7]


@pytest.mark.long
def test_the_commands_work_on_a_run_by_its_address(runs, disentune, tmp_path):
    local, remote = runs
    path = sweep_file(tmp_path)
    for run in runs:
        simulate(run, path, np.random.default_rng(0), overrides=["seeds=1", "training.steps=3", "search.name=grid"])
    here, there = str(local.path), str(remote.path)
    assert disentune("results", there, "--json") == disentune("results", here, "--json")
    assert (
        disentune("results", "tiny", "--storage", "s3://bucket/runs", "--csv")[1]
        == disentune("results", here, "--csv")[1]
    )
    code, printed, _ = disentune("status", there, "--json")
    assert code == 0
    assert not json.loads(printed)["running"]
    assert {trial["state"] for trial in json.loads(printed)["trials"]} == {"done"}
    assert disentune("status", there, "--watch")[0] == 0
    code, printed, _ = disentune("report", there)
    assert code == 0
    assert f"page:    {there}/report/index.html" in printed
    assert (remote.report_folder / "index.html").read_bytes().startswith(b"<!")
    trial = remote.trials()[0]
    code, printed, _ = disentune("train", str(trial.path))
    assert "equal the recorded ones, bit for bit" in printed
    assert code == 0
    code, printed, _ = disentune("score", there)
    assert code in (0, 1)
    assert disentune("results", "s3://bucket/runs/none")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--storage", "s3://nobody/runs"], "s3://nobody/runs: bucket 'nobody' does not exist"),
        (["--storage", "ftp://host/runs"], "ftp:// is not supported"),
        (["--storage", "s3://id:hush@bucket/runs"], "must not contain keys"),
    ],
)
def test_a_storage_that_cannot_be_used_is_refused_before_anything_starts(
    object_store, disentune, tmp_path, arguments, complaint
):
    code, printed, said = disentune("run", str(sweep_file(tmp_path)), *arguments)
    assert code == 2
    assert complaint in said
    assert "hush" not in printed + said
    assert object_store.names == []


@pytest.mark.ray
@pytest.mark.long
def test_a_sweep_on_ray_is_interrupted_and_resumed_by_its_address_alone(runs, commands, tmp_path):
    local, remote = runs
    path, sets = sweep_file(tmp_path), [part for change in LONGER for part in ("--set", change)]
    simulate(local, path, np.random.default_rng(0), overrides=LONGER)
    driver = commands.start("run", str(path), *sets, "--storage", "s3://bucket/runs")
    wait_until(lambda: any(folder.rows() for folder in remote.trials()), "a first row")
    with pytest.raises(
        ConfigError, match=f"s3://bucket/runs/tiny/main is already being run by process {driver.pid} on"
    ):
        remote.locked().__enter__()
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=patience_s())
    assert driver.returncode == 130, output
    assert "stopped (SIGINT)" in output
    assert "disentune resume s3://bucket/runs/tiny/main" in output
    for trial in remote.trials():
        if rows := trial.rows():
            assert trial.status().state in ("pending", "done")
            assert trial.checkpoints.steps()[-1] == trial.status().step >= rows[-1]["step"]
    code, output = commands.run("resume", str(remote.path))
    assert code == 0, output
    assert table(remote) == table(local)
    assert read_bytes(remote.parquet_path) == written(local)
    assert (remote.report_folder / "summary.png").read_bytes().startswith(b"\x89PNG")
    assert not commands.json("status", str(remote.path))["running"]
