"""One trial of a run, by its id."""

from collections.abc import Sequence

from disentune.errors import ConfigError, counted_trials
from disentune.files.storage import Place
from disentune.results import tables
from disentune.results.tables import Record, Results
from disentune.runs.ledger import find_run

LISTED = 5
"""Trials that an error message names."""
SEPARATOR = "/trials/"


def record_of(results: Results, trial_id: str) -> Record:
    """The trial of this id, or the only one whose id begins with it."""
    ids = [record.trial_id for record in results.records]
    found = [record for record in results.records if record.trial_id.startswith(trial_id)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"no trial '{trial_id:.40}' in this run, which has {counted_trials(len(ids))}{_some(ids)}")
    named = _some([record.trial_id for record in found])
    raise ConfigError(f"trial '{trial_id}': {len(found)} ids begin with it{named}; give more characters")


def _some(ids: Sequence[str]) -> str:
    return f", such as {', '.join(ids[:LISTED])}" if ids else ""


def trial_at(text: str, storage: str | Place) -> tuple[Results, Record]:
    """The trial that `RUN/trials/ID` names, and the results of its run."""
    run, separator, trial_id = text.rstrip("/").rpartition(SEPARATOR)
    if not separator or not run or not trial_id or "/" in trial_id:
        example = "runs/quickstart/main/trials/0123456789abcdef"
        raise ConfigError(f"{text:.200}: must be RUN/trials/ID, for example {example}")
    results = tables.read(find_run(run, storage))
    return results, record_of(results, trial_id)
