"""What the page receives: plain values for JSON, without secrets, with null for numbers that are not finite."""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from disentune.dashboard.desk import Desk, Followed
from disentune.dashboard.feed import Feed, Trial
from disentune.environment import cleaned_values, cleaner
from disentune.errors import ConfigError, first_line
from disentune.files.storage import shown
from disentune.metrics import best_of
from disentune.report.canvas import words
from disentune.report.page import environment_of
from disentune.report.places import in_words
from disentune.results.listing import Listed
from disentune.results.watch import Snapshot, as_json
from disentune.spec.settings import Objective

MOST_LINES = 1500
"""Lines per answer, so that the page shows the first ones while it waits for the rest."""
FIXED = ("id", "arm", "seed", "state", "step", "steps", "seconds", "node", "cause")
DIGITS = 7
"""Digits of a number in a table or curve."""
MOST_NOTES = 20
MOST_CURVES = 60
MOST_COLOURS = 8
"""Up to this many values, a key colours the curves before the reader chooses one."""


def rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


def cleaned(found: Mapping[str, Any]) -> dict[str, Any]:
    """The values without secrets, which a run written by an older version may contain."""
    answer: dict[str, Any] = cleaned_values(found)
    return answer


# ---- the list of runs


def runs(desk: Desk) -> dict[str, Any]:
    listed = list(desk.runs().values())
    return cleaned(
        {"storage": shown(desk.shelf.storage), "trouble": desk.trouble, "runs": [_listed(one) for one in listed]}
    )


def _listed(one: Listed) -> dict[str, Any]:
    head = {"name": one.name, "live": one.live, "changed": one.changed, "problem": one.problem}
    if one.picture is None:
        return head
    picture, best = one.picture, one.picture.best
    return head | {
        "states": picture.states,
        "trials": picture.expected,
        "metric": picture.objective.metric,
        "best": rounded(best.value) if best else None,
        "left_s": picture.left_s,
        "finished": picture.finished,
        "seconds": sum(trial.seconds for trial in picture.trials),
    }


# ---- one run


def run(followed: Followed) -> dict[str, Any]:
    feed, picture = followed.feed, followed.picture
    found = {
        "name": followed.name,
        "where": shown(followed.run.path),
        "question": followed.question,
        "trouble": followed.trouble,
        "read": len(feed.lines),
        "of": feed.expected,
        "objective": _objective(followed.objective),
        "live": feed.live,
        "seconds": sum(trial.seconds for trial in picture.trials) if picture else None,
        "changed": max((trial.changed for trial in picture.trials), default=0.0) if picture else None,
        "states": picture.states if picture else _states(feed),
        "faults": _faults(feed),
        "nodes": _nodes(feed),
        "picture": _picture(picture, shown(followed.run.path)) if picture else None,
    }
    return cleaned(found)


def _picture(picture: Snapshot, where: str) -> dict[str, Any]:
    return as_json(picture, where) | {
        "stopping": picture.stopping,
        "gone": picture.gone,
        "ended": picture.ended,
        "session_s": picture.session_s,
        "notes": list(picture.notes[:MOST_NOTES]),
        "notes_left_out": max(0, len(picture.notes) - MOST_NOTES),
    }


def environment(followed: Followed) -> dict[str, Any]:
    """Where the run is, what made it, and how to continue it on the command line."""
    where = shown(followed.run.path)
    commands = [shlex.join(["disentune", name, where]) for name in ("status", "results", "report", "resume")]
    return cleaned({"facts": {"folder": where, **environment_of(followed.run)}, "commands": commands})


def _objective(objective: Objective | None) -> dict[str, str] | None:
    if objective is None:
        return None
    title = words(objective.metric)
    return {"metric": objective.metric, "title": title, "mode": objective.mode, "at": objective.at}


def _states(feed: Feed) -> dict[str, int]:
    with feed.lock:
        return dict(Counter(trial.state(feed.settings, feed.live) for trial in feed.lines.values()))


def _faults(feed: Feed) -> dict[str, int]:
    """How often each cause has ended an attempt, including attempts of trials that succeeded later."""
    found: Counter[str] = Counter()
    with feed.lock:
        for trial in feed.lines.values():
            found.update(trial.status.faults)
    return dict(found)


def _nodes(feed: Feed) -> dict[str, dict[str, float]]:
    """Running trials by node, and what their workers use there, as far as their rows say."""
    found: dict[str, dict[str, float]] = {}
    with feed.lock:
        running = [trial for trial in feed.lines.values() if feed.live and trial.status.state == "running"]
        for trial in running:
            sums = found.setdefault(trial.status.node, {}) if trial.status.node else {}
            for key, value in {"trials": 1, **trial.used}.items():
                sums[key] = sums.get(key, 0) + value
    return found


# ---- trials


def trials(followed: Followed, since: int, columns: str, most: int = MOST_LINES) -> dict[str, Any]:
    """The lines that are newer than a version; all lines if the columns differ from those that the reader has."""
    feed, objective, clean = followed.feed, followed.objective, cache(cleaner())
    with feed.lock:
        keys, metrics = feed.keys.varying(), _metrics(feed, objective)
        mark = f"{abs(hash((tuple(keys), tuple(metrics), str(objective)))):x}"
        is_reset = columns != mark
        since = 0 if is_reset else since
        lines = feed.newer(since, most)
        version = lines[-1].version if lines else feed.version
        found: dict[str, Any] = {
            "version": version,
            "more": version < feed.version,
            "columns": mark,
            "lines": [_cleaned_line(_line(feed, trial, keys, metrics, objective), clean) for trial in lines],
            "gone": feed.removed(since),
        }
        colour = _colour(list(feed.lines.values()), keys) if is_reset else ""
    if is_reset:
        found |= {
            "reset": True,
            "colour": colour,
            "fixed": FIXED,
            "keys": _titled(keys),
            "metrics": _titled(metrics, objective),
        }
    return found


