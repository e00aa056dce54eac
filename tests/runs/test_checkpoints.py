"""A checkpoint comes back bit for bit, or the one before it does."""

import errno
import os

import pytest
import torch

from disentune.errors import TrialError
from disentune.runs.checkpoints import Checkpoints

STATE = {
    "step": 7,
    "model": {"w": torch.tensor([0.1, -0.0, float("nan"), 1e-45]), "b": torch.zeros(0)},
    "sums": {"names": ["a"], "total": torch.tensor([1 / 3], dtype=torch.float64), "steps": 2},
    "none": None,
}


def bits(value):
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.numpy().tobytes())
    return {key: bits(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


def save(checkpoints, *steps):
    for step in steps:
        checkpoints.save(step, STATE | {"step": step})


def test_a_checkpoint_comes_back_bit_for_bit(checkpoints):
    save(checkpoints, 7)
    step, state, notes = checkpoints.newest()
    assert (step, notes) == (7, [])
    assert bits(state) == bits(STATE)


def test_a_checkpoint_of_another_step_is_passed_over(checkpoints):
    save(checkpoints, 5, 10)
    checkpoints.path(10).write_bytes(checkpoints.path(5).read_bytes())
    step, _, notes = checkpoints.newest()
    assert (step, notes) == (5, [f"{checkpoints.path(10)} is the checkpoint of step 5; using the previous checkpoint"])


def test_without_a_checkpoint_training_begins_at_zero(checkpoints):
    assert checkpoints.newest() == (0, None, [])


def test_steps_are_sorted_as_numbers_and_strange_files_do_not_count(checkpoints):
    save(checkpoints, 900, 1000, 5, 123_456_789_012)
    (checkpoints.folder / "step-copy.ckpt").touch()
    (checkpoints.folder / "step-0000000007 (copy).ckpt").touch()
    (checkpoints.folder / ".step-0000000008.ckpt.abcd").touch()
    assert checkpoints.steps() == [5, 900, 1000, 123_456_789_012]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "grown"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_with_a_note(checkpoints, damage):
    save(checkpoints, 5, 10)
    path = checkpoints.path(10)
    data = path.read_bytes()
    flipped = data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    wrecks = {"cut": data[:-1], "flipped": flipped, "empty": b"", "foreign": b"PK\x03\x04", "grown": data + b"x"}
    path.write_bytes(wrecks[damage])
    with pytest.raises(TrialError, match="is damaged"):
        checkpoints.load(10)
    step, state, notes = checkpoints.newest()
    assert step == state["step"] == 5
    assert notes == [f"{path} is damaged; using the previous checkpoint"]


def test_when_all_are_damaged_training_begins_again(checkpoints):
    save(checkpoints, 5, 10)
    for step in (5, 10):
        checkpoints.path(step).write_bytes(b"")
    step, state, notes = checkpoints.newest()
    assert (step, state, len(notes)) == (0, None, 2)


def fails_to_read(monkeypatch, number):
    def fail(path, most=None):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("disentune.runs.checkpoints.read_bytes", fail)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES])
def test_a_storage_that_does_not_answer_or_let_us_in_damages_no_checkpoint(checkpoints, monkeypatch, number):
    save(checkpoints, 10, 20)
    with monkeypatch.context() as patch:
        fails_to_read(patch, number)
        with pytest.raises(OSError, match=os.strerror(number)):
            checkpoints.newest()
    assert checkpoints.newest()[0] == 20


def test_a_checkpoint_on_a_bad_block_of_the_disk_is_passed_over(checkpoints, monkeypatch):
    save(checkpoints, 10)
    fails_to_read(monkeypatch, errno.EIO)
    assert checkpoints.newest()[:2] == (0, None)
    assert checkpoints.steps() == []


def test_a_damaged_checkpoint_does_not_crowd_out_the_intact_ones(checkpoints):
    """The newest of 10, 20, 30 is damaged; going on from 20 to 25 and keeping one must keep 25, not the wreck."""
    save(checkpoints, 10, 20, 30)
    checkpoints.path(30).write_bytes(b"wreck")
    assert checkpoints.newest()[0] == 20
    save(checkpoints, 25)
    checkpoints.prune(1, None)
    assert checkpoints.newest()[0] == 25


def test_a_checkpoint_that_a_killed_writer_left_half_is_cleared(checkpoints):
    save(checkpoints, 10)
    (checkpoints.folder / ".step-0000000020.ckpt.1234abcd").write_bytes(b"half")
    checkpoints.prune(2, None)
    assert os.listdir(checkpoints.folder) == ["step-0000000010.ckpt"]


def test_prune_keeps_the_newest_and_the_best(checkpoints):
    save(checkpoints, 1, 2, 3, 4, 5)
    checkpoints.prune(2, 2)
    assert checkpoints.steps() == [2, 4, 5]
    checkpoints.prune(2, 5)
    assert checkpoints.steps() == [4, 5]
    checkpoints.prune(1, None)
    assert checkpoints.steps() == [5]
    checkpoints.prune(3, 99)
    assert checkpoints.steps() == [5]


def test_copying_takes_over_the_state_at_a_step_and_drops_what_came_later(tmp_path):
    ours, theirs = Checkpoints(tmp_path / "ours"), Checkpoints(tmp_path / "theirs")
    save(ours, 5, 10, 15)
    theirs.save(10, STATE | {"step": 10, "mark": "theirs"})
    ours.copy_from(theirs, 10)
    assert ours.steps() == [5, 10]
    assert ours.load(10)["mark"] == "theirs"
    ours.copy_from(theirs, 10)  # a driver that died after it does it again
    assert ours.load(10)["mark"] == "theirs"


def test_copying_into_a_trial_that_has_no_checkpoint_yet(tmp_path):
    ours, theirs = Checkpoints(tmp_path / "ours"), Checkpoints(tmp_path / "theirs")
    save(theirs, 10)
    ours.copy_from(theirs, 10)
    assert ours.newest()[0] == 10


# ---- weights only


def test_a_slim_checkpoint_has_the_bits_of_the_weights_and_nothing_else(checkpoints):
    moments = {"optimiser": {0: {"exp_avg": torch.ones(1000)}}, "contents": []}
    checkpoints.save(7, STATE | moments)
    whole = checkpoints.path(7).stat().st_size
    checkpoints.slim()
    state = checkpoints.load(7)
    assert bits(state["model"]) == bits(STATE["model"])
    assert state.keys() == {"step", "model", "contents", "weights_only"}
    assert checkpoints.path(7).stat().st_size < whole - 4000


def test_training_never_continues_from_weights_only(checkpoints):
    save(checkpoints, 5, 10)
    checkpoints.slim()
    assert checkpoints.newest() == (0, None, [])
    save(checkpoints, 7)
    assert checkpoints.newest()[0] == 7


def test_a_damaged_checkpoint_keeps_no_other_from_being_slimmed(checkpoints):
    save(checkpoints, 5, 10)
    checkpoints.path(5).write_bytes(b"damaged")
    checkpoints.slim()
    assert checkpoints.load(10)["weights_only"]
    assert checkpoints.path(5).read_bytes() == b"damaged"
