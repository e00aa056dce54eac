"""What can go wrong with a sweep. To add a case: a function that makes it happen, and a record in one of the lists."""

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
import psutil
from optuna.trial import FrozenTrial, TrialState

from disentune.errors import DONE, INTERRUPTED, SOME_FAILED, UNAVAILABLE, WRONG_INPUT
from disentune.results.tables import read, write_parquet
from disentune.runs.checkpoints import Checkpoints
from disentune.runs.ledger import Run
from disentune.runs.suggest import journal
from faults.harness import (
    CHECKPOINT_STEPS,
    PAGE,
    ROW_STEPS,
    STEPS,
    Calms,
    Case,
    Check,
    Disk,
    Driver,
    Inject,
    Scene,
    read_only,
)
from processes import family, kill, patience_s, rows_on_disk, wait_until
from simulator import simulate
from wandb_server import WandbServer

DAY_S = 24 * 3600
HANG_S = 10
LEASE_S = 8.0
SLOW_S = 0.3
"""The longest wait for a sync on a slow disk."""
FULL, READ_ONLY = "No space left on device", "Read-only file system"
AWAY = "supervisor: the storage does not answer"


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
    kill([_training(driver)])
    assert driver.end() == DONE, driver.said
    assert "lost its worker" in driver.said
    assert scene.faults() == {"lost": 1}


def _training(driver: Driver) -> psutil.Process:
    """A worker that trains just now."""
    found = list[psutil.Process]()

    def there() -> bool:
        found[:] = driver.processes("SegmentTrainable.train")
        return bool(found) or driver.ended

    wait_until(there, "a worker that trains")
    assert found, driver.said
    return found[0]


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


# ---- processes that are suspended, as by a terminal, a container or a queue, for longer than the time-outs


def worker_is_suspended(scene: Scene) -> None:
    hang_s = patience_s(HANG_S)
    driver = scene.start("--set", f"retries.hang_after_s={hang_s}")
    scene.at_some_row(driver)
    worker = _training(driver)
    worker.suspend()
    time.sleep(1.5 * hang_s)
    assert worker.status() == psutil.STATUS_STOPPED
    assert not driver.ended, driver.said
    worker.resume()
    assert driver.end() == DONE, driver.said
    assert scene.faults() == {}, "a worker that was suspended counts as hung"


def driver_is_suspended(scene: Scene) -> None:
    """One of its workers is killed meanwhile; the other one waits, which is no hang."""
    hang_s = patience_s(HANG_S)
    driver = scene.start("--set", f"retries.hang_after_s={hang_s}")
    scene.at_some_row(driver, most=0.4)
    worker = _training(driver)
    driver.process.send_signal(signal.SIGSTOP)
    kill([worker])
    time.sleep(1.5 * hang_s)
    assert psutil.Process(driver.process.pid).status() == psutil.STATUS_STOPPED
    driver.process.send_signal(signal.SIGCONT)
    assert driver.end() == DONE, driver.said
    assert "lost its worker" in driver.said
    assert scene.faults() == {"lost": 1}


def driver_is_suspended_past_its_lease(scene: Scene) -> None:
    """Another driver takes the run over; the first one notices before it or one of its workers has written again."""
    scene.use_store()
    lease_s = patience_s(LEASE_S)
    scene.hurry({"files.lease": {"VALID_S": lease_s, "RENEW_S": lease_s / 5, "LOOK_S": lease_s / 40}})
    first = scene.start()
    scene.at_some_row(first, most=0.2)
    first.process.send_signal(signal.SIGSTOP)
    second = scene.resume()
    wait_until(lambda: second.processes("SegmentTrainable.train") or second.ended, "a worker of the second driver")
    assert rows_on_disk(scene.run.path) < scene.calm.rows, second.said
    first.process.send_signal(signal.SIGCONT)
    assert first.end() == WRONG_INPUT, first.said
    assert "lost contact for too long and ends" in first.said or "was taken over by another driver" in first.said
    assert second.end() == DONE, second.said


# ---- two faults, one after the other or one during the other