def _colour(lines: Sequence[Trial], keys: Sequence[str]) -> str:
    """What the curves are grouped by at first: the arm if there are several, or the first key with a few values."""
    if len({trial.arms for trial in lines}) > 1:
        return "arm"
    values = ((key, {_group(trial, key) for trial in lines}) for key in keys)
    return next((key for key, some in values if 1 < len(some) <= MOST_COLOURS), "arm")


def _metrics(feed: Feed, objective: Objective | None) -> list[str]:
    """The metrics, the objective first."""
    first = [objective.metric] if objective else []
    return list(dict.fromkeys([*first, *(key for key in feed.metrics if not key.endswith("_max"))]))


def _titled(keys: Sequence[str], objective: Objective | None = None) -> list[dict[str, str]]:
    titles = zip(keys, in_words(keys), strict=True)
    return [{"key": key, "title": title, "best": _best(key, objective)} for key, title in titles]


def _best(key: str, objective: Objective | None) -> str:
    """Whether larger or smaller values of a metric are better."""
    if objective and key == objective.metric:
        return objective.mode
    return "min" if key == "loss" else best_of(key)


def _cleaned_line(cells: list[Any], clean: Callable[[str], str]) -> list[Any]:
    return [clean(cell) if isinstance(cell, str) else cell for cell in cells]


def _line(feed: Feed, trial: Trial, keys: list[str], metrics: list[str], objective: Objective | None) -> list[Any]:
    status, values = trial.status, trial.values
    fixed = [
        trial.id, "+".join(sorted(trial.arms)), trial.flat.get("seed"), trial.state(feed.settings, feed.live),
        max(status.step, trial.step), trial.flat.get("training.steps"), round(status.seconds, 1), status.node,
        first_line(status.cause)[:200],
    ]  # fmt: skip
    return [*fixed, *(plain(values.get(key)) for key in keys), *(_number(trial, key, objective) for key in metrics)]


def _number(trial: Trial, key: str, objective: Objective | None) -> float | None:
    """The last value; of an objective that counts at its best step, that one."""
    if objective and key == objective.metric and objective.at != "last":
        return rounded((trial.highest if objective.mode == "max" else trial.lowest).get(key))
    return rounded(trial.latest.get(key))


def plain(value: Any) -> Any:
    """A value of a config as one cell."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) and abs(value) < 2**53 else str(value)
    if isinstance(value, list):
        return ", ".join(str(plain(item)) for item in value)
    return str(value.get("name", value) if isinstance(value, Mapping) else value)


# ---- curves


def curves(followed: Followed, metric: str, by: str, ids: Sequence[str]) -> dict[str, Any]:
    """A metric over the steps: the lines of these trials, or for each value of `by` the mean and the quartiles."""
    feed = followed.feed
    with feed.lock:
        if ids:
            chosen = [feed.lines[id] for id in ids[:MOST_CURVES] if id in feed.lines]
            found = [_curve(trial, metric) for trial in chosen]
        else:
            found = _bands(feed.lines.values(), metric, by)
        return {"version": feed.version, "metric": metric, "curves": found}


def _curve(trial: Trial, metric: str) -> dict[str, Any]:
    course = trial.courses.get(metric)
    steps, values = (list(course.steps), list(map(rounded, course.values))) if course else ([], [])
    return {"name": trial.id, "steps": steps, "mean": values, "trials": 1}


def _bands(lines: Iterable[Trial], metric: str, by: str) -> list[dict[str, Any]]:
    groups: dict[str, list[Trial]] = {}
    for trial in lines:
        if metric in trial.courses:
            groups.setdefault(_group(trial, by), []).append(trial)
    if len(groups) > MOST_CURVES:
        raise ConfigError(f"{by} has {len(groups)} values; colour by a key with at most {MOST_CURVES}")
    return [
        {"name": name, "trials": len(some), **_band(some, metric)} for name, some in sorted(groups.items(), key=_order)
    ]


def _order(group: tuple[str, list[Trial]]) -> tuple[bool, float, str]:
    """Numbers by size, then other names."""
    try:
        return False, float(group[0]), ""
    except ValueError:
        return True, 0.0, group[0]


def _group(trial: Trial, by: str) -> str:
    if by == "":
        return "all trials"
    if by == "arm":
        return "+".join(sorted(trial.arms))
    return label(trial.values.get(by))


def label(value: Any) -> str:
    """A value of a key as the name of a curve or group: `1` for 1.0."""
    cell = plain(value)
    return "(none)" if cell is None else f"{cell:g}" if isinstance(cell, float) and cell.is_integer() else str(cell)


def _band(some: list[Trial], metric: str) -> dict[str, list[Any]]:
    steps = np.concatenate([np.array(trial.courses[metric].steps) for trial in some])
    values = np.concatenate([np.array(trial.courses[metric].values) for trial in some])
    order = np.argsort(steps, kind="stable")
    places, starts = np.unique(steps[order], return_index=True)
    parts = np.split(values[order], starts[1:])
    quartiles = [np.quantile(part, (0.25, 0.75)) for part in parts]
    return {
        "steps": places.tolist(),
        "mean": [rounded(float(part.mean())) for part in parts],
        "low": [rounded(float(low)) for low, _ in quartiles],
        "high": [rounded(float(high)) for _, high in quartiles],
    }
