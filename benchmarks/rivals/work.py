"""The training that every runner of sweeps is given: our loop on a small world, on one thread."""

import json
import os
import time
from typing import Any

WORLD: dict[str, Any] = {
    "dataset": {"name": "xysquares", "image_size": 24, "square_size": 4, "grid_size": 6},
    "model": {"name": "mlp", "width": 128, "latents": 9},
    "framework": {"name": "beta_vae", "beta": 1e-3},
    "recon": {"name": "mse"},
    "training": {"batch_size": 64, "learning_rate": 1e-3},
    "evaluation": {},
    "loss_scale": "mean",
}


def world(steps: int) -> dict[str, Any]:
    return WORLD | {"training": WORLD["training"] | {"steps": steps}}


def train(seed: int, steps: int) -> float:
    """The loss at the end. A line in the file WORK_LOG says from when to when it took."""
    from disentune.learn import process
    from disentune.learn.training import Training
    from disentune.spec.config import TrialConfig

    began = time.time()
    process.prepare(threads=1, device="cpu")
    row = None
    for progress in Training(TrialConfig.parse(world(steps) | {"seed": seed})).run():
        row = progress.row or row
    assert row is not None
    with open(os.environ["WORK_LOG"], "a") as log:
        log.write(json.dumps([began, time.time()]) + "\n")
    return row["metrics"]["loss"]
