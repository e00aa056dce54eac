"""What a run was made with: enough to explain a difference, nothing about a person."""

import getpass
import json
import os
import platform
import socket
import subprocess
from pathlib import Path

import pytest
import torch

from disentune import environment as module
from disentune.environment import differences, environment


@pytest.fixture(scope="module")
def now():
    return environment()


def test_versions_and_hardware_are_recorded(now):
    assert now["python"] == platform.python_version()
    assert now["packages"]["torch"] == torch.__version__.split("+")[0] or now["packages"]["torch"] == torch.__version__
    assert set(now["packages"]) == set(module.PACKAGES)
    assert all(now["packages"].values())
    assert now["cores"] == os.cpu_count()
    assert json.loads(json.dumps(now)) == now


def test_no_user_host_or_path_is_named(now):
    text = json.dumps(now)
    assert socket.gethostname() not in text
    assert "/" not in text.replace("\\/", "")  # so no path, and no address
    private = {getpass.getuser(), Path.home().name, Path.cwd().name, *os.environ.get("PATH", "").split(":")}
    words = set(text.replace('"', " ").replace(",", " ").split())
    assert not words & (private - {""})


def test_equal_environments_do_not_differ(now):
    assert differences(now, now) == []
    assert differences(json.loads(json.dumps(now)), now) == []


def test_a_changed_version_or_device_is_named_with_both_values(now):
    then = now | {"packages": now["packages"] | {"torch": "1.0"}, "cpu": "abacus", "cores": 999, "commit": "x"}
    assert differences(then, now) == [f"torch 1.0 -> {now['packages']['torch']}", f"cpu abacus -> {now['cpu']}"]


def test_what_is_not_recorded_does_not_differ(now):
    assert differences({}, now) == []
    assert differences({"packages": {}}, now) == []
    assert differences({"packages": {"gone": "1"}}, now) == ["gone 1 -> None"]


def test_a_package_that_is_not_installed_is_none():
    assert module._version("no-such-package-1") is None


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 1)])
def test_without_git_there_is_no_commit(monkeypatch, error):
    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert module._commit() is None


def test_the_commit_of_a_checkout_that_only_surrounds_us_is_not_ours(monkeypatch):
    """Installed in a virtual environment inside a user's own repository, which does not track our files."""

    def git(command, **keywords):
        if "ls-files" in command:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, stdout="their commit\n")

    monkeypatch.setattr(subprocess, "run", git)
    assert module._commit() is None
