import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from disentune.cli import app
from disentune.cluster import supervisor
from disentune.cluster.supervisor import Supervisor, mismatch, rows_of
from disentune.environment import versions
from processes import kill, patience_s, wait_until
from simulator import sweep_file

FEW = 2
CHILD = """
import os, pathlib, signal, sys, time
log = pathlib.Path("starts")
log.write_text(log.read_text() + "x" if log.exists() else "x")
start = len(log.read_text())
"""
ENDS_OF_ITSELF = "time.sleep(600)"
CHECKPOINTS_FIRST = """
def stop(number, frame):
    pathlib.Path("stopped").write_text(signal.Signals(number).name)
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
pathlib.Path("ready").touch()
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _signals_as_usual(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def driver(ending: str) -> list[str]:
    Path("driver.py").write_text(CHILD + ending)
    return [sys.executable, "-I", "-S", "driver.py"]  # without packages it starts at once


def starts() -> int:
    return len(Path("starts").read_text())


@pytest.fixture
def quick(monkeypatch):
    """No pauses, and fewer starts before it gives up."""
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "MOST_CRASHES", FEW)


class Said(list):
    def __call__(self, text):
        self.append(text)


def supervised(ending: str, rows=lambda: 0) -> tuple[int, list[str]]:
    said = Said()
    return Supervisor([], rows, driver(ending), said).run(), said


# ---- when it starts the driver again


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_a_driver_that_ends_as_it_means_to_is_not_started_again(code):
    assert supervised(f"sys.exit({code})") == (code, [])
    assert starts() == 1


@pytest.mark.parametrize(
    ("crash", "reason"),
    [("sys.exit(70)", "crashed"), ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"), ("os.abort()", "SIGABRT")],
)
def test_a_driver_that_crashes_continues(quick, crash, reason):
    code, said = supervised(f"{crash} if start == 1 else sys.exit(1)")
    assert (code, starts(), len(said)) == (1, 2, 1)
    assert reason in said[0]


@pytest.mark.slow
def test_an_outage_is_waited_out_with_more_patience_than_a_crash(quick):
    code, said = supervised(f"sys.exit(75 if start <= 3 * {FEW} else 0)")
    assert (code, starts()) == (0, 3 * FEW + 1)
    assert all("the storage does not answer" in text for text in said)


def test_an_outage_is_not_waited_out_for_ever(quick, monkeypatch):
    monkeypatch.setattr(supervisor, "LONGEST_OUTAGE_S", 0.0)
    code, said = supervised("sys.exit(75)")
    assert (code, starts()) == (75, 2)
    assert "giving up" in said[-1]


def test_an_outage_after_a_long_life_is_another(quick, monkeypatch):
    monkeypatch.setattr(supervisor, "LONGEST_OUTAGE_S", 0.0)
    monkeypatch.setattr(supervisor, "STEADY_S", -1.0)
    assert supervised("sys.exit(75 if start < 4 else 0)")[0] == 0


@pytest.mark.parametrize(("code", "again"), [(70, ""), (75, "--retry-failed")])
def test_what_has_failed_gets_one_new_chance(quick, code, again):
    command = driver(f"pathlib.Path('asked').write_text(' '.join(sys.argv[2:]))\nsys.exit({code} if start == 1 else 0)")
    assert Supervisor(["run", "--retry-failed"], lambda: 0, command, Said()).run() == 0
    assert Path("asked").read_text() == again


def test_it_gives_up_when_there_is_no_progress(quick):
    code, said = supervised("sys.exit(70)")
    assert (code, starts()) == (70, FEW)
    assert "giving up" in said[-1]


def test_a_driver_that_a_signal_ends_again_and_again_has_the_code_of_a_shell(quick):
    assert supervised("os.kill(os.getpid(), signal.SIGKILL)")[0] == 128 + signal.SIGKILL


@pytest.mark.slow
def test_a_new_row_sets_the_count_back(quick):
    code, said = supervised(f"sys.exit(0 if start > 2 * {FEW} else 70)", starts)
    assert code == 0
    assert all("crash 1 of" in text for text in said)


@pytest.mark.slow
def test_pauses_double_up_to_the_longest(monkeypatch):
    pauses = []
    monkeypatch.setattr(supervisor, "MOST_CRASHES", 9)
    monkeypatch.setattr(Supervisor, "_pause", lambda self, seconds: pauses.append(seconds))
    supervised("sys.exit(70)")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_rows_that_cannot_be_counted_are_neither_progress_nor_an_end(quick):
    def broken():
        raise RuntimeError("the storage is away")

    code, said = supervised("sys.exit(70)", broken)
    assert (code, starts()) == (70, FEW)
    assert "the storage is away" in said[0]


# ---- signals, in real processes


def started(ending: str) -> subprocess.Popen:
    code = f"sys.exit(Supervisor([], lambda: 0, {driver(ending)!r}).run())"
    code = f"import sys; from disentune.cluster.supervisor import Supervisor; {code}"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_driver_has_its_time(number):
    process = started(CHECKPOINTS_FIRST)
    wait_until(Path("ready").exists, "the driver")
    process.send_signal(number)
    assert process.wait(patience_s(60)) == 130
    assert Path("stopped").read_text() == signal.Signals(number).name
    assert starts() == 1


def test_a_driver_that_was_asked_to_stop_and_dies_of_it_is_not_started_again():
    process = started("pathlib.Path('ready').touch()\n" + ENDS_OF_ITSELF)
    wait_until(Path("ready").exists, "the driver")
    process.terminate()
    assert process.wait(patience_s(60)) == 130
    assert starts() == 1


def test_a_stop_ends_a_pause_at_once(monkeypatch):
    """The signal comes while it says that it pauses, a minute long."""
    said = []

    def say(text):
        said.append(text)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(supervisor, "MOST_CRASHES", 10**6)
    patient = Supervisor([], lambda: 0, driver("sys.exit(70)"), say)
    patient.crashes, patient.known_rows = 20, 0
    assert patient.run() == 130
    assert len(said) == 1


@pytest.mark.slow
def test_a_driver_does_not_outlive_its_supervisor():
    process = started(CHECKPOINTS_FIRST)
    wait_until(Path("ready").exists, "the driver")
    driver_process = psutil.Process(process.pid).children()[0]
    kill([psutil.Process(process.pid)])
    process.wait(patience_s(60))
    wait_until(lambda: not driver_process.is_running(), "the driver's end")
    assert Path("stopped").read_text() == "SIGTERM"


# ---- the run


def test_rows_are_those_of_the_run_that_the_command_is_about(make_run, tmp_path, monkeypatch):
    run = make_run("second")
    run.trial([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.0}])
    run.trial([{"step": 1, "loss": 1.0}], framework__beta=2.0)
    make_run("main").trial([{"step": 1, "loss": 1.0}])
    path = sweep_file(tmp_path)
    path.write_text(path.read_text().replace("name: tiny", "name: demo"))
    options = ["--address", "auto", "--only", "seed < 2", "--limit", "3", "--retry-failed", "--set", "seeds=1"]
    storage = ["--storage", str(tmp_path / "runs")]
    assert rows_of(["run", str(path), *options, "--name", "second", *storage]) == 3
    assert rows_of(["run", *options, *storage, str(path)]) == 1
    assert rows_of(["resume", "demo/second", *storage]) == 3
    monkeypatch.setenv("DISENTUNE_STORAGE", storage[1])
    assert rows_of(["run", str(path)]) == 1
    with pytest.raises(ValueError, match="not a run or resume command"):
        rows_of(["run"])


# ---- what it is started with


def test_only_the_same_versions_continue():
    here = {"python": "3.11.7", "disentune": "1.0", "ray": "2.60.0", "torch": "2.13.0", "commit": "abc"}
    assert mismatch(here, here) == ([], [])
    assert mismatch({**here, "torch": "2.14", "python": "3.12.1"}, here) == ([], [])  # of the sender's machine alone
    refused, noted = mismatch({**here, "ray": "2.61.0", "disentune": "1.1", "commit": "abd"}, here)
    assert [text.split()[5] for text in refused] == ["disentune", "ray"]
    assert "abd" in noted[0]


def test_another_version_starts_nothing(capfd, monkeypatch):
    monkeypatch.setattr(supervisor, "DRIVER", tuple(driver("")))
    arguments = ["--sent-by", '{"disentune": "0.0.1", "ray": null}', "--", "run", "x.yaml", "--storage", "/x"]
    assert supervisor.main(arguments) == 2
    assert not Path("starts").exists()
    assert (
        f"the sweep was sent with disentune 0.0.1, but the head has {versions()['disentune']}" in capfd.readouterr().err
    )


@pytest.mark.parametrize("variable", ["", "/shared/runs"])
def test_the_storage_of_the_head_counts_where_none_was_given(variable, capfd, monkeypatch):
    monkeypatch.delenv("DISENTUNE_STORAGE", raising=False)
    if variable:
        monkeypatch.setenv("DISENTUNE_STORAGE", variable)
    begun = []
    monkeypatch.setattr(Supervisor, "run", lambda self: begun.append(self.command) or 0)
    code = supervisor.main(["--sent-by", "{}", "--", "run", "x.yaml"])
    if variable:
        assert (code, begun[0][-2:]) == (0, ["run", "x.yaml"])
    else:
        assert (code, begun) == (2, [])
        assert "DISENTUNE_STORAGE is not set on the head" in capfd.readouterr().err


def test_it_needs_something_to_run(capfd):
    with pytest.raises(SystemExit, match="2"):
        supervisor.main(["--"])
    assert "must follow --" in capfd.readouterr().err


def test_a_command_that_breaks_shows_where_and_ends_with_the_code_of_a_crash(disentune, monkeypatch, tmp_path):
    def breaks(*arguments):
        raise RuntimeError("an unforeseen thing")

    monkeypatch.setattr("disentune.spec.space.check", breaks)
    code, _, complaint = disentune("plan", str(sweep_file(tmp_path)))
    assert code == app.CRASHED == supervisor.CRASHED
    assert "Traceback" in complaint
    assert "an unforeseen thing" in complaint
