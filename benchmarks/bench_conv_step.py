"""A training step of conv64 on XYSquares against a plain loop: CPU time, one thread, batches of 64 and 256.

The rival is what most published code does: the same network of plain layers, PyTorch's default Adam, and images drawn
one by one by numpy behind a DataLoader without workers. It is also what disent's trainer comes down to
(`bench_disent.py` runs that itself), and stands for it where disent cannot be installed. Much of such a step is
glibc's, which hands large tensors back to the kernel every time; so the same rival also runs with the settings of our
processes. Those are process-wide: each variant lives in a process of its own, and they take turns.
"""

import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from ratios import LONG, Bench, cpu_seconds, ratio_of_neighbours, taking_turns
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from disentune import data
from disentune.learn import process
from disentune.learn.training import Training
from disentune.spec.config import TrialConfig

BETA, LATENTS, LEARNING_RATE = 1e-3, 9, 1e-3
STEPS_AND_ROUNDS = {64: (2, 20), 256: (1, 12)} if LONG else {64: (2, 12), 256: (1, 8)}
SHIPPED, TUNED = "a plain loop", "a plain loop with our process settings"
OURS, OURS_OVERLAP = "ours", "ours, overlap loss"
WIDE_VECTORS = "AVX512" in torch.backends.cpu.get_cpu_capability()
# The first goals come from a prototype on an Ice Lake core. On an EPYC core (AVX2) oneDNN serves plain layers nearly as
# fast as its matrix product, so less can be gained there: 1.36 to 1.41, 2.1 to 2.2 and 1.12 to 1.28 were measured.
GOALS = (
    {SHIPPED: {64: 1.4, 256: 1.7}, TUNED: {64: 1.3, 256: 1.3}}
    if WIDE_VECTORS
    else {SHIPPED: {64: 1.3, 256: 1.7}, TUNED: {64: 1.1, 256: 1.1}}
)


def our_step(batch_size: int, recon: dict[str, Any] | None = None) -> Callable[[], object]:
    process.prepare(threads=1, device="cpu")
    trial = TrialConfig.parse(
        {
            "dataset": {"name": "xysquares"},
            "model": {"name": "conv64", "latents": LATENTS},
            "framework": {"name": "beta_vae", "beta": BETA},
            "recon": recon or {"name": "mse"},
            "training": {"steps": 10**9, "batch_size": batch_size, "learning_rate": LEARNING_RATE, "log_every": 100},
            "evaluation": {},
            "loss_scale": "mean",
            "seed": 0,
        }
    )
    return partial(next, Training(trial).run())


class SquaresOneByOne(Dataset):
    """XYSquares with its standard settings, an image at a time."""

    def __init__(self) -> None:
        self.world = data.load("xysquares")
        self.mean, self.std = (torch.tensor(v).reshape(3, 1, 1).float() for v in (self.world.mean, self.world.std))
        assert all(np.array_equal(self.drawn(i), self.world.images(np.array([i]))[0]) for i in (0, 7, 123456, 262143))

    def __len__(self) -> int:
        return len(self.world)

    def drawn(self, index: int) -> np.ndarray:
        image = np.zeros((3, 64, 64), dtype=np.uint8)
        places = 8 * np.array(np.unravel_index(index, self.world.factor_sizes))
        for channel, (x, y) in enumerate(places.reshape(3, 2)):
            image[channel, y : y + 8, x : x + 8] = 255
        return image

    def __getitem__(self, index: int) -> Tensor:
        return (torch.from_numpy(self.drawn(index)).float() / 255 - self.mean) / self.std


def plain_network() -> tuple[nn.Module, nn.Module]:
    down, up = [], []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64), (64, 64)):
        down += [nn.Conv2d(inputs, outputs, kernel_size=4, stride=2, padding=2), nn.ReLU()]
    for inputs, outputs in ((64, 64), (64, 32), (32, 32), (32, 3)):
        up += [nn.ConvTranspose2d(inputs, outputs, kernel_size=4, stride=2, padding=1), nn.ReLU()]
    code = [nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 2 * LATENTS)]
    lift = [nn.Linear(LATENTS, 256), nn.ReLU(), nn.Linear(256, 1024), nn.ReLU(), nn.Unflatten(1, (64, 4, 4))]
    return nn.Sequential(*down, *code), nn.Sequential(*lift, *up[:-1])


def plain_step(batch_size: int) -> Callable[[], object]:
    torch.set_num_threads(1)
    images = SquaresOneByOne()
    sampler = RandomSampler(images, replacement=True, num_samples=10**9)
    batches = iter(DataLoader(images, batch_size, sampler=sampler, num_workers=0))
    encoder, decoder = plain_network()
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=LEARNING_RATE)

    def step() -> None:
        x = next(batches)
        mean, logvar = encoder(x).chunk(2, dim=1)
        z = mean + torch.exp(logvar / 2) * torch.randn_like(mean)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
        loss = nn.functional.mse_loss(decoder(z), x) + BETA * kl
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def plain_step_with_our_settings(batch_size: int) -> Callable[[], object]:
    process.prepare(threads=1, device="cpu")
    return plain_step(batch_size)


OVERLAP = {"name": "overlap", "kernel": "box", "radius": 31, "alpha": 63**2}
VARIANTS: dict[str, Callable[[int], Callable[[], object]]] = {
    OURS: our_step,
    OURS_OVERLAP: partial(our_step, recon=OVERLAP),
    SHIPPED: plain_step,
    TUNED: plain_step_with_our_settings,
}


def serve(variant: str, batch_size: int, orders: Connection) -> None:
    """Runs as many steps as ordered and answers with CPU seconds per step, until the order is 0."""
    step = VARIANTS[variant](batch_size)
    while steps := orders.recv():
        orders.send(cpu_seconds(lambda: [step() for _ in range(steps)]) / steps)


@contextmanager
def served(variant: str, batch_size: int, steps: int) -> Iterator[Callable[[], float]]:
    """A timer that makes a process of its own do `steps` steps."""
    spawning = multiprocessing.get_context("spawn")  # a fork would share settings of the allocator
    ours, theirs = spawning.Pipe()
    worker = spawning.Process(target=serve, args=(variant, batch_size, theirs))
    worker.start()
    theirs.close()  # so that a worker that dies ends the wait for it

    def timer() -> float:
        ours.send(steps)
        return ours.recv()

    try:
        yield timer
    finally:
        if worker.is_alive():
            ours.send(0)
        worker.join()


def measured(batch_size: int) -> dict[str, list[float]]:
    steps, rounds = STEPS_AND_ROUNDS[batch_size]
    with ExitStack() as stack:
        variants = (OURS, SHIPPED, TUNED)
        return taking_turns({one: stack.enter_context(served(one, batch_size, steps)) for one in variants}, rounds)


def main() -> None:
    bench = Bench("step")
    for batch_size in STEPS_AND_ROUNDS:
        times = measured(batch_size)
        medians = {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}
        for rival, goals in GOALS.items():
            sides = {"ours": medians[OURS], "rival": medians[rival], "unit": "ms"}
            ratio = ratio_of_neighbours(times[rival], times[OURS])
            name = f"step of conv64, batch {batch_size}: {rival} / ours"
            bench.ratio(name, ratio, at_least=goals[batch_size], **sides)
    bench.close()


if __name__ == "__main__":
    main()