def then(*faults: Inject) -> Inject:
    """After each of them, the sweep is continued by the same command."""

    def inject(scene: Scene) -> Check:
        checks = [fault(scene) for fault in faults]

        def check() -> None:
            for one in checks:
                if one is not None:
                    one()

        return check

    return inject


def tree_is_killed_and_a_checkpoint_flipped(scene: Scene) -> Check:
    with scene.held(int(scene.rng.integers(CHECKPOINT_STEPS + 1, STEPS))) as driver:
        kill(family(driver.process))
    assert driver.end() == -signal.SIGKILL
    unfinished = [trial.checkpoints for trial in scene.run.trials() if not trial.status().final]
    begun = [found for found in unfinished if found.steps()]
    return _damage_is_named(scene, [_damaged(scene, begun[scene.rng.integers(len(begun))], _flipped)])


def driver_is_killed_on_a_full_disk(scene: Scene) -> None:
    """And started again there."""
    disk = Disk(scene, scene.folder / "runs")
    first = _at_a_checkpoint(scene, lambda: disk.fill(left=PAGE))
    kill(family(first.process)[:1])
    assert first.end() == -signal.SIGKILL
    disk.fill()
    again = scene.start()
    wait_until(lambda: FULL in again.said or again.ended, "a driver that meets the full disk")
    assert FULL in again.said, again.said
    disk.clear()
    assert again.end() in (DONE, WRONG_INPUT), again.said


def worker_is_killed_during_a_slow_write(scene: Scene) -> None:
    disk = scene.folder / "runs"
    scene.customise("failing", DISK=str(disk), DISK_FAULTS=json.dumps({"slow_s": SLOW_S, "fails": {}}))
    driver = scene.start()
    scene.at_some_row(driver, most=0.4)
    writing = list[psutil.Process]()

    def is_met() -> bool:
        writing[:] = [one for one in driver.processes("SegmentTrainable") if Path(f"{disk}.{one.pid}").exists()]
        return bool(writing) or driver.ended

    wait_until(is_met, "a worker that writes")
    kill(writing[:1])
    assert driver.end() == DONE, driver.said
    assert scene.faults() == {"lost": 1}


# ---- storage that fails


def disk_is_full_at_a_checkpoint(scene: Scene) -> None:
    disk = Disk(scene, scene.folder / "runs")
    _fill_at_a_checkpoint(scene, disk, lambda: disk.fill(left=PAGE))


def inodes_run_out_at_a_checkpoint(scene: Scene) -> None:
    disk = Disk(scene, scene.folder / "runs")
    _fill_at_a_checkpoint(scene, disk, disk.use_up_inodes)


def _fill_at_a_checkpoint(scene: Scene, disk: Disk, fill: Callable[[], None]) -> None:
    driver = _at_a_checkpoint(scene, fill)
    time.sleep(scene.rng.uniform(0, 3))
    assert not driver.ended, driver.said
    disk.clear()
    assert driver.end() == DONE, driver.said
    assert "could not use the storage" in driver.said
    assert FULL in driver.said


def _at_a_checkpoint(scene: Scene, fill: Callable[[], None]) -> Driver:
    """A trial is held in a step that ends with a checkpoint and without a row: that is its next write."""
    steps = [step for step in range(CHECKPOINT_STEPS, STEPS, CHECKPOINT_STEPS) if step % ROW_STEPS]
    with scene.held(int(scene.rng.choice(steps))) as driver:
        fill()
    wait_until(lambda: FULL in driver.said or driver.ended, "a checkpoint that does not fit")
    return driver


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
    store = scene.use_store()
    driver = scene.start()
    wait_until(lambda: driver.ended or any(name.endswith("rows.jsonl") for name in store.names), "a row")
    gaps = scene.rng.integers(5, 40, 12)
    stumbles = scene.rng.choice(["500", "503", "drop"], len(gaps)).tolist()
    store.faults = [one for gap, stumble in zip(gaps, stumbles, strict=True) for one in (*[""] * gap, stumble)]
    assert driver.end() == DONE, driver.said
    assert store.faults == []


