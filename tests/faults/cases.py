"""What can go wrong with a sweep. To add a case: a function that makes it happen, and a record in one of the lists."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import optuna
import psutil
from optuna.trial import FrozenTrial, TrialState

from disentune.errors import DONE, INTERRUPTED, SOME_FAILED, UNAVAILABLE, WRONG_INPUT
from disentune.files.storage import place
from disentune.results.tables import read, write_parquet
from disentune.runs.checkpoints import Checkpoints
from disentune.runs.ledger import Run
from disentune.runs.suggest import journal
from faults.harness import (
    CHECKPOINT_STEPS,
    HERE,
    PAGE,
    ROW_STEPS,
    STEPS,
    Calms,
    Case,
    Check,
    Disk,
    Driver,
    Scene,
    read_only,
)
from object_store import served, use_store
from processes import family, kill, patience_s, rows_on_disk, wait_until
from simulator import simulate
from wandb_server import WandbServer

DAY_S = 24 * 3600
HANG_S = 10
FULL, READ_ONLY = "No space left on device", "Read-only file system"


# ---- processes that die


def driver_is_killed(scene: Scene) -> None:
    driver = scene.start()
    scene.at_some_row(driver)
    started = [*driver.processes("SegmentTrainable"), *driver.processes("raylet")]
    assert len(started) >= 2
    kill(family(driver.process)[:1])
    assert driver.end() == -signal.SIGKILL
    _, alive = psutil.wait_procs(started, timeout=patience_s(60))
    assert alive == [], "a worker outlives its driver"


def tree_is_killed(scene: Scene) -> None:
    driver = scene.start()
    scene.at_some_row(driver)
    kill(family(driver.process))
    assert driver.end() == -signal.SIGKILL


def worker_is_killed(scene: Scene) -> None:
    driver = scene.start()
    scene.at_some_row(driver)
    wait_until(lambda: driver.processes("SegmentTrainable.train") or driver.ended, "a worker that trains")
    kill(driver.processes("SegmentTrainable.train")[:1])
    assert driver.end() == DONE, driver.said
    assert "lost its worker" in driver.said
    assert scene.faults() == {"lost": 1}


def raylet_is_killed(scene: Scene) -> None:
    """Workers may outlive it, and a driver that has them needs no more."""
    driver = scene.start()
    scene.at_some_row(driver)
    (raylet,) = driver.processes("raylet")
    kill([raylet])
    assert driver.end() in (DONE, UNAVAILABLE), driver.said
    assert "Raylet is terminated" in driver.said


def node_is_killed(scene: Scene) -> None:
    """The raylet and all workers: the driver must not wait for a node that never comes."""
    driver = scene.start()
    scene.at_some_row(driver, most=0.3)
    (raylet,) = driver.processes("raylet")
    kill([raylet, *driver.processes("SegmentTrainable")])
    assert driver.end() == UNAVAILABLE, driver.said
    assert "Ray died on this machine" in driver.said


def signalled(number: signal.Signals) -> Callable[[Scene], None]:
    def inject(scene: Scene) -> None:
        driver = scene.start()
        scene.at_some_row(driver, most=0.4)
        driver.process.send_signal(number)
        assert driver.end() == INTERRUPTED, driver.said
        assert f"stopped ({number.name})" in driver.said
        assert "disentune resume runs/tiny/main" in driver.said
        begun = [trial for trial in scene.run.trials() if trial.rows()]
        for trial in begun:
            status = trial.status()
            assert status.state in ("pending", "done")
            assert trial.checkpoints.steps()[-1] == status.step >= trial.rows()[-1]["step"]
        assert rows_on_disk(scene.run.path) < scene.calm.rows

    return inject


def resumed_twice(scene: Scene) -> None:
    scene.session_without_ray_dies()
    both = [scene.resume(), scene.resume()]
    assert sorted(driver.end() for driver in both) == [DONE, WRONG_INPUT], [driver.said for driver in both]
    first, second = sorted(both, key=lambda driver: driver.end())
    assert f"is already being run by process {first.process.pid} on" in second.said
    scene.drivers = [second, first]


# ---- storage that fails


def disk_is_full_at_a_checkpoint(scene: Scene) -> None:
    """A trial is held in a step that ends with a checkpoint and without a row: that is its next write."""
    disk = Disk(scene, scene.folder / "runs")
    steps = [step for step in range(CHECKPOINT_STEPS, STEPS, CHECKPOINT_STEPS) if step % ROW_STEPS]
    with scene.held(int(scene.rng.choice(steps))) as driver:
        disk.fill(left=PAGE)
    wait_until(lambda: FULL in driver.said or driver.ended, "a checkpoint that does not fit")
    time.sleep(scene.rng.uniform(0, 3))
    assert not driver.ended, driver.said
    disk.clear()
    assert driver.end() == DONE, driver.said
    assert "could not use the storage" in driver.said
    assert FULL in driver.said


def disk_is_full_at_the_results(scene: Scene) -> None:
    disk = Disk(scene, scene.folder / "runs")
    driver = scene.start()
    wait_until(lambda: _all_done(scene) or driver.ended, "the last trial's end")
    disk.fill(left=PAGE)
    assert driver.end() == WRONG_INPUT, driver.said
    assert f"{FULL}; free some space there, then resume the run" in driver.said
    assert not scene.run.parquet_path.exists()
    assert [path.name for path in scene.run.path.glob(".*")] == [], "half a file is left"
    disk.clear()


def _all_done(scene: Scene) -> bool:
    done = [trial for trial in scene.run.trials() if trial.status().state == "done"]
    return len(done) == len(scene.calm.table)


def disk_of_wandb_is_full(scene: Scene) -> None:
    """The client's own files lie on another disk than the ledger, so that it alone meets the end of that."""
    server = WandbServer()
    scene.stack.callback(server.close)
    scene.commands.environment |= server.environment()
    disk = Disk(scene, scene.folder / "wandb")
    for trial_id, _, _ in scene.calm.table:
        disk.show(trial_id, scene.run.trial(trial_id).wandb_folder)
    driver = scene.start()
    scene.at_some_row(driver, most=0.3)
    while not driver.ended:
        disk.fill()
        time.sleep(0.05)
    assert driver.end() == DONE, driver.said
    assert FULL in scene.run.tracking_log.read_text()
    assert scene.faults() == {}, "W&B has cost a trial an attempt"
    disk.clear()
    code, said = scene.commands.run("sync", "tiny/main")
    assert code == DONE, said
    told = {trial_id: [row["_step"] for row in run.rows] for (_, trial_id), run in server.runs.items()}
    assert told == {trial_id: [step for step, _, _ in rows] for trial_id, _, rows in scene.calm.table}


