"""The command: where it listens, and that it ends."""

import os
import signal
import socket
import stat
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import psutil
import pytest

from disentune.dashboard import serving
from disentune.errors import ConfigError
from processes import commands_in, patience_s
from run_examples import quick_trial


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted_and_leaves_no_process(make_run, tmp_path):
    quick_trial(make_run(), [{"step": 50, "mig": 0.5}])
    with commands_in(tmp_path) as commands:
        process = commands.start("dashboard", "runs", "--no-browser", "--port", "0")
        assert process.stdout.readline() == "1 run in runs; stop with Ctrl-C\n"
        address = process.stdout.readline().strip()
        with httpx.Client(follow_redirects=True, timeout=patience_s()) as client:
            assert client.get(address.split("?")[0]).status_code == 403
            page = client.get(address)
            assert "token" not in str(page.url)
            assert "disentune" in page.text
            assert client.get(f"{address.split('?')[0]}api/runs").json()["runs"][0]["name"] == "demo/main"
        listening = [one.laddr for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
        assert [one.ip for one in listening] == ["127.0.0.1"]
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(patience_s()) == 0
        assert not any(child.is_running() for child in children)


def test_a_missing_storage_is_refused_before_anything_starts(disentune):
    code, _, complaint = disentune("dashboard", "nowhere", "--no-browser")
    assert code == 2
    assert complaint.startswith("nowhere does not exist; run a sweep first")


def test_a_port_that_is_taken_is_named(disentune, make_run):
    make_run()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, complaint = disentune("dashboard", "runs", "--no-browser", "--port", str(port))
    assert code == 2
    assert f"--port {port}: Address already in use" in complaint


def test_without_a_port_the_first_free_one_is_taken_and_accepts_connections(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(serving, "PORT", port)
        monkeypatch.setattr(serving, "TRIES", 10)
        with serving._listening(None) as listener:
            assert port < listener.getsockname()[1] < port + 10
            socket.create_connection(listener.getsockname(), timeout=patience_s()).close()
        monkeypatch.setattr(serving, "TRIES", 1)
        with pytest.raises(ConfigError, match="choose another one"), serving._listening(None):
            pass


def test_the_browser_gets_the_token_by_a_file_that_only_its_user_can_read(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with serving._opened("http://127.0.0.1:1/?token=secret"):
        (address,) = opened
        path = Path(unquote(urlsplit(address).path))
        assert "secret" not in address
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert "url=http://127.0.0.1:1/?token=secret" in path.read_text()
    assert not path.exists()
