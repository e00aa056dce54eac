"""Sweeps on a user's own file, on real Ray: prepared once, by the command or by the first trial that needs it."""

import subprocess
import sys

import numpy as np
import pytest

from processes import patience_s

SWEEP = """
trial:
  dataset:
    name: grid_file
    path: mine.npz
    image_shape: [3, 8, 8]
    factor_names: [colour, x, y]
    factor_sizes: [3, 4, 4]
    categorical: [colour]
  model: {{name: mlp, latents: 2, width: 8}}
  framework: {{name: ada_gvae, beta: 1}}
  recon: {{name: mse}}
  training: {{steps: 30, batch_size: 8, learning_rate: 1e-3, log_every: 10}}
  evaluation: {{metrics: [mig]}}
  loss_scale: sum
seeds: 4
data: {{root: {root}}}
"""
LAUNCH = """
from pathlib import Path
from disentune.spec import space
from disentune.runs.choice import EVERY_TRIAL
from disentune.runs.ledger import Run
from disentune.driver.sweep import LaunchRequest, launch
if __name__ == "__main__":
    run, asked = Run(Path("runs/own/main").absolute()), space.read(Path("own.yaml"))
    launch(LaunchRequest(run, asked, EVERY_TRIAL, lambda *news: None))
"""


@pytest.fixture
def root(commands):
    folder = commands.folder / "data"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, size=(48, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "mine.npz", images=images)
    (commands.folder / "own.yaml").write_text(SWEEP.format(root=folder))
    commands.environment.pop("DISENTUNE_DATA", None)
    return folder


def rows(commands):
    return (commands.folder / "runs" / "own" / "main" / "results.parquet").read_bytes()


@pytest.mark.ray
@pytest.mark.long
def test_trials_that_start_at_once_prepare_the_data_and_give_the_rows_of_any_other_run(commands, root):
    """The first run finds it prepared by the command, the second leaves it to its four trials."""
    code, output = commands.run("run", "own.yaml")
    assert code == 0, output
    assert "prepared grid_file_" in output
    (folder,) = root.glob("grid_file_*")
    before, contents = rows(commands), (folder / "images.npy").read_bytes()

    (commands.folder / "runs" / "own").rename(commands.folder / "first")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    done = subprocess.run([sys.executable, "-c", LAUNCH], cwd=commands.folder, env=commands.environment,
                          capture_output=True, text=True, timeout=patience_s())  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "images.npy").read_bytes() == contents
    assert sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) == [folder.name, "mine.npz"]
    assert commands.run("results", "own", "--parquet")[0] == 0
    assert rows(commands) == before


@pytest.mark.ray
@pytest.mark.long
def test_a_file_that_is_missing_is_met_before_any_trial(commands, root):
    (root / "mine.npz").unlink()
    code, output = commands.run("run", "own.yaml")
    assert code == 2, output
    assert "mine.npz exists" in " ".join(output.split())
    assert not list((commands.folder / "runs").glob("own/main/trials/*"))
