import subprocess

import pytest

from disentune.runs.ledger import Run
from disentune.tracking import streaming
from disentune.tracking.connection import Connection
from disentune.tracking.streaming import Streaming
from processes import patience_s

PLACE = Connection(True, "http://nowhere", "p", None, "g", (), False)


@pytest.fixture
def beside(monkeypatch, tmp_path):
    """`beside("cat")`: a Streaming whose process is that command, and what it says."""
    monkeypatch.setattr(streaming, "QUIET_S", 0.1)
    monkeypatch.setattr(streaming, "FLUSH_S", 0.3)
    said, started = [], []

    def make(*command, place=PLACE):
        popen = subprocess.Popen

        def other(_, **how):
            started.append(popen(command, **how))
            return started[-1]

        monkeypatch.setattr(streaming.subprocess, "Popen", other)
        return Streaming(Run(tmp_path), place, said.append), said, started

    yield make
    for process in started:
        process.kill()
        process.wait()


def test_nothing_is_started_without_a_connection(beside):
    stream, _, started = beside("cat", place=None)
    with stream:
        stream.hint("abc")
    assert started == []


def test_hints_come_through_line_by_line(beside, tmp_path):
    stream, said, started = beside("cat")
    with stream:
        stream.hint("abc")
        stream.hint("def")
    assert started[0].returncode == 0
    assert said == []
    assert Run(tmp_path).tracking_log.read_text() == "abc\ndef\n"


def test_a_process_that_does_not_listen_never_stops_the_driver(beside):
    stream, _, started = beside("sleep", "60")
    stream.__enter__()
    for _ in range(20_000):  # more than a pipe holds: one that waited would wait for ever
        stream.hint("0123456789abcdef")
    stream.__exit__(KeyboardInterrupt)  # told to end at once
    assert started[0].poll() is None


def test_a_process_that_has_died_is_no_news(beside):
    stream, _, started = beside("false")
    with stream:
        started[0].wait()
        stream.hint("abc")
    assert started[0].returncode == 1


def test_the_wait_is_announced_and_bounded(beside):
    stream, said, started = beside("sleep", "60")
    with stream:
        pass
    assert said == ["W&B: sending the remaining rows; press Ctrl-C to send them in the background"]
    assert started[0].wait(patience_s(5)) == -9


def test_ctrl_c_leaves_the_sending_to_the_background(beside, monkeypatch):
    stream, said, started = beside("sleep", "60")

    def interrupted(process):
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, "_wait_aloud", interrupted)
    with stream:
        pass
    assert said == ["W&B: sending the rest in the background"]
    assert started[0].poll() is None
