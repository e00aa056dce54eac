"""Ray's edge in the driver: which Ray a sweep runs on, and whether it may."""

import os
import subprocess
import tempfile

import pytest
import ray
from ray.tune.execution import class_cache

from disentune import sweep
from disentune.errors import ConfigError
from disentune.ledger import Run
from disentune.storage import owner
from disentune.sweepfile import read_sweep
from simulator import sweep_file


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "must be auto or HOST:PORT"),
        (" ", "must be auto or HOST:PORT"),
        ("local", "leave it out for a local Ray"),
        ("http://127.0.0.1:8265", "send the sweep as one: disentune submit"),
        ("ray://127.0.0.1:10001", "Ray's client cannot drive a sweep"),
    ],
)
def test_what_is_no_address_for_a_driver_is_refused_before_the_run_is_touched(tmp_path, address, message):
    run = Run(tmp_path / "run")
    with pytest.raises(ConfigError, match=message):
        sweep.launch(run, read_sweep(sweep_file(tmp_path)), lambda point: True, lambda *news: None, address)
    assert not run.path.exists()


def test_without_an_address_no_cluster_is_joined_that_happens_to_run_here(monkeypatch):
    asked = []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(ray, "init", lambda address=None, **settings: asked.append(address))
    sweep._connect(ray, None)
    assert asked == ["local"]


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionError, Exception])
def test_a_local_ray_that_cannot_start_is_told_in_a_line(monkeypatch, kind):
    def fails(*_, **__):
        raise kind("no room\nfor it")

    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(ConfigError, match=r"^a local Ray could not be started \(no room\)$"):
        sweep._connect(ray, None)


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
    sweep._keep_keys_out_of_settings(local)
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
    sweep.launch(run, read_sweep(sweep_file(tmp_path)), lambda point: True, lambda *news: None)
    assert seen == [False]