def storage_is_read_only(scene: Scene) -> None:
    """Workers and the driver wait, unless the search must be told of a result meanwhile: then the driver ends."""
    disk = Disk(scene, scene.folder / "runs")
    driver = scene.start()
    scene.at_some_row(driver, most=0.3)
    with read_only(disk.folder):
        wait_until(lambda: READ_ONLY in driver.said or driver.ended, "a write that is refused")
        time.sleep(scene.rng.uniform(0, 5))
    assert driver.end() in (DONE, WRONG_INPUT), driver.said
    assert READ_ONLY in driver.said


def store_stumbles(scene: Scene) -> None:
    store = scene.stack.enter_context(served())
    scene.stack.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(scene.folder / "cache")}))
    use_store(store, os.environ.__setitem__)
    scene.commands.environment |= {key: value for key, value in os.environ.items() if key.startswith(("AWS_", "XDG_"))}
    scene.storage, scene.run = "s3://bucket/runs", Run(place("s3://bucket/runs/tiny/main"))
    driver = scene.start()
    wait_until(lambda: driver.ended or any(name.endswith("rows.jsonl") for name in store.names), "a row")
    gaps = scene.rng.integers(5, 40, 12)
    stumbles = scene.rng.choice(["500", "503", "drop"], len(gaps)).tolist()
    store.faults = [one for gap, stumble in zip(gaps, stumbles, strict=True) for one in (*[""] * gap, stumble)]
    assert driver.end() == DONE, driver.said
    assert store.faults == []


