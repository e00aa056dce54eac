"""Ray's edge in the driver: which Ray a sweep runs on, and whether it may."""

import pytest
import ray

from disentune import sweep
from disentune.errors import ConfigError
from disentune.ledger import Run
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


def test_a_local_ray_that_cannot_start_is_told_in_a_line(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no room\nfor it")

    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(ConfigError, match=r"^a local Ray could not be started \(no room\)$"):
        sweep._connect(ray, None)


def test_an_address_where_nothing_listens_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray waits for minutes"))
    with pytest.raises(ConfigError, match=r"--address 127\.0\.0\.1:1: no Ray cluster answers there"):
        sweep._connect(ray, "127.0.0.1:1")
