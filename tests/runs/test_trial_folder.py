"""Rows and pictures of a trial survive what befalls disks and processes."""

import json
import os

import pytest

from disentune.errors import ConfigError
from disentune.runs.ledger import Run
from disentune.runs.rows import Flaw
from disentune.runs.trial_folder import Status, TrialFolder, is_cut


@pytest.fixture
def folder(tmp_path, trial_with) -> TrialFolder:
    config = trial_with()
    trial = Run(tmp_path / "demo" / "main").trial(config.id)
    trial.create(config, ("a",))
    return trial


def row(step, **metrics):
    return {"step": step, "metrics": metrics}


# ---- rows


def test_rows_come_back_bit_for_bit(folder):
    values = {"loss": 0.1 + 0.2, "mig": 5e-324, "nan": float("nan"), "inf": float("-inf")}
    folder.append_row(row(1, **values))
    assert repr(folder.rows()) == repr([row(1, **values)])


def test_a_torn_last_row_is_ignored_and_the_next_append_repairs_it(folder):
    folder.append_row(row(1, loss=1.0))
    whole = folder.rows_path.read_bytes()
    for cut in range(1, len(whole)):  # a machine may die after any byte
        folder.rows_path.write_bytes(whole + whole[:cut].replace(b"\n", b""))
        assert [r["step"] for r in folder.rows()] == [1]
    folder.append_row(row(2, loss=2.0))
    folder.append_row(row(3, loss=3.0))
    assert [r["step"] for r in folder.rows()] == [1, 2, 3]
    assert folder.rows_path.read_bytes().startswith(whole)


def test_a_torn_only_row_is_repaired_too(folder):
    folder.rows_path.write_bytes(b'{"step": 1, "met')
    assert folder.rows() == []
    folder.append_row(row(1, loss=1.0))
    assert folder.rows() == [row(1, loss=1.0)]


DAMAGES = [
    b"garbage", b"", b"\x00\xff\x80", b"5", b"[1]", b'{"metrics": {}}', b'{"step": "x", "metrics": {}}', b'{"step": 2}',
    b'{"step": [2], "metrics": {}}', b'{"step": true, "metrics": {}}', b'{"step": 2, "metrics": 3}', b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=range(12))
def test_only_rows_before_a_damaged_one_count(folder, damage):
    for step in (1, 2, 3):
        folder.append_row(row(step, loss=1.0))
    lines = folder.rows_path.read_bytes().split(b"\n")
    folder.rows_path.write_bytes(b"\n".join([lines[0], damage, *lines[2:]]))
    assert folder.rows_and_flaw() == ([row(1, loss=1.0)], Flaw(2, 1))


@pytest.mark.parametrize("damage", DAMAGES, ids=range(12))
def test_a_damaged_row_of_an_earlier_version_is_named_with_its_line_and_what_to_do(folder, damage):
    whole = b'{"step": 1, "metrics": {}}'
    folder.rows_path.write_bytes(b"\n".join([whole, damage, whole, b""]))
    with pytest.raises(ConfigError) as caught:
        folder.rows()
    assert f"{folder.rows_path}:2 is damaged; remove the folder {folder.path}" in str(caught.value)


@pytest.fixture
def written(folder):
    """Four rows."""
    for step in (1, 2, 3, 4):
        folder.append_row({**row(step, loss=1 / step), "clock": {"seconds": 0.5 * step}})
    return folder


def flips(whole):
    """Every text that differs in one bit, and the line of the bit."""
    for at in range(len(whole)):
        for bit in range(8):
            yield whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :], 1 + whole[:at].count(b"\n")


def test_every_flipped_bit_of_a_row_is_noticed(written):
    whole, rows = written.rows_path.read_bytes(), written.rows()
    for text, line in flips(whole):
        written.rows_path.write_bytes(text)
        found, flaw = written.rows_and_flaw()
        is_torn = text[-1:] != b"\n"  # the last row looks unfinished, so it is missing
        assert (found, flaw) == (rows[: line - 1], None if is_torn else Flaw(line, line - 1)), text


def test_every_flipped_bit_of_a_single_row_is_noticed(folder):
    folder.append_row(row(1, loss=0.25))
    for text, _ in flips(folder.rows_path.read_bytes()):
        folder.rows_path.write_bytes(text)
        if text[-1:] != b"\n":
            assert folder.rows() == []
        else:
            assert flaw_or_error(folder) in (Flaw(1), f"{folder.rows_path}:1 is damaged"), text


def flaw_or_error(folder):
    try:
        return folder.rows_and_flaw()[1]
    except ConfigError as error:
        return str(error).partition(";")[0]


