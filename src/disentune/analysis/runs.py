"""Converts the trials of runs to the tables that comparisons and analyses read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from disentune.analysis.comparison import Comparison, compare
from disentune.analysis.scores import DATASET, METHOD, SEED, STRENGTH
from disentune.errors import ConfigError
from disentune.results.arrays import UDR
from disentune.results.tables import (
    BROKEN,
    Results,
    at_of,
    config_keys,
    evaluated,
    mode_of,
    objective_or_default,
    values,
    varying_keys,
)
from disentune.spec.settings import Objective

RUN = "run"
"""The column with the run of a trial."""
CUT = "cut short"
"""The column that says whether a trial has used less than its budget."""
STRENGTHS: dict[str, tuple[str, ...]] = {
    "ada_gvae": ("beta",),
    "ada_ml_vae": ("beta",),
    "ae": (),
    "annealed_vae": ("c_max", "gamma"),
    "beta_tc_vae": ("beta",),
    "beta_vae": ("beta",),
    "bio_ae": ("activity", "negativity"),
    "control_vae": ("kl_target",),
    "decomposition_vae": ("beta", "alpha"),
    "dip_vae_i": ("lambda_od", "lambda_d"),
    "dip_vae_ii": ("lambda_od", "lambda_d"),
    "factor_vae": ("gamma",),
    "hfs_vae": ("gamma", "beta"),
    "info_vae": ("lambda_z", "alpha"),
    "ivae": (),
    "pcl": (),
    "qlae": ("quantisation", "commitment"),
    "slow_vae": ("gamma", "beta"),
    "tripod": ("multi_information", "hessian"),
}
"""The keys that weight each framework's regulariser; the first that a sweep varies is its strength. For AnnealedVAE it
is the capacity, as in Locatello et al., ICML 2019, where gamma is fixed at 1000."""
USUAL = (
    "beta", "gamma", "lambda_od", "lambda_z", "alpha", "c_max", "kl_target", "lambda_d", "activity", "negativity",
    "quantisation", "commitment", "multi_information", "hessian",
)  # fmt: skip
"""Strength keys of frameworks that are not built in."""


# ---- comparisons


def shared_objective(runs: Sequence[Results]) -> Objective:
    """The objective of these runs; raises ConfigError if they have different ones."""
    found = {results.run.name: objective_or_default(results) for results in runs}
    first, *others = found.items()
    for name, objective in others:
        if objective != first[1]:
            raise ConfigError(
                f"runs with different objectives cannot be compared: {first[0]} has {_in_words(first[1])}, {name} has "
                f"{_in_words(objective)}"
            )
    return first[1]


def _in_words(objective: Objective) -> str:
    return f"{objective.mode} {objective.metric} ({objective.at})"


def compared_trials(runs: Sequence[Results], metric: str, objective: Objective) -> tuple[pd.DataFrame, list[str]]:
    """Trials with their config, `run`, `arm`, `seed` and the metric; and what was left out.

    For a metric that is not the objective, the last value counts. If some trials trained to their end, the others are
    left out, so that trials of equal budget are compared.
    """
    at = at_of(objective, metric)
    frames = [
        results.trials[[SEED, "arm", "status", *config_keys(results.trials)]].assign(
            **{RUN: results.run.name, metric: values(results, metric, at), CUT: [one.cut for one in results.records]}
        )
        for results in runs
        if len(results.trials)
    ]
    if not frames:
        raise ConfigError("there are no trials to compare")
    trials, notes = _without_broken(pd.concat(frames, ignore_index=True), [metric])
    trials, budgets = _of_equal_budget(trials)
    return trials, [*notes, *budgets, *_dependence_note(metric)]


def _dependence_note(metric: str) -> list[str]:
    if metric not in UDR:
        return []
    return [
        f"{metric} compares each trial with the other seeds of its group, so the scores of seeds depend on each other "
        "and intervals and p-values are only a rough guide"
    ]


def _of_equal_budget(trials: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    cut = trials[CUT].astype(bool)
    kept = trials.drop(columns=CUT)
    if not cut.any():
        return kept, []
    if cut.all():
        return kept, ["no trial has trained to its end, so trials of different budgets are compared"]
    note = f"{cut.sum()} of {len(trials)} trials were stopped early or have not ended yet and are left out"
    return kept[~cut].reset_index(drop=True), [note]


def _without_broken(trials: pd.DataFrame, metrics: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Leaves out trials that failed or diverged, and those without a score yet."""
    broken = trials["status"].isin(BROKEN)
    pending = ~broken & trials["status"].isin(("pending", "running")) & trials[metrics].isna().all(axis=1)
    counts = {"failed or diverged": broken.sum(), "have no score yet": pending.sum()}
    notes = [f"{count} of {len(trials)} trials {what}; they are left out" for what, count in counts.items() if count]
    return trials[~(broken | pending)].drop(columns="status").reset_index(drop=True), notes


