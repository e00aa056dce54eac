"""Donors: trained models of a finished run from which a later sweep makes its data set, `manipulated`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from disentune.data.manipulated import Params
from disentune.errors import ConfigError, did_you_mean
from disentune.files.checkpoint import weights_hash
from disentune.parameters import Mistake, validated, worded
from disentune.plugin import Donor
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import TrialConfig
from disentune.spec.pixels import Pixels

NAME = "manipulated"
N = TypeVar("N")


def resolve(trial_tree: Mapping[str, Any], runs: Mapping[str, Run]) -> dict[str, Any]:
    """The trial's tree with its donors named: trials and hashes of weights from the finished run that `donors` names.

    A tree that has no donors to find comes back as it is. ConfigError when the run cannot give the donors.
    """
    tree = dict(trial_tree)
    params = params_of(tree)
    if params is None or not isinstance(params.donors, str):
        return tree
    found = _with_donors(params, _needed(params.donors, runs))
    manipulator = TrialConfig.parse(_manipulator(found, tree)).id
    section = found.model_copy(update={"manipulator": manipulator}).model_dump()
    return {**tree, "dataset": {**tree["dataset"], **section}}


def _with_donors(params: Params, run: Run) -> Params:
    best, worst = _chosen(params, run)
    configs = [folder.config() for folder in (*best, *worst)]
    for config in configs:
        _assert_fits(params, config, f"trial {config.id} of {run.path}")
    _assert_one_loss(configs, run)
    donors = [Donor(role="best", trial=folder.id, weights=_weights(folder)) for folder in best]
    donors += [Donor(role="worst", trial=folder.id, weights=_weights(folder)) for folder in worst]
    first = configs[0].tree()
    decoder = params.decoder or first["model"]
    return params.model_copy(update={"donors": donors, "decoder": decoder, "recon": first["recon"]})


def _needed(key: str, known: Mapping[str, N]) -> N:
    if key not in known:
        raise ConfigError(f"dataset.donors: '{key}' is not a key of `needs`.{did_you_mean(key, known)}")
    return known[key]


def manipulator_trials(trees: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The trials that train the manipulators of these resolved trials, each once, as canonical trees."""
    found: dict[str, dict[str, Any]] = {}
    for tree in trees:
        params = params_of(tree)
        if params is not None and params.manipulator:
            config = TrialConfig.parse(_manipulator(params, tree))
            if config.id != params.manipulator:
                raise ConfigError(f"dataset.manipulator: is {params.manipulator}, but these donors and settings give "
                                  f"{config.id}; omit it, and name the donors' sweep in dataset.donors")  # fmt: skip
            found[config.id] = config.tree()
    return [*found.values()]


def check(trial_tree: Mapping[str, Any], planned: Mapping[str, Sequence[TrialConfig]]) -> None:
    """Before anything is trained: ConfigError when the sweeps that are needed, with these trials, can never give the
    donors that a trial asks for."""
    params = params_of(trial_tree)
    if params is None or not isinstance(params.donors, str):
        return
    configs, where = _needed(params.donors, planned), f"the sweep '{params.donors}'"
    _assert_enough(params, len(configs), where)
    for config in configs:
        _assert_fits(params, config, where)
        _assert_scored(params, config.metric_keys(), where)


def params_of(tree: Mapping[str, Any]) -> Params | None:
    """The parameters of a trial's manipulated data set; None for any other. Raises ConfigError if they are wrong."""
    section = tree.get("dataset")
    if not isinstance(section, Mapping) or section.get("name") != NAME:
        return None
    mistakes = list[Mistake]()
    own = {key: value for key, value in section.items() if key != "name" and key not in Pixels.model_fields}
    params: Params | None = validated(Params, own, "dataset", mistakes)
    if params is None:
        raise ConfigError("; ".join(worded(mistake) for mistake in mistakes))
    return params


# ---- choosing


def _chosen(params: Params, run: Run) -> tuple[list[TrialFolder], list[TrialFolder]]:
    """The best, best first, and the worst, worst first; ties by id."""
    scores = {folder.id: _score(params, folder) for folder in _finished(run)}
    usable = sorted(trial_id for trial_id, score in scores.items() if math.isfinite(score))
    _assert_enough(params, len(usable), str(run.path))
    best = sorted(usable, key=lambda trial_id: -scores[trial_id])[: params.best]
    worst = sorted(usable, key=lambda trial_id: scores[trial_id])[: params.worst]
    return [run.trial(trial_id) for trial_id in best], [run.trial(trial_id) for trial_id in worst]


