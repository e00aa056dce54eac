"""Real SIGKILLs of a sweep on Ray: its table is that of an undisturbed one, to the bit.

Every pair of search and scheduler is killed in tests/test_planner.py, without Ray; here Ray's part is.
"""

import signal

import numpy as np
import psutil
import pytest

from disentune.ledger import Run
from disentune.results import read, write_parquet
from processes import family, kill, rows_on_disk, wait_until
from simulator import simulate, sweep_file, table

# Long enough to be killed in the middle; every sweep has an arm of each framework.
LONGER = ["training.steps=320", "training.log_every=80", "evaluation.every=80", "checkpoint.every_steps=30"]
SCALED = {"grace: 3": "grace: 80", "every: 3, keys": "every: 80, keys"}
SETS = [part for change in LONGER for part in ("--set", change)]


def longer_sweep(folder, search, scheduler):
    path = sweep_file(folder, search, scheduler)
    text = path.read_text()
    for short, long in SCALED.items():
        text = text.replace(short, long)
    path.write_text(text)
    return path


def busy_workers(process):
    """Ray names a worker process after the method it runs."""
    return [one for one in family(process) if "SegmentTrainable.train" in title(one)]


def title(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def drop_driver(process):
    kill(family(process)[:1])


def drop_everything(process):
    kill(family(process))


def drop_a_worker(process):
    wait_until(lambda: busy_workers(process), "a worker to start")
    kill(busy_workers(process)[:1])


@pytest.mark.slow
@pytest.mark.parametrize(("search", "scheduler"), [("grid", "none"), ("optuna", "asha"), ("random", "pbt")])
def test_killing_the_driver_and_the_whole_tree_changes_no_bit(commands, tmp_path, search, scheduler):
    path = longer_sweep(tmp_path, search, scheduler)
    calm = Run(tmp_path / "runs" / "tiny" / "calm")
    simulate(calm, path, np.random.default_rng(0), overrides=LONGER)
    run = Run(tmp_path / "runs" / "tiny" / "main")
    total = sum(len(record.rows) for record in read(calm).records)
    for share, drop in ((0.2, drop_driver), (0.6, drop_everything)):
        process = commands.start("run", str(path), *SETS)
        wait_until(lambda share=share, process=process: rows_on_disk(run.path) >= share * total or
                   process.poll() is not None, "rows")  # fmt: skip
        drop(process)
        process.wait()
    assert rows_on_disk(run.path) < total
    code, output = commands.run("resume", "tiny")
    assert code == 0, output
    assert table(run) == table(calm)
    assert run.parquet_path.read_bytes() == write_parquet(read(calm)).read_bytes()


@pytest.mark.slow
def test_a_killed_worker_is_replaced_within_the_session(commands, tmp_path):
    path = longer_sweep(tmp_path, "grid", "none")
    calm = Run(tmp_path / "runs" / "tiny" / "calm")
    simulate(calm, path, np.random.default_rng(0), overrides=LONGER)
    run = Run(tmp_path / "runs" / "tiny" / "main")
    process = commands.start("run", str(path), *SETS)
    wait_until(lambda: rows_on_disk(run.path) >= 6, "rows")
    drop_a_worker(process)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "lost its worker" in output
    assert table(run) == table(calm)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_go_on(commands, tmp_path, number):
    path = longer_sweep(tmp_path, "grid", "none")
    run = Run(tmp_path / "runs" / "tiny" / "main")
    sets = [part for change in (*LONGER[:3], "training.steps=2000") for part in ("--set", change)]
    process = commands.start("run", str(path), *sets)
    wait_until(lambda: rows_on_disk(run.path) >= 6, "rows")
    process.send_signal(number)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "disentune resume runs/tiny/main" in output
    begun = [folder for folder in run.trials() if folder.rows()]
    assert begun
    for folder in begun:
        status = folder.status()
        assert status.state in ("pending", "done")
        assert folder.checkpoints.steps()[-1] == status.step >= folder.rows()[-1]["step"]


@pytest.mark.slow
def test_a_second_driver_is_refused_by_name(commands, tmp_path):
    path = longer_sweep(tmp_path, "grid", "none")
    run = Run(tmp_path / "runs" / "tiny" / "main")
    first = commands.start("run", str(path), *SETS, "--set", "training.steps=2000")
    wait_until(lambda: rows_on_disk(run.path) >= 1, "rows")
    code, output = commands.run("run", str(path), *SETS, "--set", "training.steps=2000")
    assert code == 2
    assert f"is already being run by process {first.pid}" in output


@pytest.mark.slow
def test_no_worker_outlives_a_killed_driver(commands, tmp_path):
    path = longer_sweep(tmp_path, "grid", "none")
    run = Run(tmp_path / "runs" / "tiny" / "main")
    process = commands.start("run", str(path), *SETS)
    wait_until(lambda: rows_on_disk(run.path) >= 3, "rows")
    started = [one for one in family(process) if "SegmentTrainable" in title(one) or "raylet" in title(one)]
    assert len(started) >= 2
    drop_driver(process)
    process.wait()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
