"""Computes metrics of a run's trials from their last checkpoints. Nothing is trained; the scores are stored in the
run."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from disentune.data.prepared.store import use_root
from disentune.environment import environment
from disentune.errors import ConfigError, TrialError, unknown
from disentune.learn import evaluation, process
from disentune.learn.evaluation import Encoded, Trained
from disentune.learn.training import Training
from disentune.maths.randomness import stream
from disentune.metrics import Size, plain_key
from disentune.metrics.kl_per_latent import kl_to_prior
from disentune.metrics.udr import Method, udr
from disentune.results import tables
from disentune.results.arrays import UDR, Asked
from disentune.runs import scores
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import FINISHED, TrialFolder
from disentune.spec.config import Invalid, TrialConfig, flattened, nested

UDR_IMAGES = 1000


# ---- a run's trials


@dataclass(frozen=True)
class Rebuilt:
    """A trial's model from its last intact checkpoint."""

    trial_id: str
    config: TrialConfig
    trained: Trained
    step: int
    notes: tuple[str, ...]
    """A note on each damaged checkpoint that was skipped."""


def rebuilt(folder: TrialFolder) -> Rebuilt:
    """Raises TrialError if there is no intact checkpoint."""
    config = _config(folder)
    step, state, notes = _newest(folder)
    process.prepare(config.training.threads, config.training.device)
    training = Training.with_weights(config, state)
    return Rebuilt(folder.id, config, training.trained_model(), step, tuple(notes))


def _config(folder: TrialFolder) -> TrialConfig:
    """The config as it was trained last, but in float32, never compiled, and on the CPU if its device is missing."""
    flat = flattened(folder.config().tree())
    flat |= next((row.get("overrides", {}) for row in reversed(folder.rows())), {})
    flat["training.compile"] = False
    flat["training.precision"] = "float32"  # as in every evaluation
    if not process.has(flat["training.device"]):
        flat["training.device"] = "cpu"
    try:
        return TrialConfig.parse(nested(flat))
    except Invalid as error:
        raise ConfigError(f"{folder.rows_path}: its last overrides do not fit its config: {error}") from None


def _newest(folder: TrialFolder) -> tuple[int, dict[str, Any], list[str]]:
    """Like `Checkpoints.newest`, but leaves damaged files where they are."""
    notes: list[str] = []
    for step in reversed(folder.checkpoints.steps()):
        try:
            return step, folder.checkpoints.load(step), notes
        except (TrialError, OSError) as error:
            notes.append(f"{error}; using the previous checkpoint")
    raise TrialError("; ".join([f"{folder.path} has no intact checkpoint", *notes]))


def comparable_codes(model: Rebuilt, images: int = UDR_IMAGES) -> Encoded:
    """Posteriors of the images that UDR compares, the same images for every trial of a data set. Raises TrialError if
    the codes are not finite."""
    trained = replace(model.trained, seed=0)  # so that every model sees the same noise
    indices = evaluation.sample_indices(len(trained.known), images, stream(0, "udr"), trained.images.data.noisy)
    encoded = evaluation.encoded(trained, indices)
    if not np.isfinite([encoded.means, encoded.logvars]).all():
        raise TrialError(f"trial {model.trial_id} has codes that are not finite")
    return encoded


def metrics_of(model: Rebuilt, metrics: Iterable[Asked]) -> evaluation.EvaluationScores:
    """Metrics of a restored model on the trial's own table and seed, equal to an evaluation at this step."""
    entries = [{"name": one.name, "size": one.size, **one.given} for one in metrics]
    tree = model.config.tree()
    try:
        config = TrialConfig.parse({**tree, "evaluation": {**tree["evaluation"], "metrics": entries}})
    except Invalid as error:
        raise ConfigError(f"trial {model.trial_id} cannot be scored: {error}") from None
    return evaluation.evaluated(config, model.trained, config.metrics)


@dataclass
class TrialScores:
    """The scores of one trial."""

    trial_id: str
    step: int
    """The step of the checkpoint."""
    numbers: dict[str, float]
    details: dict[str, Any]
    """Arrays as nested lists."""
    reasons: dict[str, str]
    """Why a metric has no score."""
    codes: Encoded | None
    """For UDR."""


