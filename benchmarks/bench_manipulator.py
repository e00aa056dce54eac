"""The manipulator: our step against a bare PyTorch loop that does the same work, and how fast a data set is rendered.

The bare loop keeps no rows, no state and no exact resume: it draws from one generator, runs each encoder once per image
without gradients, and steps two fused Adams of torch, that of the manipulator in every third step. Donors are
untrained: their weights do not change the time.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ratios import Bench, Spread, cpu_seconds, interleaved, taking_turns
from torch.nn.functional import binary_cross_entropy_with_logits

from disentune.data import manipulated
from disentune.files import earlier
from disentune.files.checkpoint import packed
from disentune.learn import process
from disentune.learn import training as training_module
from disentune.learn.training import Training, built_model
from disentune.maths.manipulation import bottleneck
from disentune.spec.config import TrialConfig

LIMIT, FASTEST = 1.1, 5000
SMALL = {"name": "x_columns", "image_size": 16, "square_size": 8, "spacing": 1, "grid_size": 9}
LARGE = {"name": "xysquares", "grid_size": 8}
WORLDS = {
    "mlp, 16 pixels, 4 + 4 donors, batch 32": (SMALL, {"name": "mlp", "latents": 3}, 4, 32, 6, 40),
    "conv64, 64 pixels, 1 + 1 donors, batch 16": (LARGE, {"name": "conv64", "latents": 6}, 1, 16, 3, 12),
}
EPSILON, SAMPLES, EVERY, RATE = 0.175, 5, 3, 1e-4


def config(base: dict, model: dict, ensemble: int, batch_size: int) -> TrialConfig:
    roles = ["best"] * ensemble + ["worst"] * ensemble
    donors = [{"role": role, "trial": f"{n:016x}", "weights": f"{n:064x}"} for n, role in enumerate(roles)]
    return TrialConfig.parse(
        {
            "dataset": {**base, "transform": "unit"},
            "model": model,
            "framework": {"name": "manipulator", "donors": donors, "epsilon": EPSILON},
            "recon": {"name": "bce"},
            "training": {"steps": 10**9, "batch_size": batch_size, "learning_rate": RATE, "log_every": 100},
            "evaluation": {},
            "loss_scale": "sum",
            "seed": 0,
        }
    )


def bare_loop(trial: TrialConfig, steps: int) -> Callable[[], None]:
    """Nothing of ours but the data set's images and the networks' layers."""
    data = trial.dataset.plugin.open(trial.dataset.params)
    size, sizes = trial.training.batch_size, data.factor_sizes
    donors = [built_model(trial.with_seed(n)) for n in range(len(trial.framework.params.donors))]
    half, own = len(donors) // 2, built_model(trial)
    unit = torch.nn.Sequential(torch.nn.Linear(len(sizes), 1), torch.nn.Sigmoid())
    decoders = [one for donor in donors for one in donor.decoder.parameters()]
    learner = torch.optim.Adam([*own.decoder.parameters(), *unit.parameters()], lr=RATE, eps=1e-7, fused=True)
    follower = torch.optim.Adam(decoders, lr=RATE, eps=1e-7, fused=True)
    rng, generator, last = np.random.default_rng(0), torch.Generator().manual_seed(0), np.array(sizes) - 1
    count = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(output, target, reduction="sum") / len(target)

    def change(indices: np.ndarray) -> torch.Tensor:
        factors = np.stack(np.unravel_index(indices, sizes), axis=-1)
        w = torch.from_numpy((2 * factors / last - 1).astype(np.float32))
        return EPSILON * torch.tanh(own.decoder(unit(w).expand(-1, own.latents)))

    def codes(donor: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            mu, logvar = donor.encoder(x).chunk(2, dim=1)
            noise = torch.randn((SAMPLES, *mu.shape), generator=generator)
            return (mu + torch.exp(logvar / 2) * noise).flatten(0, 1)

    def run() -> None:
        nonlocal count
        for _ in range(steps):
            count += 1
            indices = rng.integers(len(data), size=size)
            x = torch.from_numpy(data.images(indices)).float() / 255
            with torch.set_grad_enabled(count % EVERY == 0):
                moved = (x + change(indices)).abs()
                target = torch.minimum(moved, 2 - moved).repeat(SAMPLES, 1, 1, 1)
            outputs = [donor.decoder(codes(donor, x)) for donor in donors]
            follower.zero_grad(set_to_none=True)
            sum(loss(output, target.detach()) for output in outputs).backward()
            if count % EVERY == 0:
                losses = [loss(output.detach(), target) for output in outputs]
                learner.zero_grad(set_to_none=True)
                ((sum(losses[half:]) - sum(losses[:half])) / half).backward()
                learner.step()
            follower.step()

    return run


def our_loop(trial: TrialConfig, steps: int) -> Callable[[], None]:
    progress = Training(trial).run()

    def run() -> None:
        for _ in range(steps):
            next(progress)

    return run


def rendering(folder: Path, images: int) -> Callable[[], None]:
    """The first images of a data set of 64 x 64 in colour; its table of changes is drawn once, before."""
    params = manipulated.Params(
        base=LARGE, donors=[], epsilon=EPSILON, steps=1, decoder={"name": "conv64", "latents": 6}, manipulator="0" * 16
    )
    trial = config(*WORLDS["conv64, 64 pixels, 1 + 1 donors, batch 16"][:4])
    place = folder / "sweep" / "run" / "trials" / ("0" * 16)
    (place / "checkpoints").mkdir(parents=True)
    (place / "config.json").write_text('{"config": {"training": {"steps": 1}}}')
    unit = bottleneck(6, torch.Generator().manual_seed(0)).state_dict()
    state = {"step": 1, "model": built_model(trial).state_dict(), "extra": unit}
    (place / "checkpoints" / "step-0000000001.ckpt").write_bytes(packed(state))
    os.environ[earlier.VARIABLE] = str(folder)
    chunks = manipulated.rendered(params, [])
    next(chunks)

    def run() -> None:
        for _ in range(images // manipulated.CHUNK):
            next(chunks)

    return run


def main() -> None:
    process.prepare(threads=1, device="cpu")
    bench = Bench("step")
    for name, (base, model, ensemble, batch_size, steps, rounds) in WORLDS.items():
        trial = config(base, model, ensemble, batch_size)
        training_module.donated = lambda donor, trial=trial: built_model(trial.with_seed(int(donor.trial, 16)))
        ours, rival, ratio = interleaved(our_loop(trial, steps), bare_loop(trial, steps), rounds)
        times = {"ours": 1000 * ours / steps, "rival": 1000 * rival / steps, "unit": "ms"}
        bench.ratio(f"a manipulator's step / a bare PyTorch loop ({name})", ratio, at_most=LIMIT, **times)
    with tempfile.TemporaryDirectory() as folder:
        images, render = 4096, rendering(Path(folder), 4096)
        seconds = taking_turns({"render": lambda: cpu_seconds(render)}, rounds=8)["render"]
        speed = Spread.of([images / one for one in seconds])
        bench.number("manipulated images of 64 x 64 per second of one core", speed, "images/s", at_least=FASTEST)
    bench.close()


if __name__ == "__main__":
    main()
