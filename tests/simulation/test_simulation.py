"""Sweeps with up to five faults end with the table of an undisturbed one; and a broken promise would be noticed."""

import errno
import secrets

import numpy as np
import pytest
import torch

from disentune.runs import segment
from disentune.runs.planner import Planner
from disentune.runs.trial_folder import TrialFolder
from simulation.disk import Disk, DiskFault, Failure, Killed, Process
from simulation.running import simulate, tried, upper_bound
from simulation.stub import HashedTraining
from simulation.world import KINDS, PAIRS, Case, Fault, calm_of, drawn_case, shortened, sweep_of

FRESH, KEPT = 300, 20


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return tmp_path_factory.mktemp("simulation")


@pytest.mark.parametrize("seed", range(KEPT))
def test_a_sweep_with_faults_ends_with_the_table_of_an_undisturbed_one(sweeps, seed):
    problem, _ = tried(drawn_case(seed, sweeps), sweeps)
    assert problem == ""


@pytest.mark.slow
def test_seeds_are_tried_in_processes_of_their_own(tmp_path):
    failures, happened = simulate(first=1000, count=2, jobs=1, folder=tmp_path)
    assert failures == []
    assert happened


@pytest.mark.long
def test_fresh_sweeps_with_faults_do_so_too(sweeps):
    """On failure: `make simulate FIRST=SEED SEEDS=1`."""
    first = secrets.randbelow(2**40)
    found = {seed: tried(drawn_case(seed, sweeps), sweeps)[0] for seed in range(first, first + FRESH)}
    assert {seed: text for seed, text in found.items() if text} == {}


@pytest.mark.slow
def test_every_kind_of_fault_is_drawn_and_happens(sweeps):
    happened = set()
    for seed in range(1000):
        if happened == set(KINDS):
            return
        case = drawn_case(seed, sweeps)
        if {fault.kind for fault in case.faults} - happened:
            happened |= set(tried(case, sweeps)[1])
    raise AssertionError(f"never happened: {set(KINDS) - happened}")


def test_a_wrong_resume_is_noticed(sweeps, monkeypatch):
    """A checkpoint that forgets a part of its state."""
    calm_of(("grid", "none"), "", sweeps)
    monkeypatch.setattr(HashedTraining, "state", lambda self: {**_state(self), "step": self.step})
    case = Case(1, ("grid", "none"), "", tuple(Fault("driver killed", at) for at in (10, 15, 20, 25, 30)))
    assert "another table" in tried(case, sweeps)[0]


def _state(training):
    return {"model": {"past": torch.zeros(16, dtype=torch.uint8)}, "optimiser": {}, "contents": ()}


def test_a_lost_row_is_noticed(sweeps, monkeypatch):
    case = Case(1, ("grid", "none"), "", (Fault("driver killed", 20),))
    calm_of(case.pair, case.end, sweeps)
    monkeypatch.setattr(TrialFolder, "append_row", lambda self, row: None)
    assert "is lost" in tried(case, sweeps)[0] or "not finished" in tried(case, sweeps)[0]


def test_a_driver_that_does_not_look_at_rows_again_is_noticed(sweeps, monkeypatch):
    """The bug that the simulator found first: seed 155."""
    case = Case(155, ("random", "asha"), "stop: {plateau: {evaluations: 2}}", (Fault("worker lost", 24, 4, 0.1),))
    calm_of(case.pair, case.end, sweeps)
    assert tried(case, sweeps)[0] == ""
    monkeypatch.setattr(Planner, "_catch_up", lambda self, trial: setattr(trial, "status", trial.folder.status()))
    assert "another table" in tried(case, sweeps)[0]


def test_a_failure_is_reduced_to_the_faults_that_it_needs():
    faults = tuple(Fault("kill", at) for at in range(5))
    needed = {faults[1], faults[3]}
    case = shortened(Case(0, PAIRS[0], "", faults), lambda fewer: needed <= set(fewer.faults))
    assert set(case.faults) == needed


def test_the_bound_without_failures_is_that_of_the_rule_of_three():
    assert upper_bound(0, 10_000) == pytest.approx(1 - 0.05**1e-4)
    assert upper_bound(0, 10_000) == pytest.approx(3e-4, rel=0.01)
    assert upper_bound(1, 100) == pytest.approx(0.0466, abs=5e-4)  # R: binom.test(1, 100, alternative = "less")


# ---- the disk


def test_a_killed_process_writes_a_part_and_then_nothing(tmp_path):
    disk, process = Disk([DiskFault("kill", at=2, share=0.5)]), Process("worker")
    with disk.mounted(), disk.used_by(process), disk.open(tmp_path / "rows", "wb") as file:
        with pytest.raises(Killed):
            file.write(b"0123456789")
        with pytest.raises(Killed):
            file.write(b"more")
        with pytest.raises(Killed):
            (tmp_path / "rows").unlink()
    assert (tmp_path / "rows").read_bytes() == b"01234"


def test_a_full_disk_refuses_writes_only_and_only_for_a_while(tmp_path):
    disk = Disk([DiskFault("full disk", at=2, span=2, share=0.0)])
    with disk.mounted(), disk.used_by(Process("driver")), disk.open(tmp_path / "rows", "wb") as file:
        with pytest.raises(Failure) as caught:
            file.write(b"one")
        assert caught.value.errno == errno.ENOSPC
        disk.open(tmp_path / "rows").close()
        file.write(b"two")
    assert (tmp_path / "rows").read_bytes() == b"two"


def test_equal_seeds_give_equal_cases(sweeps):
    assert drawn_case(7, sweeps) == drawn_case(7, sweeps)
    assert len({drawn_case(seed, sweeps) for seed in range(20)}) == 20


def test_sweeps_of_the_simulation_cover_every_search_and_scheduler(sweeps):
    found = {(points.sweep.settings.search.name, points.sweep.settings.scheduler.name)
             for points in (sweep_of(pair, "", sweeps) for pair in PAIRS)}  # fmt: skip
    assert found == set(PAIRS)


def test_numbers_depend_on_every_step_before(sweeps):
    config = sweep_of(PAIRS[0], "", sweeps).points[0].config
    whole = [row["metrics"] for progress in HashedTraining(config).run(9) if (row := progress.row)]
    first = HashedTraining(config)
    rows = [row["metrics"] for progress in first.run(4) if (row := progress.row)]
    rows += [row["metrics"] for progress in HashedTraining(config, first.state()).run(9) if (row := progress.row)]
    assert rows == whole
    skipped = HashedTraining(config, {**HashedTraining(config).state(), "step": 4})
    others = [row["metrics"] for progress in skipped.run(9) if (row := progress.row)]
    assert others != rows[-len(others) :]
    assert np.isfinite(whole[-1]["loss"])
    assert segment.Training is not HashedTraining
