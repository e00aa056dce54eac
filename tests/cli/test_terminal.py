"""Where commands print: what becomes of a sweep whose output nobody can read, and of text that commands a terminal."""

import io
import os
import subprocess
import sys

import pytest

from disentune.cli import terminal


def broken_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def full_disk():
    return open("/dev/full", "w")


def closed():
    return None


@pytest.mark.parametrize(
    ("stream", "why"),
    [(broken_pipe, "Broken pipe"), (full_disk, "No space left on device"), (closed, "closed from the start")],
)
def test_what_cannot_be_printed_goes_to_the_log_and_nothing_ends(tmp_path, monkeypatch, stream, why):
    made = stream()
    monkeypatch.setattr(sys, "stdout", made)
    with terminal.lasting_output(tmp_path / "run.log"):
        terminal.out.print("[bold]first[/]")
        terminal.out.print("second")
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert f"an output cannot be written ({why}); its text follows" in lines[0]
    assert lines[1:] == ["first", "second"]
    if made is not None:
        made.close()  # and what it still holds is lost without an error


def test_what_can_be_printed_is_and_makes_no_log(tmp_path, capsys):
    with terminal.lasting_output(tmp_path / "run.log"):
        terminal.out.print("first")
        terminal.err.print("second")
    assert capsys.readouterr() == ("first\n", "second\n")
    assert not (tmp_path / "run.log").exists()


def test_a_log_whose_run_is_gone_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with terminal.lasting_output(tmp_path / "gone" / "run.log"):
        terminal.out.print("first")
    assert not (tmp_path / "gone").exists()


def test_closed_streams_leave_no_number_for_a_file_to_take():
    code = "import os; from disentune.cli import terminal; terminal.open_standard_streams(); print(os.open('.', 0) > 2)"
    code = code.replace("print(", "os._exit(0 if ").replace("> 2)", "> 2 else 1)")
    command = [sys.executable, "-c", code]
    assert subprocess.run(["sh", "-c", '"$@" >&- 2>&- <&-', "sh", *command], timeout=120, check=False).returncode == 0


def test_a_text_for_another_program_has_no_command_to_a_terminal(capsys):
    terminal.SpelledOut().write("a\x1b[31mb\tc\nd\r")
    assert capsys.readouterr().out == "a\\x1b[31mb\tc\nd\\r"


def test_progress_is_silent_until_it_takes_a_while(capsys, monkeypatch):
    with terminal.patient_progress() as say:
        say("checking points", 1, 10)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(terminal, "QUIET_S", 0.0)
        say("checking points", 5, 10)
    assert capsys.readouterr().err == "checking points: 50%\n"


def test_standard_output_says_its_name_when_it_fails(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "__stdout__", full)
        terminal.name_standard_output()
        assert isinstance(sys.stdout, io.TextIOWrapper)
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            print("x", flush=True)  # noqa: T201
        terminal.discard(sys.stdout)