@dataclass(frozen=True)
class RunScores:
    """The scored trials: best UDR first if it was requested, else sorted by id."""

    frame: pd.DataFrame
    """trial_id, arm, seed, step, config keys that vary or define groups, and the scores."""
    numbers: list[str]
    """The columns that are scores; NaN if a trial has none."""
    trials: list[TrialScores]
    groups: list[list[str]] = field(default_factory=list)
    """Groups of ids of trials that were compared with each other."""


def scores_of_run(
    run: Run,
    metrics: Sequence[Asked] = (),
    compared: Sequence[str] = ("udr",),
    by: Sequence[str] | None = None,
    images: int = UDR_IMAGES,
    say: Callable[[str], None] = warnings.warn,
    follow: Callable[[Sequence[TrialFolder]], Iterable[TrialFolder]] = iter,
) -> RunScores:
    """Metrics of each finished trial, and the UDR scores named in `compared`; see `udr_of_run` for `by` and `say`.

    `follow` wraps the list of trials to show progress.
    """
    use_root(run.sweep().settings.data.root)
    loaded = _finished(run, say)
    grouped = _groups(loaded, by) if compared else []
    folders = [run.trial(record.trial_id) for record in loaded.records]
    tried = (_scores_of_trial(folder, metrics, images if compared else 0, say) for folder in follow(folders))
    trials = [trial for trial in tried if trial is not None]
    for name in compared:
        _compare(name, trials, grouped, say)
    return replace(_ranked(loaded, trials, compared, by or ()), groups=grouped)


