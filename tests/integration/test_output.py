"""A sweep runs to its end whether or not anybody can read what it prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from processes import patience_s

TINY = """
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2}
  model: {name: mlp, width: 8, latents: 3}
  framework: {name: beta_vae, beta: {grid: [0.1, 1.0]}}
  recon: {name: mse}
  training: {steps: 10, batch_size: 4, learning_rate: 1e-3}
  evaluation: {metrics: [mig]}
  loss_scale: mean
"""


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("shell", ['"$@" 2>&1 | true', '"$@" >&- 2>&-'], ids=["the reader dies", "closed"])
def test_a_sweep_without_an_output_runs_to_its_end_and_keeps_a_log(commands, tmp_path, shell):
    (tmp_path / "tiny.yaml").write_text(TINY)
    command = [str(Path(sys.executable).with_name("disentune")), "run", "tiny.yaml"]
    subprocess.run(
        ["bash", "-c", shell, "bash", *command],
        cwd=tmp_path, env=commands.environment, timeout=patience_s(), check=False,
    )  # fmt: skip
    trials = commands.json("results", "tiny")
    assert [trial["status"] for trial in trials] == ["done", "done"]
    log = (tmp_path / "runs" / "tiny" / "main" / "run.log").read_text()
    assert "the output cannot be written" in log
    assert "2 done" in log
    assert "disentune results runs/tiny/main" in log
