"""Scores that `disentune score` stores in a run, each with what it was computed from.

A score belongs to one checkpoint. Once the trial's checkpoint has changed, the score is left out of every table.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from disentune.errors import ConfigError
from disentune.runs.json_files import broken_seal, is_number, is_whole, read_json, sealed, write_json
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import TrialFolder

REMEDY = "remove it and score the run again"
Kept = list[tuple[int, dict[str, float]]]
"""One trial's scores: a step, and the numbers of the checkpoint of that step."""


def keep(run: Run, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Records scores by metric, replacing earlier ones of the same metric. Each entry records how it was computed, and
    has `trials`: {id: {step, checkpoint, numbers}}, and `groups` of ids if trials were compared with each other."""
    write_json(run.scores_path, sealed({"metrics": {**kept(run), **entries}}))


def kept(run: Run) -> dict[str, Any]:
    """The stored scores by metric. Raises ConfigError if the file is damaged."""
    path = run.scores_path
    content = read_json(path, REMEDY, default=sealed({"metrics": {}}))
    metrics, damage = content.get("metrics"), broken_seal(content, ("metrics",))
    if not isinstance(metrics, dict) or not all(map(_is_entry, metrics.values())):
        damage = "each metric must have trials with a step, a checkpoint and numbers"
    if damage:
        raise ConfigError(f"{path} is damaged ({damage}); {REMEDY}")
    return dict(metrics)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("trials"), dict):
        return False
    groups = entry.get("groups") or []
    return isinstance(groups, list) and all(map(_is_trial, entry["trials"].values()))


def _is_trial(trial: Any) -> bool:
    return (
        isinstance(trial, dict)
        and is_whole(trial.get("step"))
        and isinstance(trial.get("numbers"), dict)
        and all(is_number(value) and math.isfinite(value) for value in trial["numbers"].values())
    )


def current(run: Run, folders: Sequence[TrialFolder]) -> tuple[dict[str, Kept], list[str]]:
    """The scores of each trial's newest checkpoint, and a note on each metric that has outdated scores."""
    by_id, found, notes = {folder.id: folder for folder in folders}, dict[str, Kept](), list[str]()
    for name, entry in kept(run).items():
        trials = {id: trial for id, trial in entry["trials"].items() if id in by_id}
        changed = {id for id, trial in trials.items() if not _is_current(by_id[id], trial)}
        for group in entry.get("groups") or []:
            if changed & set(group):  # the UDR of a trial depends on the others in its group
                changed |= set(group) & trials.keys()
        for trial_id in trials.keys() - changed:
            found.setdefault(trial_id, []).append((trials[trial_id]["step"], trials[trial_id]["numbers"]))
        if changed:
            count = f"{len(changed)} trial{'s' if len(changed) > 1 else ''}"
            text = "left out: a checkpoint has changed since it was scored; score the run again"
            notes.append(f"{name} of {count} {text}")
    return found, notes


def _is_current(folder: TrialFolder, trial: Mapping[str, Any]) -> bool:
    steps = folder.checkpoints.steps()
    try:
        return steps[-1:] == [trial["step"]] and folder.checkpoints.fingerprint(steps[-1]) == trial.get("checkpoint")
    except OSError:
        return False
