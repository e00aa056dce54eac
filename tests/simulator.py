"""Carries a sweep out in this process instead of on Ray: workers in random order, deaths at any moment."""

import functools
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from disentune.files.earlier import storage_known
from disentune.results.tables import read
from disentune.runs.choice import EVERY_TRIAL
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import Superseded, work
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from processes import patience_s, rows_on_disk

TINY = """
name: tiny
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2}
  model: {name: linear, latents: 3}
  recon: {name: mse}
  training: {steps: 12, batch_size: 4, learning_rate: 1e-2, log_every: 3}
  evaluation: {metrics: [mig], every: 3}
  loss_scale: mean
arms:
  near: {dataset.spacing: 1, framework.name: beta_vae, framework.beta: BETA}
  far: {dataset.spacing: 2, framework.name: ada_gvae, framework.beta: BETA}
seeds: 2
objective: {metric: mig, mode: max}
checkpoint: {every_steps: 2}
"""
MOST_ROWS = 12
"""New rows that a session may write before it is killed, of the 48 of a sweep."""
GRID = "{grid: [1e-3, 1e-2, 1e-1]}"
RANGE = "{log_uniform: [1e-4, 1]}"
SEARCHES = {
    "grid": (GRID, "search: grid"),
    "random": (RANGE, "search: {name: random, points: 3}"),
    "optuna": (RANGE, "search: {name: optuna, points: 4, in_flight: 2}"),
}
SCHEDULERS = {
    "none": "scheduler: none",
    "asha": "scheduler: {name: asha, grace: 3, reduction: 2}",
    "median": "scheduler: {name: median, grace: 3, min_trials: 1}",
    "pbt": "scheduler: {name: pbt, every: 3, keys: [framework.beta], quantile: 0.34}",
}


def sweep_file(folder: Path, search="grid", scheduler="none", extra="") -> Path:
    """Without pictures, which take longer than the training, unless `extra` asks for them."""
    domain, search_line = SEARCHES[search]
    pictures = "" if "pictures:" in extra else "pictures: never"
    path = folder / "tiny.yaml"
    path.write_text("\n".join([TINY.replace("BETA", domain), search_line, SCHEDULERS[scheduler], pictures, extra]))
    return path


class Death(Exception):
    """The simulated driver and all its workers vanish."""


def with_own_storage(session: Callable) -> Callable:
    """A session in this process leaves no trace in the environment, where segments name their storage."""

    @functools.wraps(session)
    def restored(run: Run, *arguments, **options):
        with storage_known(run.path.parent.parent):
            return session(run, *arguments, **options)

    return restored


@with_own_storage
def simulate(
    run: Run, path: Path, rng: np.random.Generator, slots=3, dies_after=None, overrides=(), choice=EVERY_TRIAL
):
    """One session: workers advance in random order, `slots` at a time; after `dies_after` reports all is dropped."""
    asked = check(read_sweep(path, overrides))
    with run.locked() as session:
        run.record(asked.sweep)
        planner = Planner(run, asked, session, choice)
        workers, reports = {}, 0
        while not planner.finished:
            while len(workers) < slots and (segment := planner.next()) is not None:
                workers[segment.trial_id] = work(segment)
            if not workers:
                assert planner.finished, "nothing runs and nothing can: the planner is stuck"
                break
            trial_id = list(workers)[int(rng.integers(len(workers)))]
            report = next(workers[trial_id])
            if report.outcome is not None:
                del workers[trial_id]
            planner.report(trial_id, report)
            reports += 1
            if reports == dies_after:
                raise Death
    return planner


NOBODY_S_FAULT = ("node", "preempted", "storage", None)


@with_own_storage
def simulate_faults(run: Run, path: Path, rng: np.random.Generator, slots=3, chance=0.15) -> dict[str, int]:
    """One session in which workers are lost for reasons that are not the trial's. Some of them live on, cut off from
    their driver, and try to write while another worker has their trial. Returns how often what happened."""
    sweep, seen = read_sweep(path), {"lost": 0, "refused": 0}
    ticks = itertools.count(step=100)  # no rest is longer
    with run.locked() as session:
        run.record(sweep)
        planner = Planner(run, check(sweep), session, clock=lambda: float(next(ticks)))
        workers, zombies = {}, []
        while not planner.finished:
            while len(workers) < slots and (segment := planner.next()) is not None:
                workers[segment.trial_id] = work(segment)
            if zombies and rng.random() < 0.5:
                seen["refused"] += _drag_on(zombies, int(rng.integers(len(zombies))))
            if not workers:
                continue
            trial_id = list(workers)[int(rng.integers(len(workers)))]
            report = next(workers[trial_id])
            if report.outcome is None and rng.random() < chance:
                zombies.append(workers.pop(trial_id))
                planner.lost(trial_id, "simulated", NOBODY_S_FAULT[int(rng.integers(len(NOBODY_S_FAULT)))])
                seen["lost"] += 1
                continue
            if report.outcome is not None:
                del workers[trial_id]
            planner.report(trial_id, report)
        while zombies:
            seen["refused"] += _drag_on(zombies, 0)
    assert not planner.trouble
    return seen


def _drag_on(zombies: list, number: int) -> bool:
    """One step of a worker that was given up; it ends when it notices."""
    try:
        assert next(zombies[number]).outcome is None, "a worker that was given up has ended its trial"
    except Superseded:
        zombies.pop(number)
        return True
    return False


def sessions_through_kills(run: Run, path: Path, seed: int) -> int:
    """Sessions in child processes, each SIGKILLed a moment after a random number of new rows, until one gets to the
    end; returns the kills."""
    rng, kills = np.random.default_rng(seed), 0
    while True:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                simulate(run, path, np.random.default_rng(seed + kills), slots=3)
                code = 0
            finally:
                os._exit(code)
        wanted = rows_on_disk(run.path) + int(rng.integers(MOST_ROWS))
        status = _wait(child, lambda wanted=wanted: rows_on_disk(run.path) >= wanted)
        time.sleep(rng.uniform(0, 0.02))
        if status is None:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        if status != signal.SIGKILL:
            assert status == 0, "the session failed by itself"
            return kills
        kills += 1


def _wait(child: int, condition: Callable[[], bool]) -> int | None:
    """The child's exit status, or None if the condition holds first."""
    deadline = time.monotonic() + patience_s()
    while not condition():
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        assert time.monotonic() < deadline, "the session hangs"
        time.sleep(0.005)
    return None


def table(run: Run) -> list:
    return [(r.trial_id, r.status, [(row["step"], row["metrics"], row.get("overrides")) for row in r.rows])
            for r in read(run).records]  # fmt: skip


def disturbed(run: Run, path: Path, seed: int) -> int:
    """Runs to the end through as many deaths as it takes; returns how many there were."""
    rng, deaths = np.random.default_rng(seed), 0
    while True:
        try:
            simulate(run, path, rng, slots=int(rng.integers(1, 5)), dies_after=int(rng.integers(3, 40)))
            return deaths
        except Death:
            deaths += 1
