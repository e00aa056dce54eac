"""What Ray costs a trial: driver time for trials that train a single step, and how many processes serve them.

The driver's CPU time counts everything in it: planner, ledger, Tune's loop, messages to workers; not Ray's start-up.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from ratios import verdict

from disentune.ledger import Run
from disentune.sweep import launch
from disentune.sweepfile import read_sweep

TRIALS = 100
LIMIT_MS = 150
SWEEP = """
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2}
  model: {name: mlp, width: 8, latents: 3}
  framework: {name: beta_vae, beta: 1}
  recon: {name: mse}
  training: {steps: 1, batch_size: 4, learning_rate: 1e-3}
  loss_scale: sum
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.yaml"
        path.write_text(SWEEP)
        run = Run(Path(folder) / "runs" / "cost" / "main")
        marks: list[tuple[float, float]] = []

        def listener(planner, trial_id, news) -> None:
            marks.append((time.process_time(), time.monotonic()))

        launch(run, read_sweep(path, [f"seeds={TRIALS}"]), lambda point: True, listener)
        statuses = [json.loads((folder.path / "status.json").read_text()) for folder in run.trials()]
    assert len(statuses) == TRIALS
    assert all(status["state"] == "done" for status in statuses)
    (cpu, wall), (cpu_end, wall_end) = marks[0], marks[-1]
    print(f"{TRIALS} trials: {1000 * (wall_end - wall) / TRIALS:.0f} ms of wall time a trial, workers' start included")
    good = verdict("driver's CPU milliseconds a trial", 1000 * (cpu_end - cpu) / TRIALS, LIMIT_MS)
    sys.exit(not good)


if __name__ == "__main__":
    main()
