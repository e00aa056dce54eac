"""How long a killed run takes to continue: from `disentune resume` to the first new row.

The driver is killed as by a power cut once each of its trials has written a checkpoint; the clock starts with the new
command and stops when a row of a later step than any before is on disk.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environments import OURS, kill_and_wait, workplace
from ratios import LONG, Bench, Spread
from rivals.work import world

from disentune.runs.ledger import Run

LIMIT_S = 15.0
PATIENCE_S = 300.0
TRIALS = 2


def sweep() -> dict[str, Any]:
    trial = world(10**7)
    trial["training"] = trial["training"] | {"log_every": 5}
    return {"name": "killed", "trial": trial, "seeds": TRIALS, "checkpoint": {"every_steps": 100}}


def last_steps(run: Run) -> dict[str, int]:
    """By trial, of the rows on disk."""
    return {folder.id: rows[-1]["step"] for folder in run.trials() if (rows := folder.rows())}


@contextmanager
def command(*words: str, folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Runs until it is killed at the end."""
    with open(folder / "log.txt", "ab") as log:
        process = subprocess.Popen(
            [str(OURS), *words], cwd=folder, env=dict(variables), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        kill_and_wait(process, folder)


def wait_for(condition: Callable[[], bool]) -> float:
    """Seconds until it holds."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError("the run does not get on")
        time.sleep(0.02)
    return time.perf_counter() - began


def resumed() -> tuple[float, float]:
    """Seconds until a trial is running again, and until its first new row."""
    with workplace() as (folder, variables):
        run = Run(folder / "runs" / "killed" / "main")
        (folder / "sweep.yaml").write_text(json.dumps(sweep()))
        with command("run", "sweep.yaml", "--storage", "runs", folder=folder, variables=variables):
            wait_for(lambda: sum(bool(trial.checkpoints.steps()) for trial in run.trials()) == TRIALS)
        before, attempts = last_steps(run), {trial.id: trial.status().attempts for trial in run.trials()}
        with command("resume", str(run.path), folder=folder, variables=variables):
            running = wait_for(lambda: any(one.status().attempts > attempts[one.id] for one in run.trials()))
            rows = wait_for(lambda: any(step > before.get(id, 0) for id, step in last_steps(run).items()))
            return running, running + rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7 if LONG else 3)
    options = parser.parse_args()
    bench = Bench("resume")
    times = [resumed() for _ in range(options.rounds)]
    running, rows = (Spread.of([pair[which] for pair in times]) for which in (0, 1))
    bench.number("`disentune resume` of a killed run: until a trial is running", running, "s")
    bench.number("`disentune resume` of a killed run: until the first new row", rows, "s", at_most=LIMIT_S)
    bench.close()


if __name__ == "__main__":
    main()
