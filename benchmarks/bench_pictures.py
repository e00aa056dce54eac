"""Drawing and writing a trial's pictures against the training between two evaluations: CPU time, one thread.

The pictures are made as a worker makes them, from the model as it is at that moment. The quick start's interval is
trained whole, its evaluation included; of the 1,000 steps of a convolutional network some are, and count for all. The
disk's own time is printed beside: a trial waits for it, but it depends on the disk alone.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratios import Bench, cpu_seconds, ratio_of_neighbours, taking_turns

from disentune.learn import pictures, process
from disentune.learn.training import Training
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import TrialConfig

LIMIT = 0.03
QUICK = {"image_size": 24, "square_size": 4, "grid_size": 6, "spacing": 4}
OVERLAP = {"name": "overlap", "kernel": "box", "radius": 11, "alpha": 529}
WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int, int, int]] = {
    "quick start, mlp, 300 steps": (QUICK, {"name": "mlp", "width": 128}, {"name": "mse"}, 300, 300, 9),
    "quick start, overlap loss": (QUICK, {"name": "mlp", "width": 128}, OVERLAP, 300, 300, 9),
    "xysquares, conv64, 1,000 steps": ({}, {"name": "conv64"}, {"name": "mse"}, 1000, 20, 9),
}
"""Data set, model, loss, steps between evaluations, how many of them are timed, rounds."""


def config(dataset: dict[str, Any], model: dict[str, Any], recon: dict[str, Any], every: int) -> TrialConfig:
    return TrialConfig.parse(
        {
            "dataset": {"name": "xysquares", **dataset},
            "model": {**model, "latents": 9},
            "framework": {"name": "beta_vae", "beta": 1e-3},
            "recon": recon,
            "training": {"steps": 10**9, "batch_size": 64, "learning_rate": 1e-3},
            "evaluation": {"metrics": ["mig"], "every": every, "table": 15_000},
            "loss_scale": "mean",
            "seed": 0,
        }
    )


def interval(training: Training, steps: int) -> Callable[[], None]:
    progress = training.run()

    def run() -> None:
        for _ in range(steps):
            next(progress)

    return run


def drawing(training: Training, folder: TrialFolder, waits: list[float]) -> Callable[[], None]:
    def run() -> None:
        data = pictures.to_bytes(pictures.drawn(training.trained_model()))
        began, used = time.perf_counter(), time.process_time()
        folder.write_pictures(training.step, data)
        waits.append(time.perf_counter() - began - (time.process_time() - used))

    return run


def main() -> None:
    process.prepare(threads=1, device="cpu")
    bench = Bench("step")
    for name, (dataset, model, recon, every, steps, rounds) in WORLDS.items():
        training = Training(config(dataset, model, recon, every))
        waits: list[float] = []
        with tempfile.TemporaryDirectory() as path:
            folder = TrialFolder(Path(path) / "trial")
            train, draw = interval(training, steps), drawing(training, folder, waits)
            timers = {"training": lambda f=train: cpu_seconds(f), "pictures": lambda f=draw: cpu_seconds(f)}
            times = taking_turns(timers, rounds)
            size = len(folder.read_pictures(folder.picture_steps()[-1]) or b"")
        whole = [seconds * every / steps for seconds in times["training"]]
        print(
            f"{name}: an interval {statistics.median(whole):.2f} s, pictures "
            f"{1000 * statistics.median(times['pictures']):.0f} ms and {size / 1000:.0f} kB, "
            f"disk {1000 * statistics.median(waits):.1f} ms"
        )
        sides = {"ours": 1000 * statistics.median(times["pictures"]), "rival": 1000 * statistics.median(whole)}
        ratio = ratio_of_neighbours(times["pictures"], whole)
        bench.ratio(f"pictures / training between evaluations ({name})", ratio, at_most=LIMIT, **sides, unit="ms")
    bench.close()


if __name__ == "__main__":
    main()
