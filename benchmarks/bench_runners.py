"""Trials an hour of a sweep of short trials, against what a user would pick instead. Wall time of whole commands.

Everyone gets the same training (`rivals/work.py`) and two slots: our command, plain Ray Tune (as its documentation
shows, and with its reuse of processes), Optuna (threads; processes that share a journal), Syne Tune's local backend,
and a loop that does half of the trials one after another. Each rival stands between two runs of ours. Starting and
ending count, as they do for the user. Ours also writes rows, a checkpoint, pictures, a table and a figure; the others
keep each trial's loss.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from environments import OURS, RIVALS, NotInstallable, python_of, seconds_of, workplace
from ratios import LONG, Bench, cpu_seconds, ratio_of_neighbours
from rivals.work import world

from disentune.learn import process
from disentune.learn.training import Training
from disentune.runs.ledger import Run
from disentune.spec.config import TrialConfig

SLOTS = 2
ROUNDS = {10: 3 if LONG else 1, 1: 5 if LONG else 1}
GOALS = {10: 1.0}
DISENTUNE = "disentune"


def steps_for(seconds: float) -> int:
    """How many take about so long on a free core."""
    process.prepare(threads=1, device="cpu")
    progress = Training(TrialConfig.parse(world(10**9) | {"seed": 0})).run()

    def some() -> None:
        for _ in range(100):
            next(progress)

    some()
    return max(1, round(100 * seconds / min(cpu_seconds(some) for _ in range(5))))


def spans_of_ours(run: Run) -> list[tuple[float, float]]:
    """When each trial began and ended; its last status is written as it ends."""
    ends = {folder: (folder.path / "status.json").stat().st_mtime for folder in run.trials()}
    assert all(folder.status().state == "done" for folder in ends)
    return [(end - folder.status().seconds, end) for folder, end in ends.items()]


def ours(trials: int, steps: int) -> float:
    with workplace() as (folder, variables):
        sweep = {"name": "short", "trial": world(steps), "seeds": trials, "resources": {"concurrent": SLOTS}}
        (folder / "sweep.yaml").write_text(json.dumps(sweep))
        seconds = seconds_of([OURS, "run", "sweep.yaml", "--storage", "runs"], folder, variables)
        _tell(DISENTUNE, seconds, spans_of_ours(Run(folder / "runs" / "short" / "main")), trials)
        return seconds / trials


def rival(name: str, python: Path | str, script: str, more: list[str], trials: int, steps: int) -> float:
    with workplace() as (folder, variables):
        log = folder / "work.log"
        command = [python, RIVALS / script, trials, steps, *more]
        seconds = seconds_of([str(word) for word in command], folder, variables | {"WORK_LOG": str(log)})
        _tell(name, seconds, [tuple(json.loads(line)) for line in log.read_text().splitlines()], trials)
        return seconds / trials


def _tell(name: str, seconds: float, spans: list[tuple[float, float]], trials: int) -> None:
    assert len(spans) == trials, (name, len(spans))
    inside = max(end for _, end in spans) - min(begin for begin, _ in spans)
    each = statistics.median(end - begin for begin, end in spans)
    print(f"  {name}: {seconds:.1f} s for {trials} trials of {each:.1f} s, {seconds - inside:.1f} s before and after")


def runners(trials: int) -> dict[str, Callable[[int], float]]:
    """Seconds per trial, given how many steps it has."""
    here, slots = sys.executable, [str(SLOTS)]
    found = {
        DISENTUNE: partial(ours, trials),
        "Ray Tune, as documented": partial(rival, "Ray Tune", here, "run_ray.py", slots, trials),
        "Ray Tune, reusing processes": partial(rival, "Ray, reuse", here, "run_ray.py", [*slots, "reuse"], trials),
        "Optuna, 2 threads": partial(rival, "Optuna, threads", here, "run_optuna_threads.py", slots, trials),
        "Optuna, 2 processes": partial(rival, "Optuna, processes", here, "run_optuna_processes.py", slots, trials),
        "a sequential loop": partial(rival, "sequential", here, "run_sequential.py", [], trials // 2),
    }
    try:
        python = python_of("syne_tune", beside_ours=True)
        found["Syne Tune, local backend"] = partial(rival, "Syne Tune", python, "run_syne_tune.py", slots, trials)
    except NotInstallable as error:
        print(f"Syne Tune could not be installed: {error}")
    return found


def between_ours(timers: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Each rival's seconds, and the mean of ours just before and just after it: a command takes minutes, in which a
    shared machine becomes another one."""
    rivals = {name: timer for name, timer in timers.items() if name != DISENTUNE}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in rivals}
    before = timers[DISENTUNE]()
    for _ in range(rounds):
        for name, timer in rivals.items():
            theirs, after = timer(), timers[DISENTUNE]()
            found[name].append((theirs, (before + after) / 2))
            before = after
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--lengths", type=float, nargs="+", default=[10, 1], help="seconds of a trial")
    parser.add_argument("--rounds", type=int, help="default: by length")
    options = parser.parse_args()
    bench, found = Bench("runners"), runners(options.trials)
    for length in options.lengths:
        steps = steps_for(length)
        timers = {name: partial(timer, steps) for name, timer in found.items()}
        print(f"{options.trials} trials of about {length:g} s ({steps} steps), {SLOTS} slots", flush=True)
        for name, pairs in between_ours(timers, options.rounds or ROUNDS.get(length, 1)).items():
            theirs, ours_beside = zip(*pairs, strict=True)
            bench.ratio(
                f"{options.trials} trials of {length:g} s: ours / {name}",
                ratio_of_neighbours(theirs, ours_beside),
                at_least=GOALS.get(length),
                ours=3600 / statistics.median(ours_beside),
                rival=3600 / statistics.median(theirs),
                unit="/h",
            )
    bench.close()


if __name__ == "__main__":
    main()