# ---- files that are damaged while nothing runs


def checkpoints_are_damaged(scene: Scene) -> Check:
    """Of one trial the newest is cut, of another a bit of it is flipped."""
    scene.session_without_ray_dies()
    unfinished = [trial.checkpoints for trial in scene.run.trials() if not trial.status().final]
    several = [found for found in unfinished if len(found.steps()) > 1]
    chosen = [several[index] for index in scene.rng.permutation(len(several))[:2]]
    damaged = [_damaged(scene, found, how) for found, how in zip(chosen, (_cut, _flipped), strict=True)]

    def check() -> None:
        for path in damaged:
            assert f"{path} is damaged; using the previous checkpoint" in scene.drivers[-1].said
            assert path.with_suffix(".damaged").exists()

    return check


def _damaged(scene: Scene, found: Checkpoints, how: Callable[[Scene, bytes], bytes]) -> Path:
    path = found.path(found.steps()[-1])
    before = path.read_bytes()
    path.write_bytes(how(scene, before))
    assert path.read_bytes() != before
    return path


def _cut(scene: Scene, data: bytes) -> bytes:
    return data[: scene.rng.integers(len(data))]


def _flipped(scene: Scene, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[scene.rng.integers(len(data))] ^= 1 << int(scene.rng.integers(8))
    return bytes(changed)


def results_are_cut(scene: Scene) -> None:
    simulate(scene.run, scene.sweep, scene.rng)
    path = write_parquet(read(scene.run))
    path.write_bytes(_cut(scene, path.read_bytes()))
    assert path.read_bytes() != scene.calm.parquet


# ---- trials that go wrong


def trials_diverge(scene: Scene) -> None:
    """They are the first two suggestions, so that the other ones depend on what the search is told of them."""
    betas = [trial.params["framework.beta"] for trial in _suggestions(scene.calm.run)[:2]]
    kinds = scene.rng.permutation(["nan", "inf"]).tolist()
    faults = [scene.fault(kind, beta) for kind, beta in zip(kinds, betas, strict=True)]
    scene.plan(*faults)
    scene.calm = Calms.simulated(scene.folder / "calm", scene.pair, faults)
    driver = scene.start()
    assert driver.end() == DONE, driver.said
    assert "6 done, 2 diverged" in driver.said
    for fault in faults:
        assert scene.mark(fault["kind"]).exists()
        (hit,) = (one for one in read(scene.run).records if one.config["framework"]["beta"] == fault["beta"])
        assert hit.status == "diverged"
        assert [row["step"] for row in hit.rows] == [*range(ROW_STEPS, fault["step"], ROW_STEPS)]
    told = [trial.state for trial in _suggestions(scene.run)]
    assert told == [TrialState.FAIL] * 2 + [TrialState.COMPLETE] * 2


def _suggestions(run: Run) -> list[FrozenTrial]:
    return optuna.load_study(study_name="near", storage=journal(run.journal_path)).get_trials()


def trial_raises(scene: Scene) -> None:
    """The others go on; and so does this one, once its code is mended."""
    scene.plan(scene.fault("error", scene.some_betas(1)[0]))
    driver = scene.start()
    assert driver.end() == SOME_FAILED, driver.said
    assert scene.mark("error").exists()
    assert "5 done, 1 failed" in driver.said
    (failed,) = (trial for trial in scene.run.trials() if trial.status().state == "failed")
    assert failed.status().faults == {"error": 1}
    assert "ZeroDivisionError: made to go wrong" in failed.errors_path.read_text()
    scene.plan()
    scene.again = ("--retry-failed",)


def trial_hangs(scene: Scene) -> None:
    scene.plan(scene.fault("hold", scene.some_betas(1)[0]))
    driver = scene.start("--set", f"retries.hang_after_s={patience_s(HANG_S)}")
    assert driver.end() == DONE, driver.said
    assert scene.mark("hold").exists()
    assert "hung at step" in driver.said
    assert scene.faults() == {"hang": 1}


def memory_runs_out(scene: Scene) -> None:
    kinds = ("memory", "gpu_memory", "address_space")
    scene.plan(*(scene.fault(kind, beta) for kind, beta in zip(kinds, scene.some_betas(3), strict=True)))
    driver = scene.start()
    assert driver.end() == DONE, driver.said
    assert all(scene.mark(kind).exists() for kind in kinds)
    assert driver.said.count("ran out of memory and continues from step") == 3
    assert scene.faults() == {"memory": 3}


def clock_jumps(scene: Scene) -> None:
    """A day ahead, and later a day behind the true time."""
    clock = scene.folder / "clock"
    scene.commands.environment |= {"CLOCK": str(clock), "PYTHONPATH": str(HERE / "jumping")}
    driver = scene.start()
    for ahead_s, most in ((DAY_S, 0.3), (-DAY_S, 0.6)):
        scene.at_some_row(driver, most)
        clock.write_text(str(ahead_s))
        _wait_for_jumps(scene, driver, ahead_s)
    assert driver.end() == DONE, driver.said
    assert scene.faults() == {}


def _wait_for_jumps(scene: Scene, driver: Driver, ahead_s: int) -> None:
    """In the driver and in a worker."""

    def jumped() -> bool:
        pids = {int(path.suffix[1:]) for path in scene.folder.glob(f"clock.{ahead_s}.*")}
        return driver.process.pid in pids and any(one.pid in pids for one in driver.processes("SegmentTrainable"))

    wait_until(lambda: jumped() or driver.ended, "the clocks to jump")
    assert not driver.ended, driver.said


PROCESSES = [
    Case("SIGKILL of the driver", driver_is_killed, ("optuna", "asha"), long=False),
    Case("SIGKILL of a worker", worker_is_killed),
    Case("SIGKILL of the raylet", raylet_is_killed),
    Case("SIGKILL of the raylet and all workers", node_is_killed),
    Case("SIGKILL of the whole process tree", tree_is_killed, ("random", "pbt")),
    Case("SIGTERM", signalled(signal.SIGTERM)),
    Case("SIGINT", signalled(signal.SIGINT), ("optuna", "asha")),
    Case("two resumes at once", resumed_twice),
]
STORAGE = [
    Case("disk full during a checkpoint", disk_is_full_at_a_checkpoint, mounts=True),
    Case("disk full during results.parquet", disk_is_full_at_the_results, mounts=True),
    Case("disk full during W&B's writes", disk_of_wandb_is_full, settings="wandb: {project: demo}", mounts=True),
    Case("storage read-only for a while", storage_is_read_only, ("optuna", "asha"), mounts=True),
    Case("object store that stumbles", store_stumbles),
    Case("a checkpoint cut, another with a flipped bit", checkpoints_are_damaged),
    Case("results.parquet cut", results_are_cut),
]
TRIALS = [
    Case("a trial diverges to NaN, another to infinity", trials_diverge, ("optuna", "none")),
    Case("a trial raises", trial_raises),
    Case("a trial hangs", trial_hangs),
    Case("out of memory: MemoryError, torch, RLIMIT_AS", memory_runs_out),
    Case("the clock jumps by a day, ahead and back", clock_jumps),
]
CASES = [*PROCESSES, *STORAGE, *TRIALS]
