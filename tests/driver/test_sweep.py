"""Ray's edge in the driver: which Ray a sweep runs on, and whether it may."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
import ray
from ray.tune.execution import class_cache

from disentune.driver import local_ray, placement, ray_internals, sweep
from disentune.errors import ConfigError, Unavailable
from disentune.files.storage import owner
from disentune.runs.choice import EVERY_TRIAL
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from processes import patience_s
from simulator import sweep_file


def request(run, folder, address=None):
    asked = check(read_sweep(sweep_file(folder)))
    return sweep.LaunchRequest(run, asked, EVERY_TRIAL, lambda *news: None, address)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "must be auto or HOST:PORT"),
        (" ", "must be auto or HOST:PORT"),
        ("10.0.0.1", "must be auto or HOST:PORT"),
        ("local", "omit it for a local Ray"),
        ("http://127.0.0.1:8265", "use: disentune submit"),
        ("ray://127.0.0.1:10001", "Ray's client cannot drive a sweep"),
    ],
)
def test_what_is_not_an_address_for_a_driver_is_refused_before_the_run_is_touched(tmp_path, address, message):
    run = Run(tmp_path / "run")
    with pytest.raises(ConfigError, match=message):
        sweep.launch(request(run, tmp_path, address))
    assert not run.path.exists()


@pytest.mark.parametrize("device", ["mps", "{grid: [cpu, mps]}"])
def test_a_sweep_for_a_mac_is_refused_on_another_machine_before_the_run_is_touched(tmp_path, monkeypatch, device):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    run = Run(tmp_path / "run")
    asked = check(read_sweep(sweep_file(tmp_path), [f"training.device={device}"]))
    with pytest.raises(ConfigError, match=r"training\.device: mps needs a Mac .*; use cpu or cuda"):
        sweep.launch(sweep.LaunchRequest(run, asked, EVERY_TRIAL, lambda *news: None, None))
    assert not run.path.exists()


def test_without_an_address_no_cluster_is_joined_that_happens_to_run_here(monkeypatch):
    asked = []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(ray, "init", lambda address=None, **settings: asked.append(address))
    sweep._connect(ray, None)
    assert asked == ["local"]


@pytest.mark.long
def test_the_driver_imports_what_it_needs_next_while_ray_starts():
    code = """
import sys
from disentune.driver import sweep
names = ["disentune.driver.search", "disentune.driver.trainable", "disentune.report.summary"]
before = [name for name in names if name in sys.modules]
sweep._load_what_comes_next()
print(before, [name for name in names if name not in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionError, Exception])
def test_a_local_ray_that_does_not_start_is_tried_again_and_then_unavailable(monkeypatch, kind):
    attempts, waits, said = [], [], []

    def fails(*_, **__):
        attempts.append(1)
        raise kind("took too long\nto start")

    monkeypatch.setattr(ray, "init", fails)
    monkeypatch.setattr(local_ray.time, "sleep", waits.append)
    with pytest.raises(Unavailable, match=r"^a local Ray could not be started \(took too long\); 3 attempts failed"):
        sweep._connect(ray, None, said.append)
    assert (len(attempts), waits) == (3, list(local_ray.WAITS_S))
    assert said[0] == "a local Ray could not be started (took too long); trying again in 5 s"


def test_a_local_ray_that_starts_at_the_second_attempt_is_used(monkeypatch):
    attempts = []

    def slow(*_, **__):
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("The current node timed out during startup")

    monkeypatch.setattr(ray, "init", slow)
    monkeypatch.setattr(local_ray.time, "sleep", lambda seconds: None)
    sweep._connect(ray, None)
    assert len(attempts) == 2


