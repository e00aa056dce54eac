"""Trials and runs that were chosen, side by side, with the intervals of `disentune compare`."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from disentune.analysis.comparison import Comparison, Pair, compare, line
from disentune.analysis.runs import RUN, compared_trials, shared_objective
from disentune.dashboard.answers import cleaned, label, plain, rounded
from disentune.dashboard.desk import Desk
from disentune.errors import ConfigError, DisentuneError
from disentune.report.places import in_words
from disentune.results.tables import (
    Record,
    Results,
    evaluated,
    mode_of,
    varying_keys,
)
from disentune.spec.config import flattened
from disentune.spec.settings import Objective

MOST_SIDE_BY_SIDE = 12
"""Trials of which a page shows every key."""
Choice = tuple[str, str]
"""A run, and one of its trials or nothing for all of them."""


def chosen(text: str) -> list[Choice]:
    """`a/main:4f...` for a trial, `a/main` for all trials of a run; separated by commas."""
    parts = [part.partition(":") for part in dict.fromkeys(text.split(",")) if part]
    if not parts:
        raise ConfigError("nothing is chosen; check trials or runs first")
    return [(run, trial) for run, _, trial in parts]


def compared(desk: Desk, choices: Sequence[Choice], by: str, metric: str) -> dict[str, Any]:
    """Every chosen trial with its keys and numbers, and the differences between the values of `by`."""
    by_name = _loaded(desk, choices)
    loaded = list(by_name.values())
    objective = shared_objective(loaded)
    metric = metric or objective.metric
    keys = _keys(loaded)
    by = by or _default_by(loaded, keys)
    records = [(name, record) for name, results in by_name.items() for record in results.records]
    found = {
        "metric": metric,
        "by": by,
        "mode": mode_of(loaded[0], metric),
        "trials": len(records),
        "keys": _named(list(dict.fromkeys([RUN, "arm", *keys, by]))),
        "metrics": _named(_metrics(loaded, objective)),
        "side_by_side": _side_by_side(records) if len(records) <= MOST_SIDE_BY_SIDE else None,
        **_differences(loaded, by, metric, objective),
    }
    return cleaned(found)


def _loaded(desk: Desk, choices: Sequence[Choice]) -> dict[str, Results]:
    """Each run once, with the trials that were chosen of it."""
    wanted: dict[str, set[str]] = {}
    for run, trial in choices:
        wanted.setdefault(run, set()).add(trial)
    return {name: _of(desk.run(name).loaded(), ids) for name, ids in wanted.items()}


def _of(results: Results, ids: set[str]) -> Results:
    if "" in ids:
        return results
    return replace(results, records=tuple(one for one in results.records if one.trial_id in ids))


def _keys(loaded: Sequence[Results]) -> list[str]:
    return list(dict.fromkeys(key for results in loaded if len(results.trials) for key in varying_keys(results.trials)))


def _default_by(loaded: Sequence[Results], keys: Sequence[str]) -> str:
    if len(loaded) > 1:
        return RUN
    arms = {record.arms for results in loaded for record in results.records}
    return "arm" if len(arms) > 1 or not keys else keys[0]


def _metrics(loaded: Sequence[Results], objective: Objective) -> list[str]:
    found = [key for results in loaded for key in evaluated(results.metrics) if not key.endswith("_max")]
    return list(dict.fromkeys([objective.metric, *found, "loss"]))


def _named(keys: list[str]) -> list[dict[str, str]]:
    return [{"key": key, "title": title} for key, title in zip(keys, in_words(keys), strict=True)]


# ---- differences


def _differences(loaded: Sequence[Results], by: str, metric: str, objective: Objective) -> dict[str, Any]:
    """The differences, or in `reason` why there are none; the page still shows the rest."""
    try:
        trials, notes = compared_trials(loaded, metric, objective)
        scores = [{"value": label(value), "scores": _scores(some[metric])} for value, some in trials.groupby(by)]
        found = compare(trials, by, metric, mode=mode_of(loaded[0], metric))
    except KeyError:
        return {"pairs": [], "groups": [], "notes": [], "reason": f"no chosen trial has the key {by}"}
    except DisentuneError as error:
        return {"pairs": [], "groups": [], "notes": [], "reason": str(error)}
    return {"pairs": _pairs(found), "groups": scores, "notes": [*notes, *found.notes], "reason": ""}


def _scores(column: Any) -> list[float | None]:
    return [rounded(float(value)) for value in column]


def _pairs(found: Comparison) -> list[dict[str, Any]]:
    return [{**_interval(pair), "line": line(pair)} for pair in found.pairs]


def _interval(pair: Pair) -> dict[str, Any]:
    numbers = {"difference": pair.difference, "low": pair.low, "high": pair.high}
    return {key: value if math.isfinite(value) else None for key, value in numbers.items()}


# ---- side by side


def _side_by_side(records: Sequence[tuple[str, Record]]) -> dict[str, Any]:
    """A column per trial; keys that differ come first."""
    flats = [flattened(record.config) for _, record in records]
    keys = list(dict.fromkeys(key for flat in flats for key in flat))
    rows = [_row(key, [plain(flat.get(key)) for flat in flats]) for key in keys]
    lasts = [record.last()["metrics"] for _, record in records]
    numbers = evaluated(list(dict.fromkeys(key for last in lasts for key in last)))
    metrics = [*(key for key in numbers if not key.endswith("_max")), "loss"]
    return {
        "trials": [{"run": name, "id": record.trial_id, "arm": "+".join(sorted(record.arms)),
                    "state": record.status, "step": record.last()["step"]} for name, record in records],
        "keys": sorted(rows, key=lambda row: not row["differs"]),
        "metrics": [{"key": key, "values": [_number(last.get(key)) for last in lasts]} for key in metrics],
    }  # fmt: skip


def _row(key: str, values: list[Any]) -> dict[str, Any]:
    return {"key": key, "values": values, "differs": len(set(map(repr, values))) > 1}


def _number(value: Any) -> float | None:
    return rounded(float(value)) if isinstance(value, int | float) else None
