"""The number of each suggested point of a run, from the search's journal."""

import optuna

from disentune.errors import ConfigError
from disentune.results.tables import Results
from disentune.runs.suggest import arms_of, rehearsal
from disentune.spec.config import flattened
from disentune.spec.settings import OptunaSearch


def point_numbers(results: Results) -> dict[str, int]:
    """The number of each trial's point, by trial id, from 0 in each arm; empty for a search without suggestions or with
    an unreadable journal. All seeds of a point share its number."""
    if not isinstance(results.run.sweep().settings.search, OptunaSearch) or not results.run.journal_path.exists():
        return {}
    try:
        storage = rehearsal(results.run.journal_path)
        points = {arm: _points(storage, arm) for arm in arms_of(storage)}
    except ConfigError:
        return {}
    flats = {record.trial_id: (record.arms, flattened(record.config)) for record in results.records}
    found = {id: _number(points, arms, flat) for id, (arms, flat) in flats.items()}
    return {id: number for id, number in found.items() if number is not None}


def _points(storage: optuna.storages.BaseStorage, arm: str) -> list[dict[str, object]]:
    study = optuna.load_study(study_name=arm, storage=storage)
    return [trial.params for trial in study.get_trials(deepcopy=False)]


def _number(points: dict[str, list[dict[str, object]]], arms: tuple[str, ...], flat: dict[str, object]) -> int | None:
    """The number of the first point in the trial's arms that has the trial's values."""
    every = [(number, point) for arm in arms for number, point in enumerate(points.get(arm, []))]
    return next((number for number, point in every if all(flat.get(key) == point[key] for key in point)), None)
