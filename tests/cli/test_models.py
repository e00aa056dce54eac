"""`disentune export` and `encode` on a run that was really trained."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from disentune.results.rescore import rebuilt
from disentune.runs.ledger import Run
from simulator import simulate, sweep_file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run = Run(folder / "runs" / "tiny" / "main")
    simulate(run, sweep_file(folder), np.random.default_rng(0), overrides=["seeds=1", "framework.beta=1"])
    return run


@pytest.fixture
def trial(run):
    return run.trials()[0]


def images_of(trial, count):
    return rebuilt(trial).trained.images.data.images(np.arange(count))


@pytest.mark.parametrize(
    ("to", "files"), [("safetensors", ["m.x"]), ("torch", ["m.x"]), ("onnx", ["m.x", "m_decoder.x"])]
)
def test_export_writes_and_names_its_files(disentune, run, trial, tmp_path, to, files):
    code, out, _ = disentune("export", trial.path, "--to", to, "--output", "m.x")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == files
    assert all((tmp_path / name).stat().st_size > 100 for name in files)


def test_export_takes_the_first_characters_of_an_id_and_a_storage(disentune, run, trial, tmp_path):
    storage = run.path.parent.parent
    code, _, _ = disentune("export", f"tiny/main/trials/{trial.id[:8]}", "--to", "torch", "--storage", storage)
    assert code == 0
    assert torch.load(tmp_path / f"{trial.id}.pt", weights_only=True)["card"]["trial"] == trial.id


def test_codes_of_a_file_of_images_can_be_scored(disentune, trial, tmp_path):
    images = images_of(trial, 40)
    np.savez(tmp_path / "images.npz", images=images, factors=np.arange(40)[:, None] % 3)
    code, out, _ = disentune("encode", trial.path, "images.npz", "--output", "mine.npz")
    assert (code, out) == (0, "mine.npz: codes of 40 images, 3 latents\n")
    written = np.load(tmp_path / "mine.npz")
    trained = rebuilt(trial).trained
    trained.model.eval()
    with torch.no_grad():
        q = trained.model.encode(trained.images(np.arange(40)))
    assert (written["codes"] == q.mean.numpy()).all()
    assert written["logvars"] == pytest.approx(q.logvar.numpy(), abs=1e-5)
    assert disentune("score", "mine.npz", "--metrics", "mig")[0] == 0


@pytest.mark.parametrize(
    ("arrays", "output", "expected"),
    [
        ({"pixels": np.zeros(3)}, "x.npz", "images.npz: has no array `images`; save it with np.savez(\"images.npz\""),
        ({"images": np.zeros((2, 3, 8, 8))}, "x.txt", "--output x.txt: must be a file that ends in .npz"),
        ({"images": np.zeros((2, 8, 8, 3), "uint8")}, "x.npz", "images.npz: images: must have the shape (n, 3, 8, 8)"),
        ({"images": np.zeros((2, 3, 8, 8)), "factors": np.ones(3)}, "x.npz", "factors must have one row per image"),
        ({"images": np.array([{}])}, "x.npz", "it holds Python objects, which are never loaded"),
    ],
)  # fmt: skip
def test_images_that_cannot_be_encoded_are_one_message(disentune, trial, tmp_path, arrays, output, expected):
    np.savez(tmp_path / "images.npz", **arrays)
    code, _, err = disentune("encode", trial.path, "images.npz", "--output", output)
    assert code == 2
    assert expected in err
    assert not Path(output).exists()


def test_a_missing_file_of_images_is_refused_with_how_to_save_one(disentune, trial):
    code, _, err = disentune("encode", trial.path, "nothing.npz", "--output", "x.npz")
    expected = 'nothing.npz cannot be read: it does not exist; save arrays with np.savez("images.npz", images=images)'
    assert (code, err.strip()) == (2, expected)


@pytest.mark.parametrize("name", ["tiny/main", "trials/abc", "tiny/main/trials/", "tiny/main/trials/a/b"])
def test_what_names_no_trial_is_refused(disentune, name):
    code, _, err = disentune("export", name, "--to", "torch")
    assert code == 2
    assert "must be RUN/trials/ID" in err


def test_a_damaged_checkpoint_is_not_exported(disentune, run, tmp_path):
    shutil.copytree(run.path, tmp_path / "runs" / "tiny" / "main")
    trial = Run(tmp_path / "runs" / "tiny" / "main").trials()[0]
    for step in trial.checkpoints.steps():
        trial.checkpoints.path(step).write_bytes(b"no checkpoint")
    code, _, err = disentune("export", trial.path, "--to", "torch")
    assert code == 2
    assert "has no intact checkpoint" in err