CHANGES = {
    "altered": lambda lines: [lines[0], lines[1].replace(b"0.5", b"0.6", 1), *lines[2:]],
    "removed": lambda lines: [lines[0], *lines[2:]],
    "repeated": lambda lines: [*lines[:1], lines[0], *lines[1:]],
    "moved": lambda lines: [lines[0], lines[2], lines[1], lines[3]],
    "without its hash": lambda lines: [lines[0], lines[1][: lines[1].index(b', "hash"')] + b"}\n", *lines[2:]],
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_row_that_was_changed_is_named_by_its_line_and_cut(written, how):
    rows = written.rows()
    written.rows_path.write_bytes(b"".join(CHANGES[how](written.rows_path.read_bytes().splitlines(keepends=True))))
    assert written.rows_and_flaw() == (rows[:1], Flaw(2, 1))
    assert "line 2 (after step 1) was altered, repeated or moved" in str(written.sound().flaw)
    written.cut_rows(2)
    for one in rows[1:]:
        written.append_row(one)
    assert written.rows_and_flaw() == (rows, None)


def test_rows_of_another_trial_do_not_count(written, trial_with, tmp_path):
    other = Run(tmp_path / "demo" / "main").trial(trial_with(seed=1).id)
    other.path.mkdir()
    other.rows_path.write_bytes(written.rows_path.read_bytes())
    assert other.rows_and_flaw() == ([], Flaw(1))


def test_rows_of_an_earlier_version_are_read_continued_and_sealed_by_the_next_row(folder):
    old = b"".join(json.dumps(row(step, loss=1.0)).encode() + b"\n" for step in (1, 2, 3))
    folder.rows_path.write_bytes(old)
    assert folder.rows_and_flaw() == ([row(step, loss=1.0) for step in (1, 2, 3)], None)
    folder.append_row(row(4, loss=1.0))
    folder.append_row(row(5, loss=1.0))
    whole = folder.rows_path.read_bytes()
    assert whole.startswith(old)
    assert folder.rows_and_flaw() == ([row(step, loss=1.0) for step in (1, 2, 3, 4, 5)], None)
    folder.rows_path.write_bytes(whole.replace(b'2, "metrics": {"loss": 1.0', b'2, "metrics": {"loss": 1.5', 1))
    assert folder.rows_and_flaw() == ([], Flaw(1))  # any of the first three may be the one that changed


def test_a_row_is_read_back_without_its_hash(written):
    assert all("hash" not in found for found in written.rows())
    assert written.rows_path.read_bytes().count(b'"hash"') == 4


def test_a_step_written_twice_counts_once_and_the_first_stays(folder):
    for step, loss in ((1, 1.0), (3, 3.0), (2, 2.0), (3, 9.0)):
        folder.append_row(row(step, loss=loss))
    assert folder.rows() == [row(1, loss=1.0), row(2, loss=2.0), row(3, loss=3.0)]


def test_cutting_rows_keeps_those_before_a_step_and_drops_a_torn_line(folder):
    for step in (1, 2, 3):
        folder.append_row(row(step, loss=float(step)))
    with open(folder.rows_path, "ab") as file:
        file.write(b'{"step": 0, "me')
    folder.cut_rows(3)
    assert folder.rows_path.read_bytes().count(b"\n") == 2
    assert [found["step"] for found in folder.rows()] == [1, 2]


# ---- pictures


def test_pictures_come_back_by_their_step(folder):
    assert folder.picture_steps() == []
    assert folder.read_pictures(300) is None
    folder.write_pictures(1200, b"late")
    folder.write_pictures(300, b"early")
    folder.write_pictures(300, b"again")
    assert folder.picture_steps() == [300, 1200]
    assert (folder.read_pictures(300), folder.read_pictures(1200)) == (b"again", b"late")
    assert (folder.path / "pictures" / "step-0000000300.npz").is_file()


def test_pictures_that_a_killed_writer_left_half_do_not_count_and_are_cleared(folder):
    folder.write_pictures(300, b"x")
    pictures = folder.path / "pictures"
    (pictures / ".step-0000000600.npz.abcd0123").write_bytes(b"ha")
    (pictures / ".failed.txt.abcd0123").write_bytes(b"ha")
    (pictures / "step-copy.npz").touch()
    assert folder.picture_steps() == [300]
    assert folder.read_pictures(600) is None
    folder.write_pictures(900, b"y")
    assert sorted(os.listdir(pictures)) == ["step-0000000300.npz", "step-0000000900.npz", "step-copy.npz"]


@pytest.mark.parametrize("write", [lambda f: f.write_pictures(1, b"new"), lambda f: f.write_pictures_failure("new")])
def test_a_picture_file_is_whole_or_not_there(folder, monkeypatch, write):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write(folder)
    assert os.listdir(folder.path / "pictures") == []


def test_why_there_are_no_pictures_is_kept_in_words(folder):
    assert folder.pictures_failure() == ""
    folder.write_pictures_failure("größer als der Speicher\n")
    assert folder.pictures_failure() == "größer als der Speicher\n"
    assert folder.pictures_failure_path.read_bytes() == "größer als der Speicher\n".encode()
    assert folder.picture_steps() == []


def test_a_trial_that_an_earlier_version_recorded_as_done_by_a_scheduler_is_stopped(tmp_path):
    folder = TrialFolder(tmp_path)
    folder.set_status(Status("done", 300, "scheduler.asha: stopped at step 300"))
    assert folder.status().state == "stopped"
    assert is_cut(folder.status())
    for cause in ("", "stop.steps: 300", "stop.plateau: no improvement in 2 evaluations"):
        folder.set_status(Status("done", 300, cause))
        assert folder.status().state == "done"
