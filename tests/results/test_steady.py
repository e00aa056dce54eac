"""An answer is given again only while every file of the run is what it was."""

import os

import pytest

from disentune.results import steady
from disentune.results.steady import fingerprint


@pytest.fixture
def maker(make_run, monkeypatch, tmp_path):
    monkeypatch.setattr(steady, "SETTLED_S", -1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = make_run()
    made.trial([{"step": 1500, "mig": 0.5}])
    return made


def test_an_unchanged_run_is_answered_once(maker):
    asked = []
    for _ in range(2):
        assert steady.steady(maker.run, "x", "about", lambda: asked.append(1) or {"a": [1]}) == {"a": [1]}
    assert asked == [1]
    assert steady.steady(maker.run, "x", "another", lambda: "new") == "new"
    assert steady.steady(maker.run, "y", "about", lambda: "new") == "new"


def replaced_with_the_same_time(path):
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "a row is added": lambda folder: folder.append_row({"step": 1600, "metrics": {}}),
    "a file of the same size and time": lambda folder: replaced_with_the_same_time(folder.rows_path),
    "the status": lambda folder: folder.update_status(state="failed"),
    "a new file": lambda folder: (folder.path / "end.json").write_text("{}"),
    "a file is gone": lambda folder: folder.status_path.unlink(),
    "a file is renamed": lambda folder: folder.status_path.rename(folder.path / "x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_noticed(maker, change):
    before = fingerprint(maker.run)
    assert before is not None
    assert fingerprint(maker.run) == before
    CHANGES[change](maker.run.trials()[0])
    assert fingerprint(maker.run) != before


def test_a_run_that_is_running_or_has_just_changed_is_read_each_time(maker, monkeypatch):
    with maker.run.locked():
        assert fingerprint(maker.run) is None
    monkeypatch.setattr(steady, "SETTLED_S", 60.0)
    assert fingerprint(maker.run) is None


def test_a_damaged_cache_costs_only_time(maker, tmp_path):
    steady.steady(maker.run, "x", "", lambda: 1)
    (kept,) = (tmp_path / "cache").rglob("x-*.json")
    kept.write_bytes(b"{")
    assert steady.steady(maker.run, "x", "", lambda: 2) == 2
