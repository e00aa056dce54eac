"""A sweep that resumes from whatever a cut of the power leaves ends with its table, or says which file is damaged."""

import numpy as np
import pytest
import torch

from simulation.crashes import Operation, states
from simulation.power_cuts import MODELS, SWEEPS, after_failure, outcome, recorded, some_syncs, tried
from simulation.stub import HashedTraining

QUICK, POINTS, LONG_S = 5, 12, 6.0
"""States of each sweep and model, the points at which they are looked for, and seconds of processor time of each."""


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return tmp_path_factory.mktemp("power_cuts")


@pytest.fixture(scope="module")
def recordings(sweeps):
    """The operations of each sweep."""
    return {pair: recorded(pair, end, sweeps) for pair, end in SWEEPS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pair", SWEEPS, ids=" ".join)
def test_a_sample_of_states_gives_the_same_table(sweeps, recordings, pair, model):
    operations = recordings[pair]
    ends = np.random.default_rng(1).choice(len(operations), POINTS, replace=False).tolist()
    done = tried(operations, pair, SWEEPS[pair], model, sweeps, most=QUICK, ends=ends)
    assert done.wrong == 0, str(done)


@pytest.mark.slow
@pytest.mark.parametrize("pair", SWEEPS, ids=" ".join)
def test_data_that_a_failed_sync_has_lost_is_computed_again(sweeps, recordings, pair):
    (fails_at,) = some_syncs(recordings[pair], 1)
    operations = recorded(pair, SWEEPS[pair], sweeps, fails_at)
    ends = np.random.default_rng(1).choice(after_failure(operations), POINTS, replace=False).tolist()
    done = tried(operations, pair, SWEEPS[pair], "weak", sweeps, most=QUICK, ends=ends)
    assert done.wrong == 0, str(done)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pair", SWEEPS, ids=" ".join)
def test_many_states_give_the_same_table(sweeps, recordings, pair, model):
    done = tried(recordings[pair], pair, SWEEPS[pair], model, sweeps, most=2000, budget_s=LONG_S)
    assert done.wrong == 0, str(done)


def test_a_wrong_resume_is_noticed(sweeps, recordings, monkeypatch):
    pair = ("grid", "none")
    middle = [state for at, state in states(recordings[pair], "ordered") if at == len(recordings[pair]) // 2]
    assert outcome(middle[0], pair, "", sweeps) == "same table"
    forgetful = {"model": {"past": torch.zeros(16, dtype=torch.uint8)}, "optimiser": {}, "contents": ()}
    monkeypatch.setattr(HashedTraining, "__init__", _forgetting(HashedTraining.__init__, forgetful))
    assert outcome(middle[0], pair, "", sweeps) == "another table"


def _forgetting(real, forgetful):
    def begin(self, config, state=None, on_device=False):
        real(self, config, state and {**forgetful, "step": state["step"]}, on_device)

    return begin


# ---- the states themselves


def replaced(*syncs):
    """A file is written aside and renamed over an older one."""
    return [
        Operation("create", "a", 1), Operation("write", "a", 1, b"old!"), Operation("sync", "a", 1),
        Operation("create", "then", 3), Operation("sync folder", ""),
        Operation("create", ".a", 2), Operation("write", ".a", 2, b"new!"), *syncs,
        Operation("rename", ".a", 2, target="a"),
    ]  # fmt: skip


def contents(operations, model, name):
    """What the file may hold from the second half on."""
    return {state[name] for _, state in states(operations, model) if {name, "then"} <= state.keys()}


@pytest.mark.parametrize("model", MODELS)
def test_a_file_that_was_synced_before_its_rename_is_old_or_new(model):
    assert contents(replaced(Operation("sync", ".a", 2)), model, "a") == {b"old!", b"new!"}


@pytest.mark.parametrize("model", MODELS)
def test_a_file_that_was_not_synced_before_its_rename_may_be_lost_zeros_or_cut(model):
    assert contents(replaced(), model, "a") == {b"old!", b"new!", b"", bytes(4), b"ne"}


def test_names_are_lost_in_order_in_one_model_and_in_any_order_in_the_other():
    made = [Operation("create", "a", 1), Operation("create", "b", 2)]
    ordered = [sorted(state) for _, state in states(made, "ordered")]
    weak = [sorted(state) for _, state in states(made, "weak")]
    assert ordered == [[], ["a"], ["a", "b"]]
    assert sorted(weak) == [[], ["a"], ["a", "b"], ["b"]]


@pytest.mark.parametrize(("model", "lost"), [("ordered", False), ("weak", True)])
def test_a_sync_of_another_file_keeps_a_name_only_in_the_ordered_model(model, lost):
    made = [Operation("create", "a", 1), Operation("create", "b", 2), Operation("sync", "b", 2)]
    last = [sorted(state) for end, state in states(made, model)]
    assert ([] in last[1:] or ["b"] in last) is lost


@pytest.mark.parametrize("model", MODELS)
def test_a_sync_that_failed_may_lose_what_a_later_one_does_not_save(model):
    made = [
        Operation("create", "a", 1), Operation("sync folder", ""), Operation("write", "a", 1, b"old!"),
        Operation("failed sync", "a", 1), Operation("write", "a", 1, b"new!"), Operation("sync", "a", 1),
    ]  # fmt: skip
    last = {state["a"] for _, state in states(made, model, [len(made)])}
    assert last == {b"old!new!", b"new!", bytes(4) + b"new!", b"olnew!"}


def test_a_file_in_a_folder_that_was_lost_cannot_be_reached():
    made = [Operation("mkdir", "x"), Operation("create", "x/a", 1), Operation("sync folder", "x")]
    assert [sorted(state) for _, state in states(made, "weak")] == [[], ["x"], ["x", "x/a"]]
