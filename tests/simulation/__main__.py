"""Simulates many sweeps with faults: `make simulate SEEDS=10000`, or `python -m simulation` in the folder tests."""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import scipy
import torch

from simulation.world import Case, drawn_case, lived, shortened

CHUNK = 10
MEMORY = Path("/dev/shm")


def tried(case: Case, sweeps: Path) -> tuple[str, list[str]]:
    """What went wrong, if anything, and the kinds of faults that happened."""
    folder = Path(tempfile.mkdtemp(dir=sweeps))
    try:
        return "", lived(case, sweeps, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:2000], []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried_seed(task: tuple[int, Path]) -> tuple[int, str, list[str]]:
    torch.set_num_threads(1)
    seed, sweeps = task
    sweeps = sweeps / str(os.getpid())
    sweeps.mkdir(exist_ok=True)
    return seed, *tried(drawn_case(seed, sweeps), sweeps)


def simulate(first: int, count: int, jobs: int, folder: Path) -> tuple[list[tuple[int, str]], Counter[str]]:
    """Failures as (seed, text), and how often each kind of fault happened."""
    failures, happened, began = [], Counter[str](), time.monotonic()
    tasks = ((seed, folder) for seed in range(first, first + count))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done, (seed, text, kinds) in enumerate(pool.imap_unordered(_tried_seed, tasks, CHUNK), 1):
            happened.update(kinds)
            if text:
                failures.append((seed, text))
                _say(f"\nseed {seed}: {text}")
            if done % 100 == 0 or done == count:
                rate = done / (time.monotonic() - began)
                _say(f"\r{done:,} of {count:,} seeds, {len(failures)} failed, {rate:.1f} seeds/s", end="")
    _say("")
    return sorted(failures), happened


def explained(seed: int, folder: Path) -> str:
    """A failing seed with no more faults than it needs."""
    case = shortened(drawn_case(seed, folder), lambda fewer: bool(tried(fewer, folder)[0]))
    return f"{case}\n{tried(case, folder)[0]}"


def upper_bound(failures: int, count: int) -> float:
    """One-sided 95 % bound on the rate of failures (Clopper and Pearson)."""
    return 1.0 if failures == count else float(scipy.stats.beta.ppf(0.95, failures + 1, count - failures))


def _say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=1000, help="how many")
    options.add_argument("--first", type=int, default=0, help="the first of them")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="disentune-") as folder:
        failures, happened = simulate(chosen.first, chosen.seeds, chosen.jobs, Path(folder))
        faults = ", ".join(f"{kind} {times:,}" for kind, times in sorted(happened.items()))
        _say(f"faults that happened: {faults}")
        bound = upper_bound(len(failures), chosen.seeds)
        _say(f"{len(failures)} of {chosen.seeds:,} failed; with 95 % confidence the rate is below {bound:.2g}")
        if failures:
            _say(f"the first failure, with no more faults than it needs:\n{explained(failures[0][0], Path(folder))}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