def keep_scores(
    run: Run, found: RunScores, metrics: Sequence[Asked], compared: Sequence[str], by: Sequence[str] | None, size: Size
) -> None:
    """Stores scores in the run with what they were computed from, replacing earlier ones of the same metrics."""
    facts = {"code": environment()["source"], "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
    entries: dict[str, Any] = {}
    for one in metrics:
        made = {"params": one.params.model_dump(mode="json"), "size": size, "seed": "each trial's own", **facts}
        entries[one.name] = {**made, "trials": _of_metric(run, found, one.metric.keys)}
    for name in compared:
        made = {"params": {"method": UDR[name], "images": UDR_IMAGES, "by": by}, "seed": 0, **facts}
        entries[name] = {**made, "trials": _of_metric(run, found, [name]), "groups": found.groups}
    scores.keep(run, entries)


def _of_metric(run: Run, found: RunScores, keys: Sequence[str]) -> dict[str, Any]:
    """The scores with these keys, of any size, by trial id."""
    made = {}
    for trial in found.trials:
        numbers = {key: value for key, value in trial.numbers.items() if plain_key(key) in keys}
        if numbers:
            checkpoint = run.trial(trial.trial_id).checkpoints.fingerprint(trial.step)
            made[trial.trial_id] = {"step": trial.step, "checkpoint": checkpoint, "numbers": numbers}
    return made


def _scores_of_trial(
    folder: TrialFolder, metrics: Sequence[Asked], images: int, say: Callable[[str], None]
) -> TrialScores | None:
    try:
        model = rebuilt(folder)
        codes = comparable_codes(model, images) if images else None
    except TrialError as error:
        say(f"{folder.id} is left out: {error}")
        return None
    for note in model.notes:
        say(note)
    found = metrics_of(model, metrics)
    numbers = {key: value for key, value in found.numbers.items() if math.isfinite(value)}
    return TrialScores(folder.id, model.step, numbers, found.details, found.notes, codes)


def _finished(run: Run, say: Callable[[str], None]) -> tables.Results:
    loaded = tables.read(run)
    done = tuple(record for record in loaded.records if record.status in FINISHED)
    if not done:
        raise ConfigError(f"{run.path} has no finished trial to score; see: disentune status {run.name}")
    if left_out := len(loaded.records) - len(done):
        say(f"{left_out} of {len(loaded.records)} trials are left out because they have not finished")
    return tables.Results(run, done)


def _ranked(loaded: tables.Results, trials: list[TrialScores], compared: Sequence[str], by: Sequence[str]) -> RunScores:
    by_id = {trial.trial_id: trial for trial in trials}
    every = dict.fromkeys([*compared, *(key for trial in trials for key in trial.numbers)])
    numbers = [key for key in every if any(key in trial.numbers for trial in trials)]
    keys = dict.fromkeys(["trial_id", "arm", "seed", *tables.varying_keys(loaded.trials), *by])
    frame = loaded.trials.loc[loaded.trials["trial_id"].isin(list(by_id)), list(keys)]
    scored = [by_id[trial_id] for trial_id in frame["trial_id"]]
    frame.insert(3, "step", [trial.step for trial in scored])
    frame = frame.assign(**{key: [trial.numbers.get(key, math.nan) for trial in scored] for key in numbers})
    if set(numbers) & set(compared):
        frame = frame.sort_values(numbers[0], ascending=False, kind="stable", na_position="last")
    return RunScores(frame.reset_index(drop=True), numbers, [by_id[trial_id] for trial_id in frame["trial_id"]])


def run_as_json(scores: RunScores, metrics: Sequence[Asked], notes: Sequence[str], size: Size) -> dict[str, Any]:
    return {
        "trials": [
            {
                "trial_id": trial.trial_id,
                "step": trial.step,
                "scores": trial.numbers,
                "details": trial.details,
                "notes": trial.reasons,
            }
            for trial in scores.trials
        ],
        "notes": list(notes),
        "size": size,
        "params": {one.name: one.params.model_dump() for one in metrics},
    }


# ---- comparing trials


def udr_of_run(
    run: Run,
    by: Sequence[str] | None = None,
    method: Method = "lasso",
    images: int = UDR_IMAGES,
    say: Callable[[str], None] = warnings.warn,
) -> pd.DataFrame:
    """UDR of each finished trial within its group, best first: trial_id, the group's keys, udr.

    A group is the trials that differ only by seed, or with `by` those with equal values of its keys (before population
    based training changed any); with no key it is all trials, the paper's UDR-A2A. `say` receives which trials have
    none, and why.
    """
    name = next(name for name in UDR if UDR[name] == method)
    found = scores_of_run(run, (), (name,), by=by, images=images, say=say).frame
    keys = [key for key in found if "." in key or key == "loss_scale"] if by is None else list(by)
    frame = found.reindex(columns=["trial_id", *keys, name]).rename(columns={name: "udr"})
    return frame.dropna(subset="udr").reset_index(drop=True)


def _groups(loaded: tables.Results, by: Sequence[str] | None) -> list[list[str]]:
    """Groups of ids of the trials that UDR compares with each other."""
    flats = {
        record.trial_id: {"arm": "+".join(sorted(record.arms)), **flattened(record.config)} for record in loaded.records
    }
    known = list(dict.fromkeys(key for flat in flats.values() for key in flat))
    for key in by or ():
        if key not in known:
            raise ConfigError(f"--by: {unknown('key', key, known)}")
    keys = [key for key in known if key not in ("arm", "seed")] if by is None else by
    found: dict[str, list[str]] = {}
    for trial_id, flat in flats.items():
        found.setdefault(repr([flat.get(key) for key in keys]), []).append(trial_id)
    for group in found.values():
        _assert_same_data([flats[trial_id] for trial_id in group])
    return list(found.values())


def _assert_same_data(flats: list[dict[str, Any]]) -> None:
    scales = {"dataset.transform", "dataset.statistics"}  # the same images in other units
    keys = {key for flat in flats for key in flat if key.startswith("dataset.")}
    for key in sorted(keys - scales):
        values = sorted({repr(flat.get(key)) for flat in flats})
        if len(values) > 1:
            text = f"{key} is {values[0]} in one trial of a group and {values[1]} in another"
            raise ConfigError(f"UDR compares models on the same images, but {text}; add --by {key}")


def _compare(name: str, trials: list[TrialScores], grouped: list[list[str]], say: Callable[[str], None]) -> None:
    """Adds UDR to the scores of each trial whose group has other trials."""
    by_id = {trial.trial_id: trial for trial in trials}
    alone: list[str] = []
    for group in grouped:
        members = [by_id[trial_id] for trial_id in group if trial_id in by_id]
        codes = [member.codes for member in members if member.codes is not None]
        if len(members) < 2:
            alone += [member.trial_id for member in members]
            continue
        kls = [kl_to_prior(one.means.astype(float), one.logvars.astype(float)) for one in codes]
        for member, score in zip(members, udr([one.means for one in codes], kls, UDR[name]).scores, strict=True):
            member.numbers[name] = float(score)
    if alone:
        say(f"no {name} for {', '.join(alone)}: no other trial is in the same group; choose larger groups with --by")