def compared(
    runs: Sequence[Results], by: str, metric: str | None = None, baseline: Any = None, best: bool = False
) -> Comparison:
    """Compares the values of a key over the trials of these runs; `best` compares each value at its best setting."""
    objective = shared_objective(runs)
    metric = metric or objective.metric
    trials, notes = compared_trials(runs, metric, objective)
    points = points_of(trials, by) if best else ()
    found = compare(trials, by, metric, baseline, mode_of(runs[0], metric), points)
    return replace(found, notes=(*notes, *found.notes))


def points_of(trials: pd.DataFrame, by: str) -> list[str]:
    """Keys other than `by` whose values define a point."""
    return [key for key in varying_keys(trials) if key != by]


# ---- analyses


def score_table(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """`dataset`, `method`, `strength`, `seed` and every last score of each trial; and what was left out.

    Varying parameters of a data set are added to its name. Other varying keys except the strength are added to the
    method's name.
    """
    metrics = [key for key in results.metrics if not key.endswith("_max")]
    scored = [key for key in evaluated(metrics) if key in results.trials]
    if not scored:
        raise ConfigError("no trial of this run has a score; add metrics to the sweep's evaluation")
    trials, notes = _without_broken(results.trials, scored)
    if trials.empty:
        raise ConfigError("no trial of this run has a score yet")
    strengths = {name: strength_key(str(name), some) for name, some in trials.groupby("framework.name")}
    keys = {
        DATASET: _named(trials, "dataset.name", [key for key in varying_keys(trials) if key.startswith("dataset.")]),
        METHOD: _named(trials, "framework.name", _other_keys(trials, strengths)),
        STRENGTH: _strengths(trials, strengths),
        SEED: trials[SEED],
    }
    return pd.DataFrame(keys | {key: trials[key] for key in metrics if key in trials}), notes


def strength_key(framework: str, trials: pd.DataFrame) -> str | None:
    """The strength key that varies in these trials, which all have this framework."""
    keys = [f"framework.{name}" for name in STRENGTHS.get(framework, USUAL)]
    numbers = {key: pd.to_numeric(trials[key], errors="coerce") for key in keys if key in trials}
    return next((key for key, column in numbers.items() if column.nunique() > 1), None)


def _strengths(trials: pd.DataFrame, keys: dict[object, str | None]) -> pd.Series:
    """The strength of each trial; 0 if its framework's strength does not vary."""
    found = pd.Series(0.0, index=trials.index)
    for name, key in keys.items():
        if key is not None:
            rows = trials["framework.name"] == name
            found[rows] = pd.to_numeric(trials.loc[rows, key]).astype(float)
    return found


def _other_keys(trials: pd.DataFrame, strengths: dict[object, str | None]) -> list[str]:
    """Keys other than the strength that distinguish settings of a method."""
    known = {"framework.name", *filter(None, strengths.values())}
    found = [key for key in varying_keys(trials) if key not in known and not key.startswith("dataset.")]
    groups = trials.groupby("framework.name")
    return [key for key in found if (groups[key].nunique(dropna=False) > 1).any()]


def _named(trials: pd.DataFrame, name: str, keys: list[str]) -> pd.Series:
    """A name, with the values of the keys that differ among the trials of that name."""
    found = trials[name].astype(str)
    groups = trials.groupby(name)
    for key in (key for key in keys if key != name):
        varies = groups[key].transform(lambda column: column.nunique(dropna=False) > 1).astype(bool)
        texts = trials[key].map(lambda value: f"{value:g}" if isinstance(value, float) else str(value))
        found = found + np.where(varies, f" {key.split('.', 1)[-1]}=" + texts.astype(str), "")
    return found
