"""Tries many seeds of the simulation in parallel. Apart from `__main__`, which a new process cannot import."""

import gc
import multiprocessing
import os
import resource
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
"""Where simulations keep their files, if there is such a folder."""


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
    seed, sweeps = task
    sweeps = sweeps / str(os.getpid())
    sweeps.mkdir(exist_ok=True)
    return seed, *tried(drawn_case(seed, sweeps), sweeps)


def _prepare() -> None:
    """Collections of garbage need not look at the objects of libraries again and again."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def simulate(first: int, count: int, jobs: int, folder: Path) -> tuple[list[tuple[int, str]], Counter[str]]:
    """Failures as (seed, text), and how often each kind of fault happened."""
    failures, happened, began = [], Counter[str](), time.monotonic()
    tasks = ((seed, folder) for seed in range(first, first + count))
    with multiprocessing.get_context("spawn").Pool(jobs, _prepare) as pool:
        for done, (seed, text, kinds) in enumerate(pool.imap_unordered(_tried_seed, tasks, CHUNK), 1):
            happened.update(kinds)
            if text:
                failures.append((seed, text))
                say(f"\nseed {seed}: {text}")
            if done % 100 == 0 or done == count:
                rate = done / (time.monotonic() - began)
                say(f"\r{done:,} of {count:,} seeds, {len(failures)} failed, {rate:.1f} seeds/s", end="")
        pool.close()
        pool.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"\n{count / (used.ru_utime + used.ru_stime):.1f} seeds per second and core, by the time that the cores worked")
    return sorted(failures), happened


def explained(seed: int, folder: Path) -> str:
    """A failing seed with no more faults than it needs."""
    case = shortened(drawn_case(seed, folder), lambda fewer: bool(tried(fewer, folder)[0]))
    return f"{case}\n{tried(case, folder)[0]}"


def upper_bound(failures: int, count: int) -> float:
    """One-sided 95 % bound on the rate of failures (Clopper and Pearson)."""
    return 1.0 if failures == count else float(scipy.stats.beta.ppf(0.95, failures + 1, count - failures))


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()
