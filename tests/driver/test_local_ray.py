"""A local Ray: what is started, what is not, and that nothing of it stays."""

import signal
import subprocess
import sys
from threading import RLock
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray._private.node import Node

from disentune.driver import local_ray
from processes import patience_s

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}]); import time; time.sleep(600)"


STARTED = ("start_ray_processes", "start_api_server", "start_monitor", "start_log_monitor")


class DeafNode:
    """Of Ray's own class what ends processes, with real ones that do not hear SIGTERM and have children."""

    kill_all_processes, _kill_process_type = Node.kill_all_processes, Node._kill_process_type
    _kill_process_impl, removal_lock = Node._kill_process_impl, RLock()

    def __init__(self, *kinds):
        started = {kind: subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) for kind in kinds}
        assert all(process.stdout.readline() for process in started.values())
        self.processes = list(started.values())
        self.children = [child for one in self.processes for child in psutil.Process(one.pid).children()]
        self.all_processes = {
            kind: [SimpleNamespace(process=process, use_valgrind=False, use_valgrind_profiler=False)]
            for kind, process in started.items()
        }

    def shutdown(self):
        """What ray.shutdown asks of its node."""
        self.kill_all_processes(check_alive=False, allow_graceful=True, wait=False)


def ray_with(monkeypatch, node):
    monkeypatch.setattr("ray._private.worker._global_node", node)
    return SimpleNamespace(shutdown=node.shutdown if node else lambda: pytest.fail("nothing is left to end"))


@pytest.mark.slow
def test_a_local_ray_ends_with_its_children_and_nobody_is_waited_for(monkeypatch):
    node, in_vain, wait = DeafNode("raylet", "gcs_server"), [], subprocess.Popen.wait

    def counted(self, timeout=None):
        try:
            return wait(self, timeout)
        except subprocess.TimeoutExpired:
            in_vain.append(self)
            raise

    monkeypatch.setattr(subprocess.Popen, "wait", counted)
    local_ray.end(ray_with(monkeypatch, node))
    assert [process.wait() for process in node.processes] == [-signal.SIGKILL] * 2
    assert len(node.children) == 2
    assert psutil.wait_procs(node.children, timeout=patience_s(30))[1] == []
    for process in node.processes:
        process.stdout.close()
    assert in_vain == []


def test_a_local_ray_that_has_ended_already_is_left_alone(monkeypatch):
    local_ray.end(ray_with(monkeypatch, None))
    assert not ray.is_initialized()


def test_only_what_a_sweep_needs_is_started_and_the_time_is_used(monkeypatch):
    done = []

    class Counted:
        start_ray_processes = lambda self: done.append("raylet")  # noqa: E731
        start_monitor = start_log_monitor = lambda self: done.append("needless")
        start_api_server = lambda self, *, include_dashboard, raise_on_failure: done.append("needless")  # noqa: E731

    def init(address, **settings):
        Counted().start_api_server(include_dashboard=False, raise_on_failure=False)
        Counted().start_monitor()
        Counted().start_log_monitor()
        Counted().start_ray_processes()

    monkeypatch.setattr("ray._private.node.Node", Counted)
    local_ray.start(SimpleNamespace(init=init), meanwhile=lambda: done.append("meanwhile"))
    assert done == ["raylet", "meanwhile"]
    Counted().start_monitor()
    assert done == ["raylet", "meanwhile", "needless"], "Ray's class is as it was"


def test_rays_class_is_as_it_was_when_the_start_fails():
    before = {name: getattr(Node, name) for name in STARTED}

    def init(address, **settings):
        assert Node.start_monitor is not before["start_monitor"]
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        local_ray.start(SimpleNamespace(init=init), meanwhile=lambda: None)
    assert {name: getattr(Node, name) for name in before} == before


@pytest.mark.parametrize("name", STARTED)
def test_a_ray_whose_parts_have_changed_is_started_the_plain_way_and_that_is_reported(monkeypatch, name):
    monkeypatch.delattr(Node, name)
    before, done, said = dict(vars(Node)), [], []

    def init(address, **settings):
        assert dict(vars(Node)) == before
        done.append(address)

    local_ray.start(SimpleNamespace(init=init), lambda: done.append("meanwhile"), said.append)
    assert done == ["local", "meanwhile"]
    (line,) = said
    assert line.startswith(f"Ray {ray.__version__} has no ray._private.node.Node.{name}(self")
    assert line.endswith("starting all of its processes")


@pytest.mark.parametrize("changed", ["ray._private.worker._global_node", "ray._private.node.Node.kill_all_processes"])
def test_a_ray_whose_parts_have_changed_is_ended_the_plain_way(monkeypatch, changed):
    ended = []
    monkeypatch.setattr("ray._private.worker._global_node", SimpleNamespace())
    monkeypatch.delattr(changed)
    local_ray.end(SimpleNamespace(shutdown=lambda: ended.append(True)))
    assert ended == [True]


@pytest.mark.ray
@pytest.mark.long
def test_nothing_of_a_real_one_stays_and_none_of_its_servers_is_the_dashboards(tmp_path):
    code = """
import sys
import psutil, ray
from disentune.driver import local_ray, ray_internals
local_ray.start(ray, meanwhile=lambda: None)
assert ray_internals.is_started_by_a_program()
assert ray.get(ray.remote(lambda: 6 * 7).remote()) == 42
family = psutil.Process().children(recursive=True)
print([" ".join(one.cmdline()) for one in family])
local_ray.end(ray)
left = psutil.wait_procs(family, timeout=float(sys.argv[1]))[1]
print(len(family), [one.name() for one in left if one.status() != "zombie"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(patience_s(10))], capture_output=True, text=True, timeout=patience_s()
    )
    assert done.returncode == 0, done.stderr
    commands, left = done.stdout.splitlines()
    assert "raylet" in commands
    assert not any(f"/{name}" in commands for name in ("dashboard.py", "monitor.py", "log_monitor.py"))
    count, alive = left.split(" ", 1)
    assert int(count) >= 4  # the raylet, the GCS, two agents
    assert alive == "[]"