@pytest.mark.parametrize("error", [ValueError("bad setting"), PermissionError(13, "Permission denied", "/ray")])
def test_a_local_ray_that_can_never_start_is_reported_at_once(monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(ray, "init", fails)
    monkeypatch.setattr(local_ray.time, "sleep", lambda seconds: pytest.fail("waits for nothing"))
    with pytest.raises(ConfigError, match=r"^a local Ray could not be started") as caught:
        sweep._connect(ray, None)
    assert not isinstance(caught.value, Unavailable)


def test_what_a_failed_start_of_ray_leaves_behind_is_ended(monkeypatch):
    left = []

    def fails(*_, **__):
        left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        raise RuntimeError("took too long")

    monkeypatch.setattr(ray, "init", fails)
    monkeypatch.setattr(local_ray.time, "sleep", lambda seconds: None)
    with pytest.raises(Unavailable):
        sweep._connect(ray, None)
    assert [process.wait(patience_s(30)) for process in left] == [-signal.SIGKILL] * 3


# ---- a run that is deleted


def test_a_run_that_is_deleted_while_it_runs_ends_the_sweep_and_stays_deleted(tmp_path, monkeypatch):
    run = Run(tmp_path / "runs" / "tiny" / "main")

    def deleted(planner, stop, *_):
        assert not stop()
        shutil.rmtree(run.path)
        assert planner.next() is None, "no trial brings the run back"
        assert stop()

    monkeypatch.setattr(sweep, "_run_on_ray", deleted)
    with pytest.raises(ConfigError, match="was deleted during the run; the sweep stopped and its results are gone"):
        sweep.launch(request(run, tmp_path))
    assert not run.path.exists()


def test_a_run_that_is_out_of_reach_for_a_while_is_not_deleted(tmp_path):
    (tmp_path / "run").mkdir()
    with sweep._deletion(tmp_path / "run") as is_deleted:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        assert not is_deleted()
        (tmp_path / "elsewhere").rmdir()
        assert is_deleted()


# ---- why a session ends


@pytest.mark.parametrize(("deleted", "error"), [(False, Unavailable), (True, ConfigError)])
def test_a_session_that_had_to_end_raises_why_unless_the_run_was_deleted(tmp_path, monkeypatch, deleted, error):
    run = Run(tmp_path / "runs" / "tiny" / "main")

    def ended(planner, *_):
        if deleted:
            shutil.rmtree(run.path)
        return Unavailable("no storage")

    monkeypatch.setattr(sweep, "_run_on_ray", ended)
    with pytest.raises(ConfigError) as caught:
        sweep.launch(request(run, tmp_path))
    assert type(caught.value) is error


class FakeTune:
    """Tune's names, and a Tuner that takes one turn of its loop with nothing running."""

    TuneConfig, CheckpointConfig, FailureConfig, RunConfig = dict, dict, dict, dict

    def Tuner(self, trainable, tune_config, run_config):
        self.callbacks, self.stopper = run_config["callbacks"], run_config["stop"]
        return self

    def fit(self):
        for callback in self.callbacks:
            callback.on_step_begin(0, [])


@pytest.mark.parametrize(("nodes", "reason"), [([], "Ray died on this machine"), (["one"], "None")])
def test_a_local_ray_that_has_died_is_why_the_session_ends(tmp_path, monkeypatch, nodes, reason):
    monkeypatch.setattr(placement, "assert_feasible", lambda *asked: None)
    monkeypatch.setattr(placement, "homes", lambda *asked: placement.Homes({}, ()))
    monkeypatch.setattr(placement, "nodes", lambda: nodes)
    run, tune = Run(tmp_path / "run"), FakeTune()
    with run.locked() as session:
        planner = Planner(run, check(read_sweep(sweep_file(tmp_path))), session)
        stop = sweep.StopRequest(run, None)
        trouble = sweep._fit(tune, planner, stop, lambda *news: None, lambda text: None, (), alone=True)
    assert str(trouble).startswith(reason)
    assert tune.stopper.stop_all() == (not nodes)


def test_a_signal_is_handled_even_if_nobody_reads_the_output(tmp_path, monkeypatch):
    def broken(number, text):
        raise BrokenPipeError

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(sweep.os, "write", broken)
    stop = sweep.StopRequest(Run(tmp_path / "run"), None)
    stop._handle(signal.SIGTERM, None)
    assert stop()
    assert Run(tmp_path / "run").stop_path.exists()


@pytest.mark.parametrize("is_drawn", [True, False])
def test_a_signal_writes_no_text_into_a_live_display(tmp_path, monkeypatch, is_drawn):
    written = []
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(sweep.os, "write", lambda number, text: written.append(text))
    stop = sweep.StopRequest(Run(tmp_path / "run"), None, is_drawn=lambda: is_drawn)
    stop._handle(signal.SIGINT, None)
    assert stop()
    assert bool(written) == (not is_drawn)


def test_an_address_where_nothing_listens_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray waits for minutes"))
    with pytest.raises(ConfigError, match=r"--address 127\.0\.0\.1:1: no Ray cluster answers there"):
        sweep._connect(ray, "127.0.0.1:1")


@pytest.mark.parametrize(("local", "kept"), [(True, {}), (False, {"RAY_CHDIR_TO_TRIAL_DIR": "0"})])
def test_a_worker_is_given_no_key_as_a_setting(monkeypatch, local, kept):
    given = []
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    monkeypatch.delenv("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", raising=False)
    for name in ("DEFAULT_ENV_VARS", "ENV_VARS_TO_PROPAGATE"):
        monkeypatch.setattr(class_cache, name, getattr(class_cache, name))
    ray_internals.give_workers_no_keys(local)
    monkeypatch.setattr(ray, "remote", lambda runtime_env: given.append(runtime_env) or (lambda of: of))
    class_cache._ActorClassCache().get(object)
    assert given == [{"env_vars": kept}]


# ---- folders that killed sweeps left


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty folder for temporary files, and one in it by each owner."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    boot, space, _ = owner().split("-")
    names = {
        "dead": f"{boot}-{space}-{dead.pid}",
        "alive": owner(),
        "elsewhere": f"{boot}-ffffff-{dead.pid}",
        "an earlier boot": f"ffffff-{space}-{os.getpid()}",
    }
    folders = {whose: tmp_path / f"disentune-ray-{mark}-x" for whose, mark in names.items()}
    folders |= {"of an earlier version": tmp_path / "disentune-ray-abcd1234", "a stranger": tmp_path / "ray-x"}
    for folder in folders.values():
        (folder / "main").mkdir(parents=True)
    return folders


def test_folders_of_killed_sweeps_are_cleared_and_those_of_living_ones_stay(temporary):
    sweep._clear_scratch()
    assert {whose for whose, folder in temporary.items() if not folder.exists()} == {"dead", "an earlier boot"}


def test_a_link_that_looks_like_such_a_folder_is_left_alone(temporary, tmp_path):
    temporary["dead"].rename(tmp_path / "precious")
    temporary["dead"].symlink_to(tmp_path / "precious")
    sweep._clear_scratch()
    assert (tmp_path / "precious" / "main").is_dir()


def test_a_driver_that_takes_a_run_clears_them(temporary, tmp_path, monkeypatch):
    seen = []

    def run_on_ray(planner, *more):
        seen.append(temporary["dead"].exists())
        planner.open.clear()

    monkeypatch.setattr(sweep, "_run_on_ray", run_on_ray)
    run = Run(tmp_path / "run")
    sweep.launch(request(run, tmp_path))
    assert seen == [False]


def test_a_request_of_another_process_stops_the_driver_with_its_reason(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(sweep, "STOP_POLL_S", 0.01)
    monkeypatch.setattr(sweep.os, "write", lambda number, text: written.append(text))
    run = Run(tmp_path / "run")
    with run.locked():
        stop = sweep.StopRequest(run, None)
        with stop.listening():
            assert not stop()
            run.ask_to_stop("disentune stop on elsewhere")
            deadline = time.monotonic() + patience_s(10)
            while not stop() and time.monotonic() < deadline:
                time.sleep(0.01)
    assert stop.reason == "disentune stop on elsewhere"
    assert b"stopping (disentune stop on elsewhere)" in written[0]


def test_storage_that_does_not_answer_is_no_request_to_stop(tmp_path, monkeypatch):
    looks = []

    def no_answer(run):
        looks.append(1)
        raise OSError("no answer")

    monkeypatch.setattr(sweep, "STOP_POLL_S", 0.01)
    monkeypatch.setattr(Run, "stop_reason", no_answer)
    stop = sweep.StopRequest(Run(tmp_path), None)
    with stop.listening():
        deadline = time.monotonic() + patience_s(10)
        while len(looks) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not stop()
    assert len(looks) >= 3
