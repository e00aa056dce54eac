"""One trial of several on a GPU: `python one_of_several.py SHARE SECONDS`.

It says ready, waits for a line, trains for so many seconds, and prints what it measured as JSON."""

import json
import sys
import time

import torch

from disentune.learn import process
from disentune.learn.training import Training
from disentune.spec.config import TrialConfig

WARM_UP = 30


def config() -> TrialConfig:
    """A usual trial: a convolutional network on images of 64 x 64."""
    return TrialConfig.parse({
        "dataset": {"name": "xysquares"},
        "model": {"name": "conv64", "latents": 9},
        "framework": {"name": "beta_vae", "beta": 0.001},
        "recon": {"name": "mse"},
        "training": {"steps": 10**9, "batch_size": 256, "learning_rate": 1e-3, "log_every": 10**9, "device": "cuda"},
        "evaluation": {},
        "loss_scale": "mean",
        "seed": 0,
    })  # fmt: skip


def main(share: float, seconds: float) -> None:
    process.prepare(1, "cuda", share)
    steps, count = Training(config(), on_device=False).run(), 0
    for _ in range(WARM_UP):
        next(steps)
    torch.cuda.synchronize()
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        next(steps)
        torch.cuda.synchronize()
        count += 1
    measured = {
        "steps_per_s": count / (time.monotonic() - began),
        "held": torch.cuda.max_memory_reserved(),
        "of": torch.cuda.get_device_properties(0).total_memory,
    }
    print(json.dumps(measured), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
