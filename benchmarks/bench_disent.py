"""A training step against disent's own trainer: same network, data, batch and optimiser; CPU time, one thread.

disent trains here as its README shows: its XYSquares, its transforms and a DataLoader without workers, its beta-VAE,
and Lightning's trainer with loggers, bars and checkpoints switched off. Once as shipped, and once more in a process
with our settings of the allocator (`disentune.learn.process`), which are three environment variables.
Each variant lives in a process of its own, disent in an environment of its own, and they take turns.

Where disent cannot be installed, the plain loop of `bench_conv_step.py` stands for it.
"""

import json
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from bench_conv_step import OURS, OURS_OVERLAP, SHIPPED, STEPS_AND_ROUNDS, TUNED, WIDE_VECTORS, served
from environments import RIVALS, NotInstallable, python_of, serving
from ratios import Bench, ratio_of_neighbours, taking_turns

from disentune.learn import process

Timer = AbstractContextManager[Callable[[], float]]
MSE, OVERLAP = "mse", "mse_box_r31_l1.0_k3969.0_norm_sum"
DISENT, DISENT_TUNED = "disent as shipped", "disent with our process settings"
GOALS = {DISENT: {64: 1.4, 256: 1.7}, DISENT_TUNED: {64: 1.3, 256: 1.3}}
if not WIDE_VECTORS:  # bench_conv_step.py says why
    GOALS = {DISENT: {64: 1.3, 256: 1.7}, DISENT_TUNED: {64: 1.1, 256: 1.1}}
OVERLAP_GOAL, OVERLAP_ROUNDS = 2.5, 8


def disent(loss: str, tuned: bool, batch_size: int, steps: int) -> Timer:
    settings = [json.dumps(process._MALLOPT)] if tuned else []
    command = [str(python_of("disent")), str(RIVALS / "disent_steps.py"), str(batch_size), loss, *settings]
    return serving(command, steps)


def missing() -> str:
    """Why disent is not there; empty where it is."""
    try:
        python_of("disent")
    except NotInstallable as error:
        return f"a plain loop stands for disent, which could not be installed: {' '.join(str(error).split())}"
    return ""


def variants(batch_size: int, steps: int, stand_in: bool) -> dict[str, Timer]:
    """Timers of squared error."""
    rivals = {DISENT: partial(disent, MSE, False), DISENT_TUNED: partial(disent, MSE, True)}
    if stand_in:
        rivals = {DISENT: partial(served, SHIPPED), DISENT_TUNED: partial(served, TUNED)}
    return {name: make(batch_size, steps) for name, make in ({OURS: partial(served, OURS)} | rivals).items()}


def measured(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    with ExitStack() as stack:
        return taking_turns({name: stack.enter_context(timer) for name, timer in timers.items()}, rounds)


def told(bench: Bench, times: dict[str, list[float]], rival: str, what: str, goal: float, **facts: str) -> None:
    mine, theirs = (1000 * statistics.median(times[name]) for name in (OURS, rival))
    ratio = ratio_of_neighbours(times[rival], times[OURS])
    bench.ratio(f"{what}: {rival} / ours", ratio, at_least=goal, ours=mine, rival=theirs, unit="ms", **facts)


def main() -> None:
    bench, note = Bench("disent"), missing()
    for batch_size, (steps, rounds) in STEPS_AND_ROUNDS.items():
        times = measured(variants(batch_size, steps, stand_in=bool(note)), rounds)
        for rival, goals in GOALS.items():
            told(bench, times, rival, f"step of conv64, batch {batch_size}", goals[batch_size], note=note)
    if not note:
        timers = {OURS: served(OURS_OVERLAP, 256, 1), DISENT: disent(OVERLAP, False, 256, 1)}
        times = measured(timers, OVERLAP_ROUNDS)
        told(bench, times, DISENT, "step with the overlap loss, batch 256", OVERLAP_GOAL, group="loss")
    bench.close()


if __name__ == "__main__":
    main()
