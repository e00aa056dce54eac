"""Trained networks of earlier trials: found by id, wherever their run is, and only if they are the right ones."""

import json
from pathlib import Path

import pytest
import torch

from disentune.errors import DataError
from disentune.files.checkpoint import packed, weights_hash
from disentune.files.earlier import VARIABLE, earlier, storage, use_storage

ID = "0123456789abcdef"


def model(value: float) -> dict:
    return {"weight": torch.full((2,), value)}


def leave(run: Path, value: float, step: int = 4, steps: int = 4) -> Path:
    """A trial's folder with one checkpoint."""
    folder = run / "trials" / ID
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"config": {"training": {"steps": steps}}}))
    path = folder / "checkpoints" / f"step-{step:010d}.ckpt"
    path.write_bytes(packed({"step": step, "model": model(value)}))
    return path


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_a_trial_is_found_in_any_run(place):
    leave(place / "sweep" / "second", 1.0)
    found = earlier(ID)
    assert found.weights == weights_hash(model(1.0))
    assert found.tree == {"training": {"steps": 4}}


def test_of_two_copies_the_one_with_the_right_weights_counts(place):
    leave(place / "a" / "main", 1.0)
    leave(place / "b" / "main", 2.0)
    assert torch.equal(earlier(ID, weights_hash(model(2.0))).state["model"]["weight"], torch.full((2,), 2.0))


def test_an_unfinished_trial_is_refused_and_a_finished_copy_taken(place):
    leave(place / "a" / "main", 1.0, step=2)
    with pytest.raises(DataError, match=f"trial {ID} was not trained to its end in {place}"):
        earlier(ID)
    leave(place / "b" / "main", 2.0)
    assert earlier(ID).state["step"] == 4


def test_other_weights_are_refused(place):
    leave(place / "a" / "main", 1.0)
    with pytest.raises(DataError, match="has other weights than expected"):
        earlier(ID, weights_hash(model(2.0)))


def test_a_damaged_last_checkpoint_is_no_end(place):
    leave(place / "a" / "main", 1.0, step=2)
    last = leave(place / "a" / "main", 1.0)
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(DataError, match="was not trained to its end"):
        earlier(ID)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_config_is_no_trial(place, text):
    leave(place / "a" / "main", 1.0).parent.parent.joinpath("config.json").write_text(text)
    with pytest.raises(DataError, match="has no sound checkpoint"):
        earlier(ID)


def test_a_process_can_be_told_its_storage(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    assert storage() == Path("runs")
    use_storage(tmp_path / "other")
    assert storage() == tmp_path / "other"
