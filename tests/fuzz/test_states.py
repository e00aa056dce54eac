"""What trials leave and read again, checkpoints and pictures, and what is prepared for them: damaged or forged, they
are passed over, refused or made again; never run, and never taken for what they are not."""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from conftest import trial_config
from disentune.data.prepared import store
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import VARIABLE, about_of, folder_of, mapped, prepared_sources, verify
from disentune.errors import DataError, TrialError
from disentune.learn import pictures
from disentune.learn.pictures import COLUMNS, FRAMES, Pictures
from disentune.learn.training import Training
from disentune.runs.checkpoints import MAGIC, Checkpoints
from fuzz.containers import damaged_npz, zipped
from fuzz.mutations import mutated_bytes, mutated_tree, odd_value
from fuzz.trying import inputs, wrongs
from stored_examples import NAME, example, source_of

# ---- checkpoints

SMALL = {
    "dataset__image_size": 8, "dataset__square_size": 2, "dataset__grid_size": 2, "model__width": 4,
    "model__latents": 2, "training__steps": 4, "training__batch_size": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    return Training(trial_config(**SMALL)).state() | {"step": 1}


@pytest.fixture
def checkpoints(tmp_path: Path, state: dict[str, Any]) -> Checkpoints:
    """A sound one of step 1, and below step 2 whatever a test puts there."""
    found = Checkpoints(tmp_path / "checkpoints")
    found.save(1, state)
    return found


def payload(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def forged(content: bytes) -> bytes:
    """A file of ours with the right hash, whatever it holds."""
    return MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def assert_passed_over(checkpoints: Checkpoints, content: bytes) -> None:
    Path(str(checkpoints.path(2))).write_bytes(content)
    with pytest.raises(TrialError, match=r"step-0000000002\.ckpt"):
        checkpoints.load(2)
    step, found, notes = checkpoints.newest()
    assert (step, len(notes)) == (1, 1)
    assert found is not None


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    checkpoints: Checkpoints, state: dict[str, Any]
) -> None:
    whole = forged(payload({**state, "step": 2}))

    def verdict(content: bytes) -> str:
        if content != whole:
            assert_passed_over(checkpoints, content)
        return ""

    found = wrongs(inputs("checkpoint", 150, lambda rng: mutated_bytes(whole, rng)), verdict)
    assert not found, found


def test_a_forged_checkpoint_is_a_state_or_passed_over(checkpoints: Checkpoints, state: dict[str, Any]) -> None:
    """Its hash is right, so only what torch makes of it counts."""
    content = payload({**state, "step": 2})

    def verdict(changed: bytes) -> str:
        Path(str(checkpoints.path(2))).write_bytes(forged(changed))
        try:
            loaded = checkpoints.load(2)
        except TrialError:
            return ""
        return "" if isinstance(loaded, dict) else "is no state"

    found = wrongs(inputs("forged checkpoint", 150, lambda rng: mutated_bytes(content, rng)), verdict)
    assert not found, found


class Bomb:
    """Leaves a file when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def bombs(mark: Path) -> dict[str, bytes]:
    legacy = io.BytesIO()
    torch.save({"step": 2, "model": Bomb(mark)}, legacy, _use_new_zipfile_serialization=False)
    code = pickle.dumps(Bomb(mark))
    return {
        "torch": payload(Bomb(mark)),
        "nested": payload({"step": 2, "model": {"weight": Bomb(mark)}}),
        "legacy": legacy.getvalue(),
        "zip": zipped({"archive/data.pkl": code, "archive/version": b"3\n"}),
        "script": zipped({"archive/constants.pkl": code, "archive/data.pkl": b"", "archive/version": b"3\n"}),
        "pickle": code,
        "pickle 0": pickle.dumps(Bomb(mark), 0),
    }


@pytest.mark.parametrize("kind", ["torch", "nested", "legacy", "zip", "script", "pickle", "pickle 0"])
def test_a_checkpoint_that_holds_code_is_passed_over_and_the_code_not_run(
    checkpoints: Checkpoints, tmp_path: Path, kind: str
) -> None:
    mark = tmp_path / "run"
    content = bombs(mark)[kind]
    assert_passed_over(checkpoints, forged(content))
    assert not mark.exists()


def test_the_bombs_do_go_off(tmp_path: Path) -> None:
    pickle.loads(bombs(tmp_path / "run")["pickle"])
    assert (tmp_path / "run").exists()


def strange_state(state: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    """A state of which a part, or a part of a part, is missing or something else."""
    changed = {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}
    inner = rng.choice([changed, changed["model"], changed["sums"], changed["optimiser"]])
    key = rng.choice([*inner, "x"])
    inner[key] = rng.choice([odd_value(rng), torch.zeros(3), torch.zeros(()), None])
    if rng.random() < 0.5:
        del inner[key]
    return changed


def test_a_state_that_is_not_the_trials_is_refused(state: dict[str, Any]) -> None:
    def verdict(changed: dict[str, Any]) -> str:
        try:
            Training(trial_config(**SMALL), changed)
        except (TrialError, DataError):
            return ""
        return ""

    found = wrongs(inputs("state", 60, lambda rng: strange_state(state, rng)), verdict)
    assert not found, found


# ---- pictures


def sound_pictures() -> dict[str, np.ndarray]:
    """Arrays of a picture file, as `to_bytes` names them."""
    shown = Pictures(
        originals=np.zeros((3, 8, 8, 3), np.uint8),
        reconstructions=np.zeros((3, 8, 8, 3), np.uint8),
        traversals=np.zeros((2, FRAMES, 8, 8, 3), np.uint8),
        latents=np.arange(2),
        kl=np.ones(2, np.float32),
        spans=np.ones((2, 2), np.float32),
        distances={"x": np.ones((len(COLUMNS), 4, 4), np.float32)},
    )
    with np.load(io.BytesIO(pictures.to_bytes(shown))) as file:
        return dict(file)


def reshaped(array: np.ndarray, rng: Random) -> np.ndarray:
    """Other numbers, other axes, another type."""
    kinds = ["f8", "i8", "u1", "?", "c8", "U3", "S2", "M8[s]", "i1"]
    shapes = [(), (0,), (3,), (0, 0), (2, 2), (2, 0, 8, 3), (3, 8, 8, 3), (70, 2, 2, 1), (5, 0, 0), (5, 90, 90)]
    if rng.random() < 0.5:
        return np.zeros(array.shape, rng.choice(kinds))
    return np.zeros(rng.choice(shapes), rng.choice([array.dtype.str, array.dtype.str, *kinds]))


def strange_pictures(rng: Random) -> bytes:
    arrays = sound_pictures()
    if rng.random() < 0.4:
        return damaged_npz(arrays, rng)
    name = rng.choice(list(arrays))
    arrays[name] = reshaped(arrays[name], rng)
    if rng.random() < 0.2:
        arrays["factors"] = np.array(rng.choice([["\ud800"], ["x", "x"], [""], ["y"], ["x" * 500], ["\n\x1b[31m"]]))
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_strange_pictures_are_shown_or_refused() -> None:
    def verdict(content: bytes) -> str:
        try:
            shown = pictures.from_bytes(content)
        except DataError:
            return ""
        pictures.sheets(shown)
        "".join(pictures.latent_labels(shown)).encode()
        return ""

    found = wrongs(inputs("pictures", 300, strange_pictures), verdict)
    assert not found, found


# ---- prepared arrays


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    return folder_of(source_of())


@pytest.mark.parametrize("name", ["about.json", "images.npy", "checked.json"])
def test_a_changed_array_is_noticed_or_the_very_same(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sound = {path.name: path.read_bytes() for path in prepared.iterdir()}

    def make(rng: Random) -> bytes:
        if name == "images.npy" or rng.random() < 0.3:
            return mutated_bytes(sound[name], rng)
        return json.dumps(mutated_tree(json.loads(sound[name]), rng)).encode()

    def verdict(content: bytes) -> str:
        monkeypatch.setattr(store, "_checked", {})
        for other, data in sound.items():
            (prepared / other).write_bytes(content if other == name else data)
        outcomes = [_opened(), _verified(), *_told()]
        return "; ".join(outcome for outcome in outcomes if outcome)

    found = wrongs(inputs(name, 120, make), verdict)
    assert not found, found


def _opened() -> str:
    try:
        about = about_of(source_of())
        assert about is not None
        images = mapped(source_of(), about).images(np.arange(len(example())))
    except DataError as error:
        return "" if "example" in str(error) else f"names nothing: {error}"
    return "" if np.array_equal(images, example()) else "gives other images"


def _verified() -> str:
    try:
        verify(source_of())
    except DataError:
        return ""
    return ""


def _told() -> list[str]:
    """What lies there by its own word: never a folder elsewhere."""
    found = prepared_sources()
    return [f"is told as {key}" for key, source in found.items()
            if not isinstance(source, DataError) and source.key != key]  # fmt: skip
