"""Where commands print: what becomes of a sweep whose output nobody can read, and of text that commands a terminal."""

import io
import os
import subprocess
import sys

import pytest

from disentune.cli import terminal
from processes import patience_s


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
    assert f"the output cannot be written ({why}); its text follows" in lines[0]
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
    shell = ["sh", "-c", '"$@" >&- 2>&- <&-', "sh"]
    assert subprocess.run([*shell, *command], timeout=patience_s(120), check=False).returncode == 0


def test_a_text_for_another_program_has_no_command_to_a_terminal(capsys):
    terminal.SpelledOut().write("a\x1b[31mb\tc\nd\r")
    assert capsys.readouterr().out == "a\\x1b[31mb\tc\nd\\r"


def test_progress_is_silent_until_it_takes_a_while(capsys, monkeypatch):
    with terminal.patient_progress() as say:
        say("checking points", 1, 10)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(terminal, "QUIET_S", 0.0)
        say("checking points", 5, 10)
    assert capsys.readouterr().err == "checking points: 5 of 10\n"


def test_standard_output_says_its_name_when_it_fails(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "__stdout__", full)
        terminal.name_standard_output()
        assert isinstance(sys.stdout, io.TextIOWrapper)
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            print("x", flush=True)  # noqa: T201
        terminal.discard(sys.stdout)


def test_without_a_terminal_a_line_is_printed_per_tenth_but_at_most_one_per_second(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(terminal.err, "_force_terminal", False)
    with terminal.progress_bar() as say:
        for done in range(13):
            clock[0] += 0.6
            say("drawing figures", done, 12)
        for done in range(0, 10_001, 500):
            clock[0] += 2.0
            say("downloading", done, 10_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [f"drawing figures: {done} of 12" for done in (0, 2, 4, 6)]
    shares = [line.removeprefix("downloading: ") for line in lines if "downloading" in line]
    assert shares == ["0%", *(f"{tenth}0%" for tenth in range(1, 11))]
