"""Made-up runs for reports: real ledgers, quick to write, with scores that tell a story."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from conftest import RunMaker, trial_config
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import StepReport
from disentune.runs.suggest import journal
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.config import id_of
from disentune.spec.space import check
from disentune.spec.sweepfile import SweepFile

STEPS = (500, 1000, 1500)


def quick_trial(maker: RunMaker, rows: Iterable[Mapping[str, Any]], arm: str = "all", status: str = "done",
                cause: str = "", **changes: Any) -> str:  # fmt: skip
    """As `RunMaker.trial`, without waiting for the disk; a trial with rows is not asked for more of them."""
    rows = list(rows)
    is_short = bool(rows) and rows[-1]["step"] < 100  # no row of losses is due yet
    rhythm = {} if is_short else {"training__log_every": STEPS[-1], "evaluation__every": STEPS[-1]}
    config = trial_config(**rhythm | changes)
    folder = maker.run.trial(config.id)
    folder.path.mkdir(parents=True)
    content = {"trial_id": config.id, "arms": [arm], "config": config.tree()}
    (folder.path / "config.json").write_text(json.dumps(content))
    step = rows[-1]["step"] if rows else 0
    state = Status(state=status, step=step, cause=cause, seconds=60.0 + step / 100, node="node-1", attempts=1)  # type: ignore[arg-type]
    (folder.path / "status.json").write_text(json.dumps(asdict(state)))
    lines = [
        {"step": row["step"], "metrics": {key: value for key, value in row.items() if key not in ("step", "details")},
         "details": row.get("details", {}), "clock": {"seconds": row["step"] / 100}}
        for row in rows
    ]  # fmt: skip
    folder.rows_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return config.id


def suggested(maker: RunMaker, points: Mapping[str, list[dict[str, float]]], **settings: Any) -> None:
    """Writes the sweep and the journal of a search that suggested these points in each arm."""
    count = max(len(some) for some in points.values())
    search = {"name": "optuna", "points": count}
    maker.sweep(list(points), objective={"metric": "mig", "mode": "max"}, search=search, **settings)
    storage = journal(maker.run.journal_path)
    for arm, some in points.items():
        study = optuna.create_study(study_name=arm, storage=storage)
        for values in some:
            ranges = {key: FloatDistribution(0.0, 100.0) for key in values}
            study.enqueue_trial(values)
            study.ask(ranges).set_user_attr("asked", True)


def forged(folder: TrialFolder, change: Callable[[dict[str, Any]], None]) -> TrialFolder:
    """A trial with a changed config, in the folder that its config names: what a stranger could put there."""
    content = json.loads((folder.path / "config.json").read_text())
    change(content["config"])
    content = {"arms": content["arms"], "config": content["config"]}
    (folder.path / "config.json").write_text(json.dumps(content))
    moved = folder.path.with_name(id_of(content["config"]))
    folder.path.rename(moved)
    return TrialFolder(moved)


def course(score: float, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rows whose MIG and DCI rise to a score; SAP follows them loosely, the loss falls."""
    rows = []
    for step in STEPS:
        share = 1 - np.exp(-3 * step / STEPS[-1])
        mig = float(np.clip(score * share + rng.normal(0, 0.02), 0, 1))
        rows.append({
            "step": step, "loss": 0.1 + 0.1 * (1 - share), "recon": 0.1, "kl": 0.02,
            "loss_sum": 70.0, "recon_sum": 68.0, "kl_sum": 2.0, "mig": mig, "dci_disentanglement": float(np.sqrt(mig)),
            "sap": float(np.clip(mig / 2 + rng.normal(0, 0.1), 0, 1)),
        })  # fmt: skip
    return rows


def study(maker: RunMaker, seeds: int = 3, betas: Iterable[float] = (1e-4, 1e-3, 1e-2, 1e-1)) -> None:
    """Two data sets, two frameworks, two losses, several betas and latents: every figure has something to show.

    Ada-GVAE beats beta-VAE; xysquares scores low unless the loss overlaps; large betas hurt.
    """
    maker.sweep(["plain", "overlapping"], question="Does the loss decide?", objective={"metric": "mig", "mode": "max"})
    rng = np.random.default_rng(0)
    losses = {"plain": {}, "overlapping": {"recon__name": "overlap", "recon__radius": 11, "recon__alpha": 529.0}}
    for arm, loss in losses.items():
        for dataset in ("xysquares", "xy_object"):
            for framework in ("ada_gvae", "beta_vae"):
                for beta in betas:
                    for latents in (9, 25):
                        for seed in range(seeds):
                            top = {"ada_gvae": 0.8, "beta_vae": 0.4}[framework]
                            low = 0.1 if dataset == "xysquares" and arm == "plain" else 1.0
                            score = top * low * np.exp(-5 * beta) * rng.uniform(0.7, 1)
                            quick_trial(
                                maker, course(score, rng), arm, dataset__name=dataset, framework__name=framework,
                                framework__beta=beta, model__latents=latents, seed=seed, **loss,
                            )  # fmt: skip


def search(run: Run, sweep: SweepFile, trials: int | None = None) -> Planner:
    """Carries an Optuna sweep on by so many trials, or to its end; results are made up instead of trained for."""
    done = 0
    with run.locked() as session:
        run.record(sweep)
        planner = Planner(run, check(sweep), session)
        while not planner.finished and done != trials:
            segment = planner.next()
            assert segment is not None
            config, done = planner.trials[segment.trial_id].config, done + 1
            value = float(config.framework.params.beta) % 0.7 + 0.01 * config.seed
            row = {"step": config.training.steps, "metrics": {"mig": value, "loss": 1 - value}}
            run.trial(segment.trial_id).append_row(row)
            run.trial(segment.trial_id).set_status(Status("done", config.training.steps))
            planner.report(segment.trial_id, StepReport(config.training.steps, row, "done"))
    return planner


STRENGTHS = {"beta_vae": "beta", "factor_vae": "gamma", "dip_vae_i": "lambda_od"}


def methods_study(maker):
    """Random scores of two data sets, three methods, two strengths and three seeds."""
    rng = np.random.default_rng(0)
    maker.sweep(["all"])
    keys = ["mig", "sap", "downstream_gbt_100", "reconstruction", "gaussian_total_correlation"]
    for dataset in ("xysquares", "xy_object"):
        for method, key in STRENGTHS.items():
            for strength in (1.0, 4.0):
                for seed in range(3):
                    row = {"step": 1, **dict(zip(keys, rng.random(len(keys)).tolist(), strict=True))}
                    framework = {"name": method, key: strength}
                    quick_trial(maker, [row], dataset__name=dataset, framework=framework, seed=seed)
