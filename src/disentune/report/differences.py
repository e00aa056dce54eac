"""The table of differences: each value of one key against each other, over seeds."""

from dataclasses import dataclass

import pandas as pd

from disentune.analysis.comparison import compare, line
from disentune.analysis.runs import compared_trials
from disentune.errors import ConfigError
from disentune.results.tables import Results, varying_keys
from disentune.spec.settings import Objective

MOST_VALUES = 6
"""Maximum number of values whose pairs can be read: 15 pairs."""


@dataclass(frozen=True)
class Differences:
    """`table` has one row per pair of values of the key `by`."""

    by: str
    table: pd.DataFrame
    notes: tuple[str, ...]


def differences(results: Results, objective: Objective) -> Differences | None:
    """Differences between arms, or between values of the first key with two to six values; None if seeds or numbers are
    missing."""
    by = _compared_key(results)
    if by is None:
        return None
    try:
        trials, notes = compared_trials([results], objective.metric, objective)
        found = compare(trials, by, objective.metric, mode=objective.mode)
    except ConfigError:
        return None
    return Differences(by, pd.DataFrame([line(pair) for pair in found.pairs]), (*notes, *found.notes))


def _compared_key(results: Results) -> str | None:
    trials = results.trials
    keys = ["arm", *varying_keys(trials)] if len(trials) else []
    return next((key for key in keys if 2 <= trials[key].nunique(dropna=False) <= MOST_VALUES), None)
