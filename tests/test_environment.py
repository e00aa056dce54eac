"""What a run was made with: enough to explain a difference, nothing about a person."""

import base64
import getpass
import json
import os
import platform
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest
import torch

from disentune import environment as module
from disentune.environment import cleaned_values, differences, environment, without_secrets


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


def test_other_code_is_named_by_its_commit_or_else_by_its_hash(now):
    then = now | {"commit": "a" * 40, "source": "0123456789ab"}
    here = now | {"commit": "b" * 40 + " with changes", "source": "ba9876543210"}
    assert differences(then, here) == [f"disentune's code {'a' * 12} -> {'b' * 12} with changes"]
    assert differences(then | {"commit": None}, here) == ["disentune's code 0123456789ab -> ba9876543210"]
    assert differences(then, here | {"commit": then["commit"]}) == ["disentune's code 0123456789ab -> ba9876543210"]


def test_a_commit_that_changed_no_code_is_not_a_difference(now):
    assert differences(now | {"commit": "a" * 40}, now | {"commit": "b" * 40}) == []


def test_of_a_run_without_a_hash_the_commits_are_compared(now):
    then = {key: value for key, value in now.items() if key != "source"} | {"commit": "a" * 40}
    assert differences(then, now | {"commit": "b" * 40}) == [f"disentune's code {'a' * 12} -> {'b' * 12}"]
    assert differences(then | {"commit": None}, now) == []


def test_each_changed_module_of_a_plug_in_is_named(now):
    then = now | {"plugins": {"my_vae": "aaa", "sums": "bbb", "gone": "ccc"}}
    here = now | {"plugins": {"my_vae": "aaa", "sums": "ddd", "new": "eee"}}
    assert differences(then, here) == ["source of sums bbb -> ddd"]
    assert differences(now, here) == differences(then, now) == []


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


KEYS = ["3f9a0c77e21b4d58a6c1", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY", "p@ss word&100% sécret", "AKIAIOSFODNN7EXAMPLE=="]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "quoted",
    [quote, quote_plus, lambda key: quote(key, safe=""), lambda key: urlencode({"key": key}),
     lambda key: quote(key, safe="").replace("%2F", "%2f").replace("%2B", "%2b"), lambda key: quote(key, safe="!'()*")],
)  # fmt: skip
def test_a_percent_encoded_key_is_hidden(key, quoted):
    said = without_secrets(f"GET https://host/x?{quoted(key)}&page=2", {"API_KEY": key})
    assert said in ("GET https://host/x?***&page=2", "GET https://host/x?key=***&page=2")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "u", "user:", "me:", "{'HOME': '/root', 'API_KEY': '"])
@pytest.mark.parametrize("after", ["", "\n", "'}", " and more"])
def test_a_key_in_base64_is_hidden_wherever_it_begins(key, encode, before, after):
    text = encode(f"{before}{key}{after}".encode()).decode()
    for written in (text, text.rstrip("="), quote(text, safe="")):
        before_it, after_it = without_secrets(written, {"API_KEY": key}).split("***")
        assert written.startswith(before_it)
        assert written.endswith(after_it)
        # at each end of the key one character has bits of a neighbour too
        assert len(written) - len(before_it) - len(after_it) >= len(key.encode()) * 8 // 6 - 1


@pytest.mark.parametrize(
    "value", ["0.391938", "12345678", "-1.25e-10", "1_000_000", "127.0.0.1", "Disabled", "required"]
)
def test_a_number_or_a_common_word_is_not_a_secret(value):
    text = f"mig 0.39193812345678, {value}"
    assert without_secrets(text, {"MAX_TOKENS": value, "KEY_MODE": value}) == text


def test_numbers_stay_and_texts_are_cleaned_however_deep_they_stand(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "3919381234abc")
    rows = [{"mig": 0.3919381234, "note": "no 3919381234abc", "3919381234abc": (1, None, True, ["x 3919381234abc"])}]
    assert cleaned_values(rows) == [{"mig": 0.3919381234, "note": "no ***", "***": [1, None, True, ["x ***"]]}]
