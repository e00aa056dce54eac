"""A sweep on Ray that streams to W&B by the real client, through kills and outages."""

import json

import numpy as np
import pytest

from disentune.results.tables import read, write_parquet
from disentune.runs.ledger import Run
from processes import family, kill, rows_on_disk, wait_until
from simulator import simulate, sweep_file, table
from wandb_server import KEY, WandbServer

LONGER = [
    "seeds=1", "training.steps=320", "training.log_every=80", "evaluation.every=80", "checkpoint.every_steps=30",
]  # fmt: skip
pytestmark = [pytest.mark.ray, pytest.mark.wandb]
SETS = [part for change in [*LONGER, "wandb.project=demo"] for part in ("--set", change)]


@pytest.fixture
def server(commands):
    found = WandbServer()
    commands.environment |= found.environment()
    yield found
    found.close()


@pytest.fixture
def calm(tmp_path):
    """The same sweep undisturbed, without W&B and without Ray, in a storage of its own."""
    run = Run(tmp_path / "calm" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, "grid", "none"), np.random.default_rng(0), overrides=LONGER)
    return run


def steps_at(server):
    return {trial_id: [row["_step"] for row in run.rows] for (_, trial_id), run in server.runs.items()}


def steps_of(run):
    return {record.trial_id: [row["step"] for row in record.rows] for record in read(run).records}


def test_a_killed_sweep_that_is_resumed_has_every_row_at_wandb_once(commands, server, tmp_path, calm):
    run, path = Run(tmp_path / "runs" / "tiny" / "main"), sweep_file(tmp_path, "grid", "none")
    total = sum(len(record.rows) for record in read(calm).records)
    process = commands.start("run", str(path), *SETS)
    wait_until(lambda: rows_on_disk(run.path) >= 0.4 * total or process.poll() is not None, "rows")
    tracker = [one for one in family(process) if "disentune.tracking" in " ".join(one.cmdline())]
    assert len(tracker) == 1
    kill([*tracker[0].children(recursive=True), *family(process)])
    process.wait()
    assert rows_on_disk(run.path) < total
    code, output = commands.run("resume", "tiny/main")
    assert code == 0, output
    assert "W&B: online, project demo, group tiny/main" in output
    assert "W&B has every row" in output
    assert steps_at(server) == steps_of(run) == steps_of(calm)
    assert all(one.exitcode == 0 for one in server.runs.values())
    assert table(run) == table(calm)


@pytest.mark.long
@pytest.mark.parametrize("mode", [500, "stall"])
def test_an_outage_costs_no_trial_and_no_bit_and_sync_sends_the_rest_once(commands, server, tmp_path, calm, mode):
    run, path = Run(tmp_path / "runs" / "tiny" / "main"), sweep_file(tmp_path, "grid", "none")
    with server.failing(mode):
        code, output = commands.run("run", str(path), *SETS)
    assert code == 0, output
    assert "has not confirmed" in output
    assert "disentune sync runs/tiny/main" in output
    assert run.parquet_path.read_bytes() == write_parquet(read(calm)).read_bytes()
    assert server.runs == {}
    code, output = commands.run("sync", "tiny/main")
    assert (code, steps_at(server)) == (0, steps_of(run)), output
    calls = server.calls["UpsertBucket"]
    assert commands.json("sync", "tiny/main") == {"sent": 0, "unsent": [], "trouble": ""}
    assert server.calls["UpsertBucket"] == calls
    files = [one for one in run.path.rglob("*") if one.is_file()]
    assert [one for one in files if KEY.encode() in one.read_bytes()] == []


@pytest.mark.long
def test_a_sweep_without_a_key_is_offline_and_says_so(commands, tmp_path):
    path = sweep_file(tmp_path, "grid", "none")
    commands.environment |= {"NETRC": str(tmp_path / "none"), "WANDB_CONFIG_DIR": str(tmp_path)}
    commands.environment.pop("WANDB_API_KEY", None)
    code, output = commands.run("run", str(path), *SETS, "--set", "training.steps=80")
    assert code == 0, output
    assert "W&B: offline (no key; set WANDB_API_KEY, or run: wandb login)" in output
    run = Run(tmp_path / "runs" / "tiny" / "main")
    for folder in run.trials():
        assert len(list(folder.wandb_folder.glob("offline-run-*/*.wandb"))) == 1
        assert list(json.loads((folder.path / "wandb.json").read_bytes())) == ["offline"]
    code, output = commands.run("sync", "tiny/main")
    assert code == 2
    assert "needs a key" in output
