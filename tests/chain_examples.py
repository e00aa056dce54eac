"""A chain in miniature, without Ray: donors, the manipulator that is made from them, and the data set that it draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disentune.files.earlier import VARIABLE
from disentune.results.donors import manipulator_trials, resolve
from disentune.runs.ledger import Run
from disentune.runs.segment import Segment, work
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Settings
from simulator import simulate

BASE = {"name": "xysquares", "image_size": 8, "square_size": 2, "spacing": 1, "grid_size": 3, "squares": 2}
DONORS = """
name: tiny_donors
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, spacing: 1, grid_size: 3, squares: 2, transform: unit}
  model: {name: mlp, width: 8, latents: 3}
  framework: {name: beta_vae, beta: 1}
  recon: {name: RECON}
  training: {steps: 4, batch_size: 4, learning_rate: LEARNING_RATE, log_every: 2}
  evaluation: {metrics: [mig]}
  loss_scale: sum
seeds: 4
pictures: never
"""


def donors(storage: Path, name: str = "main", recon: str = "mse", learning_rate: str = "1e-2") -> Run:
    """A finished run of four donors."""
    storage.mkdir(parents=True, exist_ok=True)
    path = storage / "tiny_donors.yaml"
    path.write_text(DONORS.replace("RECON", recon).replace("LEARNING_RATE", learning_rate))
    run = Run(storage / "tiny_donors" / name)
    simulate(run, path, np.random.default_rng(0))
    return run


def study(**changes: Any) -> dict[str, Any]:
    """A trial on the manipulated data set, its donors not yet found; `changes` are of its data set."""
    section = {"name": "manipulated", "base": BASE, "donors": "donors", "epsilon": 0.3, "steps": 12, "batch_size": 4,
               "learning_rate": 1e-2, "samples": 2, "best": 2, "worst": 1, "transform": "unit"}  # fmt: skip
    return {
        "dataset": {**section, **changes},
        "model": {"name": "mlp", "width": 8, "latents": 3},
        "framework": {"name": "beta_vae", "beta": 1},
        "recon": {"name": "mse"},
        "training": {"steps": 4, "batch_size": 4, "learning_rate": 1e-2},
        "evaluation": {"metrics": []},
        "loss_scale": "sum",
        "seed": 0,
    }


def train(storage: Path, tree: dict[str, Any], stops: tuple[int, ...] = ()) -> Run:
    """The trial of a tree in a run of its own. At each of `stops` its worker is dropped, with all that it had in
    memory; another one continues."""
    config = TrialConfig.parse(tree)
    run = Run(storage / "tiny_manipulators" / "main")
    settings = Settings.model_validate({"checkpoint": {"every_steps": 5}}).model_dump()
    with run.locked() as session:
        folder = run.trial(config.id)
        folder.create(config, ("all",))
        segment = Segment(str(run.path), config.id, config.training.steps, session, settings)
        for stop in stops:
            next(report for report in work(segment) if report.step >= stop)
        *_, last = work(segment)
    assert last.outcome == "done"
    return run


def resolved(storage: Path, **changes: Any) -> dict[str, Any]:
    """The data set's section with its donors and the manipulator's trial, of which nothing is trained yet."""
    run = Run(storage / "tiny_donors" / "main")
    return resolve(study(**changes), {"donors": run})["dataset"]


def params_of(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key not in ("name", "transform", "statistics", "noise")}


def small_manipulated(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everything that the data set is made from, in a storage inside the data root; gives its parameters."""
    storage = root / "storage"
    monkeypatch.setenv(VARIABLE, str(storage))
    donors(storage)
    section = resolved(storage)
    (tree,) = manipulator_trials([{**study(), "dataset": section}])
    train(storage, tree)
    return params_of(section)


FILES = {"manipulated": small_manipulated}