def store_is_away(scene: Scene) -> None:
    """For longer than trials, their driver and its lease wait, of which all times are shorter here; then a supervisor
    starts the driver again until the store answers."""
    store = scene.use_store()
    lease = {"VALID_S": 6.0, "RENEW_S": 1.0}
    scene.hurry({"files.storage": {"PATIENCE_S": 2.0}, "runs.planner": {"STORAGE_S": 10.0}, "files.lease": lease})
    driver = scene.start(program=(sys.executable, "-m", "disentune.cluster.supervisor", "--"))
    scene.at_some_row(driver, most=0.4)
    store.is_away = True
    wait_until(lambda: driver.said.count(AWAY) >= 2 or driver.ended, "a driver that gives up, and a second one")
    store.is_away = False
    assert driver.end() == DONE, driver.said
    assert "no trial could use the storage for" in driver.said
    assert set(scene.faults()) <= {"storage"}


def syncs_fail_once(scene: Scene) -> Check:
    """One of rows, one of a checkpoint, one of a status and one of the search's journal, after which a driver ends."""
    disk, parts = scene.folder / "runs", ("rows.jsonl", "checkpoints", "status.json", "study.journal")
    fails = {part: int(scene.rng.integers(1, 4)) for part in parts}
    scene.customise("failing", DISK=str(disk), DISK_FAULTS=json.dumps({"slow_s": 0, "fails": fails}))
    driver = scene.start()
    assert driver.end() in (DONE, UNAVAILABLE), driver.said

    def check() -> None:
        assert [part for part in parts if not Path(f"{disk}.{part}").exists()] == []
        assert scene.faults() == {}

    return check


# ---- files that are damaged while nothing runs


def checkpoints_are_damaged(scene: Scene) -> Check:
    """Of one trial the newest is cut, of another a bit of it is flipped."""
    scene.session_without_ray_dies()
    unfinished = [trial.checkpoints for trial in scene.run.trials() if not trial.status().final]
    several = [found for found in unfinished if len(found.steps()) > 1]
    chosen = [several[index] for index in scene.rng.permutation(len(several))[:2]]
    return _damage_is_named(
        scene, [_damaged(scene, found, how) for found, how in zip(chosen, (_cut, _flipped), strict=True)]
    )


def _damage_is_named(scene: Scene, damaged: Sequence[Path]) -> Check:
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
    scene.customise("jumping", CLOCK=str(clock))
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
    Case("SIGSTOP and SIGCONT of a worker", worker_is_suspended),
    Case("SIGSTOP and SIGCONT of the driver, SIGKILL of a worker meanwhile", driver_is_suspended),
    Case("SIGKILL of the driver, then of a worker", then(driver_is_killed, worker_is_killed), ("random", "median")),
    Case(
        "SIGKILL of the whole process tree, then a flipped bit in a checkpoint",
        tree_is_killed_and_a_checkpoint_flipped,
        ("optuna", "none"),
    ),
]
STORAGE = [
    Case("disk full during a checkpoint", disk_is_full_at_a_checkpoint, mounts=True),
    Case("disk full during results.parquet", disk_is_full_at_the_results, mounts=True),
    Case("disk full during W&B's writes", disk_of_wandb_is_full, settings="wandb: {project: demo}", mounts=True),
    Case("storage read-only for a while", storage_is_read_only, ("optuna", "asha"), mounts=True),
    Case("no inodes left during a checkpoint", inodes_run_out_at_a_checkpoint, mounts=True),
    Case("disk full, SIGKILL of the driver, and a new driver", driver_is_killed_on_a_full_disk, mounts=True),
    Case("slow disk, SIGKILL of a worker in the middle of a write", worker_is_killed_during_a_slow_write),
    Case("syncs that fail once", syncs_fail_once, ("optuna", "asha")),
    Case("object store that stumbles", store_stumbles),
    Case("object store away for longer than all time-outs", store_is_away),
    Case("SIGSTOP of the driver, another one takes over, SIGCONT", driver_is_suspended_past_its_lease),
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
