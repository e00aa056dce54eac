"""How a sweep's cost grows with the number of its trials, which train a single step each.

The grid is that of Locatello et al. (ICML 2019) on a tiny world: six methods x six strengths x seven data sets
(spacings of squares) x fifty seeds = 12,600 trials; smaller sizes take a part of each. A sweep is planned, run, killed
half-way as by a power cut, resumed to its end, and looked at with every command that reads all of it. The driver's time
counts everything in it: planner, ledger, Tune's loop, messages to workers. Pictures are off: they are the trial's own.

`python benchmarks/bench_scale.py 100 12600 --keep` measures the large one by hand and keeps its numbers in git.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from environments import OURS, kill_and_wait, workplace
from ratios import Bench

from disentune.runs.ledger import Run

SHAPES = {8: (2, 2, 2, 1), 100: (2, 5, 2, 5), 1000: (4, 5, 5, 10), 12600: (6, 6, 7, 50)}
"""Methods, strengths, spacings, seeds."""
DRIVER_LIMIT_MS, FLAT_LIMIT = 150.0, 1.25
EVERY_S = 0.5
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "beta_vae": ("beta", {}),
    "annealed_vae": ("c_max", {"ramp": 1}),
    "factor_vae": ("gamma", {"width": 8, "depth": 2}),
    "dip_vae_i": ("lambda_od", {}),
    "dip_vae_ii": ("lambda_od", {}),
    "beta_tc_vae": ("beta", {}),
}
STRENGTHS = [1, 2, 4, 6, 8, 16]


def sweep(size: int) -> dict[str, Any]:
    methods, strengths, spacings, seeds = SHAPES[size]
    arms = {}
    for name in list(METHODS)[:methods]:
        key, fixed = METHODS[name]
        arms[name] = {
            "framework": {"name": name, **fixed, key: {"grid": STRENGTHS[:strengths]}},
            "dataset.spacing": {"grid": list(range(1, spacings + 1))},
        }
    trial = {
        "dataset": {"name": "xysquares", "image_size": 10, "square_size": 2, "grid_size": 2, "squares": 2},
        "model": {"name": "mlp", "width": 8, "latents": 3},
        "recon": {"name": "mse"},
        "training": {"steps": 1, "batch_size": 4, "learning_rate": 1e-3},
        "loss_scale": "sum",
    }
    return {"name": "scale", "trial": trial, "arms": arms, "seeds": seeds, "pictures": {"when": "never"}}


# ---- commands under the clock


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_s: float
    memory_mb: float

    @property
    def note(self) -> str:
        return f"{self.cpu_s:.1f} s of CPU, {self.memory_mb:.0f} MB"


def cost(words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Cost:
    """Of a command that starts no processes worth counting."""
    began = time.perf_counter()
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            [str(OURS), *words], cwd=folder, env=dict(variables), stdout=log, stderr=subprocess.STDOUT
        )
        _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}:\n{(folder / 'log.txt').read_text()[-3000:]}")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


@dataclass(frozen=True)
class Sample:
    """Of a driver at work; `trials` counts those that have begun."""

    time: float
    trials: int
    cpu_s: float
    memory_mb: float


def watched(words: Sequence[str], run: Run, folder: Path, variables: Mapping[str, str], until: int) -> list[Sample]:
    """Follows a driver until it ends, or kills it once so many trials have begun."""
    samples: list[Sample] = []
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            [str(OURS), *words], cwd=folder, env=dict(variables), stdout=log, stderr=subprocess.STDOUT
        )
    driver = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            with driver.oneshot():
                used, memory = driver.cpu_times(), driver.memory_info().rss / 2**20
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            break
        samples.append(Sample(time.perf_counter(), begun(run), used.user + used.system, memory))
        if samples[-1].trials >= until:
            kill_and_wait(process, folder)
            return samples
        time.sleep(EVERY_S)
    if process.wait():
        raise RuntimeError(f"{words} ended with {process.returncode}:\n{(folder / 'log.txt').read_text()[-3000:]}")
    return samples


def begun(run: Run) -> int:
    trials = run.path / "trials"
    return len(os.listdir(trials)) if trials.exists() else 0


# ---- what it costs


@dataclass(frozen=True)
class Pace:
    """Seconds per trial between the first and the last that began under a driver, in wall and in CPU time."""

    wall_s: float
    driver_s: float


def pace(samples: list[Sample]) -> Pace:
    working = [one for one in samples if samples[0].trials < one.trials] or samples
    first, last = working[0], next(one for one in working if one.trials == working[-1].trials)
    trials = max(last.trials - first.trials, 1)
    return Pace((last.time - first.time) / trials, (last.cpu_s - first.cpu_s) / trials)


def growth(samples: list[Sample]) -> tuple[float, float]:
    """How much longer a trial takes in the last fifth of a driver's trials than in its first: wall, driver's CPU."""
    first, last = samples[0].trials, samples[-1].trials
    fifth = (last - first) // 5
    early = pace([one for one in samples if one.trials <= first + fifth])
    late = pace([one for one in samples if one.trials >= last - fifth])
    return late.wall_s / early.wall_s, late.driver_s / early.driver_s


@dataclass(frozen=True)
class Measured:
    plan: Cost
    paces: list[Pace]
    growth: tuple[float, float] | None
    memory_mb: float
    looks: dict[str, Cost]


def measured(size: int) -> Measured:
    with workplace() as (folder, variables):
        run = Run(folder / "runs" / "scale" / "main")
        (folder / "sweep.yaml").write_text(json.dumps(sweep(size)))
        plan = cost(["plan", "sweep.yaml", "--json"], folder, variables)
        assert json.loads((folder / "log.txt").read_text())["trials"] == size
        halves = [watched(["run", "sweep.yaml", "--storage", "runs"], run, folder, variables, size // 2)]
        halves.append(watched(["resume", str(run.path)], run, folder, variables, size + 1))
        states = [trial.status().state for trial in run.trials()]
        assert states == ["done"] * size, f"{states.count('done')} of {len(states)} are done"
        path = str(run.path)
        looks = {
            "status": cost(["status", path], folder, variables),
            "results": cost(["results", path, "--json"], folder, variables),
            "report": cost(["report", path], folder, variables),
        }
        shutil.rmtree(run.path)
    memory = max(one.memory_mb for half in halves for one in half)
    grown = growth(halves[1]) if size >= 10_000 else None  # a fifth of fewer is over in a second or two
    return Measured(plan, [pace(half) for half in halves], grown, memory, looks)


def tell(bench: Bench, size: int, found: Measured, smallest: int, least: Measured) -> None:
    what, walls = f"{size:,} trials", [1000 * pace.wall_s for pace in found.paces]
    wall, driver = statistics.fmean(walls), 1000 * statistics.fmean(pace.driver_s for pace in found.paces)
    bench.number(f"{what}: to plan", found.plan.seconds, "s", note=found.plan.note)
    note = f"before the kill {walls[0]:.0f}, after it {walls[1]:.0f}"
    bench.number(f"{what}: wall time per trial", wall, "ms", note=note)
    bench.number(f"{what}: driver's CPU time per trial", driver, "ms", at_most=DRIVER_LIMIT_MS)
    bench.number(f"{what}: driver's memory at most", found.memory_mb, "MB")
    for name, look in found.looks.items():
        bench.number(f"{what}: disentune {name}", look.seconds, "s", note=look.note)
    if size > smallest:
        before = statistics.fmean(pace.wall_s for pace in least.paces)
        sides = {"ours": wall, "rival": 1000 * before, "unit": "ms"}
        bench.ratio(
            f"wall time per trial, {size:,} trials / {smallest:,}", wall / 1000 / before, at_most=FLAT_LIMIT, **sides
        )
    if found.growth:
        wall_growth, driver_growth = found.growth
        name = f"{what}: a trial in the last fifth of the resumed half / in its first fifth"
        bench.ratio(f"{name}, wall time", wall_growth, at_most=FLAT_LIMIT)
        bench.ratio(f"{name}, driver's CPU time", driver_growth, at_most=FLAT_LIMIT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", help=f"of {', '.join(map(str, SHAPES))}; default: 100 1000")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/kept, which is in git")
    options = parser.parse_args()
    sizes = sorted(options.sizes or [100, 1000])
    if unknown := set(sizes) - SHAPES.keys():
        parser.error(f"no shape is known for {unknown}")
    bench, all_found = Bench("scale", keep=options.keep), {}
    for size in sizes:
        all_found[size] = measured(size)
        tell(bench, size, all_found[size], sizes[0], all_found[sizes[0]])
    bench.close()


if __name__ == "__main__":
    main()
