"""CPU time of the commands that people type all day, against `python -c "import pandas"` in the same rounds.

The commands look at a made-up run of 20 trials that nobody writes to. `again` is a command that has answered before,
with no file of the run changed since; `changed` has answered before, and one trial has changed since, as in a run that
is running; `first` has an empty cache. `BENCH_LONG=1` adds a run of 12,600 trials.
"""

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ratios import LONG, Bench, Spread, ratio_of_neighbours, taking_turns

from disentune.files import documents
from disentune.results.steady import SETTLED_S
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from disentune.spec.config import TrialConfig, nested

ROUNDS = 5
GOAL_S = {20: 0.5, 12600: 2.0}
READING = ("runs", "status", "results")
PLAN_GOAL_S = 1.0
PANDAS = [sys.executable, "-c", "import pandas"]
ROOT = Path(__file__).resolve().parent.parent
TRIAL = {
    "dataset.name": "xysquares", "model.name": "mlp", "model.latents": 9, "framework.name": "beta_vae",
    "framework.beta": 0.001, "recon.name": "mse", "training.steps": 1500, "training.batch_size": 64,
    "training.learning_rate": 0.001, "training.log_every": 500, "evaluation.metrics": ["mig"], "evaluation.every": 500,
    "loss_scale": "mean",
}  # fmt: skip


def made_run(folder: Path, trials: int) -> Run:
    """A run of so many seeds with three rows each, written without waiting for the disk."""
    run = Run(folder / "study" / "main")
    run.path.mkdir(parents=True)
    with open(run.sweep_path, "w") as file:
        documents.dump({"trial": nested(TRIAL), "arms": {"all": {}}, "seeds": trials,
                        "objective": {"metric": "mig", "mode": "max"}}, file)  # fmt: skip
    for seed in range(trials):
        config = TrialConfig.parse(nested({**TRIAL, "seed": seed}))
        trial = run.trial(config.id)
        trial.path.mkdir(parents=True)
        trial.config_path.write_text(json.dumps({"trial_id": config.id, "arms": ["all"], "config": config.tree()}))
        trial.status_path.write_text(json.dumps(asdict(Status("done", 1500, seconds=60.0))))
        rows = ({"step": step, "metrics": {"loss": 1 / step, "mig": step / 1e4}} for step in (500, 1000, 1500))
        trial.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def cpu_s(command: Sequence[str], cache: Path) -> float:
    """User and system time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = os.environ | {"XDG_CACHE_HOME": str(cache)}
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cpu_s_once_changed(command: Sequence[str], cache: Path, run: Run) -> float:
    """After one trial was written."""
    run.trials()[0].status_path.touch()
    return cpu_s(command, cache)


def lines(run: Run) -> dict[str, list[str]]:
    where = str(run.path)
    return {"--help": ["--help"], "list": ["list"], "runs": ["runs", str(run.path.parent.parent)],
            "status": ["status", where], "results": ["results", where]}  # fmt: skip


def measure(bench: Bench, folder: Path, trials: int) -> None:
    run = made_run(folder / str(trials), trials)
    time.sleep(SETTLED_S)
    fresh = (folder / f"cache-{number}" for number in itertools.count())
    timers: dict[str, Callable[[], float]] = {"pandas": lambda: cpu_s(PANDAS, folder)}
    goals: dict[str, float] = {}
    for name, line in lines(run).items():
        command = [sys.executable, "-m", "disentune.cli", *line]
        timers[f"{name}, again"] = lambda command=command: cpu_s(command, folder)  # type: ignore[misc]
        timers[f"{name}, first"] = lambda command=command: cpu_s(command, next(fresh))  # type: ignore[misc]
        goals[f"{name}, again"] = GOAL_S[trials]
    changing = made_run(folder / f"{trials} changing", trials)
    for name in READING:
        command = [sys.executable, "-m", "disentune.cli", *lines(changing)[name]]
        cpu_s(command, folder)
        timers[f"{name}, changed"] = lambda command=command: cpu_s_once_changed(command, folder, changing)  # type: ignore[misc]
        goals[f"{name}, changed"] = GOAL_S[trials]
    plan = [sys.executable, "-m", "disentune.cli", "plan", "sweeps/quickstart.yaml", "--storage", str(folder / "none")]
    timers["plan of the quick start"] = lambda: cpu_s(plan, folder)
    goals["plan of the quick start"] = PLAN_GOAL_S
    times = taking_turns(timers, ROUNDS if trials < 1000 else 2)
    for name in list(times)[1:]:
        ratio = ratio_of_neighbours(times[name], times["pandas"]).median
        note = f"{ratio:.2f} times `import pandas`"
        title = f"{name}, {trials:,} trials"
        bench.number(title, Spread.of(times[name]), "s of CPU", at_most=goals.get(name), note=note)


def main() -> None:
    bench = Bench("commands")
    with tempfile.TemporaryDirectory() as folder:
        for trials in GOAL_S if LONG else (20,):
            measure(bench, Path(folder), trials)
    bench.close()


if __name__ == "__main__":
    main()