def _finished(run: Run) -> list[TrialFolder]:
    folders = [*run.known_trials("status.json").values()]
    open_ = [folder for folder in folders if folder.status().state != "done"]
    if open_:
        state = open_[0].status().state
        raise ConfigError(f"{run.path}: {len(open_)} of {len(folders)} donors are not done (trial {open_[0].id} is "
                          f"{state}); continue with: disentune resume {run.path} --retry-failed")  # fmt: skip
    return folders


def _score(params: Params, folder: TrialFolder) -> float:
    rows = folder.rows()
    metrics = rows[-1]["metrics"] if rows else {}
    _assert_scored(params, metrics, f"trial {folder.id}")
    return float(metrics[params.metric])


def _weights(folder: TrialFolder) -> str:
    steps = folder.checkpoints.steps()
    if not steps:
        raise ConfigError(f"{folder.path} has no checkpoint, so it cannot be a donor; train it again with "
                          "checkpoint.finished: weights")  # fmt: skip
    return weights_hash(folder.checkpoints.load(steps[-1])["model"])


# ---- refusals


def _assert_enough(params: Params, count: int, where: str) -> None:
    if params.best + params.worst > count:
        raise ConfigError(f"dataset: {params.best} best and {params.worst} worst donors are asked for, but {where} has "
                          f"{count} trials; ask for fewer, or give it more seeds")  # fmt: skip


def _assert_scored(params: Params, known: Iterable[str], where: str) -> None:
    names = sorted(known)
    if params.metric not in names:
        raise ConfigError(f"dataset.metric: '{params.metric}' is not scored by {where}."
                          f"{did_you_mean(params.metric, names)} Known: {', '.join(names)}")  # fmt: skip


def _assert_fits(params: Params, config: TrialConfig, where: str) -> None:
    """Trained on the very images that are to be changed, with pixels in [0, 1]."""
    if differences := _differences(params.base, config.dataset.tree()):
        told = differences[:1] if params.base["name"] != config.dataset.name else differences  # others have other keys
        raise ConfigError(f"dataset.base: differs from the data set of {where}: {'; '.join(told)}; make them equal")
    if config.pixels != Pixels(transform="unit"):
        raise ConfigError(f"dataset.donors: {where} must have dataset.transform: unit, and no noise, law or held-out "
                          "images, as the changes are made to pixels in [0, 1]")  # fmt: skip
    channels = config.setting().shape[0]
    if config.recon.plugin.channels(channels, config.recon.params) != channels:
        raise ConfigError(f"dataset.donors: {where} has decoders that give more than an image; use a recon loss "
                          "without a learned standard deviation")  # fmt: skip


def _differences(base: Mapping[str, Any], donors: Mapping[str, Any]) -> list[str]:
    keys = [key for key in dict.fromkeys((*base, *donors)) if base.get(key) != donors.get(key)]
    return [f"{key} is {base.get(key)!r} here and {donors.get(key)!r} there" for key in keys]


def _assert_one_loss(configs: Sequence[TrialConfig], run: Run) -> None:
    recons = [config.recon.tree() for config in configs]
    if any(recon != recons[0] for recon in recons):
        raise ConfigError(f"dataset.donors: the donors of {run.path} have different recon losses; use one for all")


# ---- the trial that learns the change


def _manipulator(params: Params, study: Mapping[str, Any]) -> dict[str, Any]:
    """On the device of the trial that uses it."""
    dumped = params.model_dump()
    training = study.get("training")
    device = training.get("device", "cpu") if isinstance(training, Mapping) else "cpu"
    settings = {key: dumped[key] for key in ("donors", "epsilon", "decoder_batches", "samples")}
    return {
        "dataset": {**params.base, "transform": "unit"},
        "model": params.decoder,
        "framework": {"name": "manipulator", **settings, "helper_learning_rate": params.learning_rate},
        "recon": params.recon,
        "training": {**{key: dumped[key] for key in ("steps", "batch_size", "learning_rate")}, "device": device},
        "evaluation": {"metrics": []},
        "loss_scale": "sum",
        "seed": 0,
    }
