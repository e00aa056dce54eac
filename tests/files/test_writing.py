"""A file is whole or not there, whatever happens to its writer."""

import os

import pytest

from disentune.files.writing import write_atomically


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch, function):
    path = tmp_path / "x.json"
    write_atomically(path, b"old")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_content_is_synced_before_it_gets_its_name_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), real_fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("replace"), real_replace(*paths)))
    write_atomically(tmp_path / "x", b"new")
    assert events == ["fsync", "replace", "fsync"]


def test_a_pipe_is_refused_and_stays(tmp_path):
    """As root, renaming to /dev/null would replace the device of the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a file but a folder, a pipe or a device"):
        write_atomically(pipe, b"new")
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
