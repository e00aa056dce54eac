"""A study in three stages, small enough for unit tests, and a driver that carries a stage out in this process."""

from pathlib import Path
from typing import Any

import pytest

from disentune.driver.sweep import Ending, LaunchRequest
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import work

SQUARES = "name: xysquares, image_size: 8, square_size: 2, spacing: 1, grid_size: 3, squares: 2"
COMMON = """
  model: {name: mlp, width: 8, latents: 3}
  framework: {name: beta_vae, beta: 1}
  recon: {name: mse}
  training: {steps: 6, batch_size: 4, learning_rate: 1e-2, log_every: 3}
  evaluation: {metrics: [mig]}
  loss_scale: sum
"""
DONORS = f"""
name: donors
trial:
  dataset: {{{SQUARES}, transform: unit}}{COMMON}
seeds: 4
checkpoint: {{every_steps: 2}}
pictures: never
"""
CHANGED = f"name: manipulated, base: {{{SQUARES}}}, donors: donors, epsilon: 0.3, steps: 12, batch_size: 4, samples: 1"
STUDY = f"""
name: study
needs: {{donors: donors.yaml}}
trial:{COMMON.replace("beta: 1", "beta: 2")}
arms:
  original: {{dataset: {{{SQUARES}, transform: unit}}}}
  changed: {{dataset: {{{CHANGED}, transform: unit}}}}
seeds: 2
checkpoint: {{every_steps: 2}}
pictures: never
"""
STAGES = ("donors", "study-manipulators", "study")
TRIALS = {"donors": 4, "study-manipulators": 1, "study": 4}


def write_study(folder: Path, study: str = STUDY, donors: str = DONORS) -> Path:
    """The files of the study and of its donors."""
    (folder / "donors.yaml").write_text(donors)
    (folder / "study.yaml").write_text(study)
    return folder / "study.yaml"


class Killed(BaseException):
    """The driver and all its workers vanish."""


class Driver:
    """Takes the place of `driver.sweep.launch`: one worker after the other, in this process. `dies_in` names a stage,
    of which the driver is killed after `reports`; a trial whose number is in `fails` of a stage fails."""

    def __init__(self, dies_in: str = "", reports: int = 1, fails: dict[str, int] | None = None):
        self.dies_in, self.reports, self.fails = dies_in, reports, fails or {}
        self.launched: list[str] = []

    def __call__(self, request: LaunchRequest) -> Ending:
        run, sweep = request.run, request.asked.sweep
        self.launched.append(sweep.name)
        with run.locked() as session:
            request.transfers.carry_out(run, request.say)
            run.record(sweep)
            planner = Planner(run, request.asked, session, request.choice)
            self._train(planner, sweep.name)
            if sweep.name in self.fails and not request.retry_failed:
                run.trials()[self.fails[sweep.name]].update_status(state="failed", cause="error: simulated")
                return Ending("", 1)
        for folder in run.trials() if request.retry_failed else ():
            folder.update_status(state="done", cause="")
        return Ending("", 0)

    def _train(self, planner: Planner, name: str) -> None:
        reports = 0
        while not planner.finished:
            segment = planner.next()
            assert segment is not None
            for report in work(segment):
                planner.report(segment.trial_id, report)
                reports += 1
                if (self.dies_in, self.reports) == (name, reports):
                    raise Killed


def use_driver(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Driver:
    driver = Driver(**options)
    monkeypatch.setattr("disentune.driver.sweep.launch", driver)
    return driver


def table(storage: Path) -> dict[str, dict[str, list[Any]]]:
    """Rows of every trial of every stage, without the times that they took."""
    runs = {name: Run(storage / name / "main") for name in STAGES}
    return {name: {folder.id: _timeless(folder.rows()) for folder in run.trials()} for name, run in runs.items()}


def _timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "clock"} for row in rows]
