"""An ended trial that was read before is not read again, unless one of its files has changed, and what is shown is the
same."""

import json
import os
from dataclasses import asdict, replace

import numpy as np
import pytest

from disentune.results import ended, watch
from disentune.results.watch import Watcher
from run_examples import course, quick_trial

STATES = ("done", "stopped", "failed", "diverged", "pending")
CAUSES = {"stopped": "scheduler.asha: rung 500", "failed": "error: boom", "diverged": "loss is nan at step 1500"}


@pytest.fixture
def run(make_run, monkeypatch, tmp_path):
    """A run with a trial in each state, which a driver holds."""
    monkeypatch.setattr(ended, "FEW", 1)
    monkeypatch.setattr(ended, "SETTLED_S", -1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"}, seeds=5, scheduler={"name": "asha", "grace": 500})
    for seed, state in enumerate(STATES):
        rows = course(0.1 * seed, np.random.default_rng(seed))
        quick_trial(maker, rows, seed=seed, status=state, cause=CAUSES.get(state, ""))
    with maker.run.locked():
        yield maker.run


@pytest.fixture
def read(monkeypatch):
    """Ids of the trials that were read, in their order."""
    found, refresh = [], watch._Reader.refresh
    monkeypatch.setattr(watch._Reader, "refresh", lambda reader: (found.append(reader.folder.id), refresh(reader)))
    return found


def shown(watcher):
    """All that `status` and `runs` are told."""
    picture = replace(watcher.look(), time=0.0, session_s=None)
    return asdict(picture), [(folder.id, status, steps) for folder, status, steps in watcher.statuses(live=True)]


def test_a_second_command_reads_only_trials_that_have_not_ended_and_shows_the_same(run, read):
    every = shown(Watcher(run))
    first = shown(Watcher(run, remembers=True))
    read.clear()
    assert shown(Watcher(run, remembers=True)) == first == every
    states = {trial["id"]: trial["state"] for trial in every[0]["trials"]}
    assert [states[id] for id in read] == ["pending"]


def test_a_watcher_reads_every_trial_from_its_second_look_on(run, read):
    Watcher(run, remembers=True).look()
    watcher = Watcher(run, remembers=True)
    watcher.look()
    read.clear()
    watcher.look()
    assert len(read) == len(STATES)


def rewritten_with_the_same_time(folder):
    before = folder.rows_path.stat()
    text = folder.rows_path.read_text()
    folder.rows_path.write_text(text.replace('"mig": 0.', '"mig": 1.'))
    os.utime(folder.rows_path, ns=(before.st_atime_ns, before.st_mtime_ns))


def without_its_last_row(folder):
    lines = folder.rows_path.read_text().splitlines(keepends=True)
    folder.rows_path.write_text("".join(lines[:-1]))


CHANGES = {
    "a later score": lambda folder: folder.end_path.write_text(json.dumps({"step": 1500, "metrics": {"mig": 0.9}})),
    "another value at the same time": rewritten_with_the_same_time,
    "a missing row": without_its_last_row,
    "another state": lambda folder: folder.update_status(state="pending"),
    "no status": lambda folder: folder.status_path.unlink(),
    "no rows": lambda folder: folder.rows_path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_an_ended_trial_is_seen(run, change):
    before = shown(Watcher(run, remembers=True))
    CHANGES[change](next(one for one in run.trials() if one.status().state == "done"))
    after = shown(Watcher(run, remembers=True))
    assert after == shown(Watcher(run))
    assert after != before


def test_damage_of_an_ended_trial_is_seen(run):
    Watcher(run, remembers=True).look()
    run.trials()[0].config_path.write_text("{")
    notes = Watcher(run, remembers=True).look().notes
    assert "config.json cannot be read now" in "".join(notes)
    assert notes == Watcher(run).look().notes


def test_another_objective_or_scheduler_is_answered_anew(run):
    Watcher(run, remembers=True).look()
    text = run.sweep_path.read_text()
    run.sweep_path.write_text(text.replace("asha", "median").replace("mode: max", "mode: min"))
    assert shown(Watcher(run, remembers=True)) == shown(Watcher(run))
    assert Watcher(run, remembers=True).look().states["pending"] == 2


def test_a_trial_that_was_written_just_now_is_read_again(run, read, monkeypatch):
    monkeypatch.setattr(ended, "SETTLED_S", 60.0)
    Watcher(run, remembers=True).look()
    read.clear()
    Watcher(run, remembers=True).look()
    assert len(read) == len(STATES)
