"""What a growing capacity is spent on: Burgess et al., arXiv 2018, Fig. 4: the KL of each factor's latent."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disentune.analysis.statistics import half_width
from disentune.report.canvas import PALETTE, tidy, words
from disentune.report.groups import FEWEST_SPREAD, captioned, combined, outer_labels_only, panelled, shown
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Capacity

METRIC, WATCHED = "kl_per_factor", "watch_capacity"
MOST_PANELS = 6
MOST_FACTORS = 12
PLACES = 60
"""Capacities at which trials are compared; between its own rows each trial is a straight line."""


def choose(scores: RunScores) -> list[Capacity]:
    try:
        spent = _spent(scores)
    except NothingToDraw:
        return []
    return [Capacity()] if spent.groupby("trial_id")["capacity"].nunique().max() > 1 else []


def draw(figure: Figure, scores: RunScores, spec: Capacity) -> Caption:
    spent = _spent(scores)
    trials = scores.trials[scores.trials["trial_id"].isin(spent["trial_id"])]
    keys = [key for key in ["arm", *scores.varying] if trials[key].nunique(dropna=False) > 1]
    column = combined(trials, keys)
    groups = shown(scores, keys, column, MOST_PANELS)
    trials = trials[column.isin(groups.values)]
    for axes, own in panelled(figure, scores, trials, keys):
        _draw_factors(axes, spent[spent["trial_id"].isin(own["trial_id"])])
        axes.set(xlabel="capacity (nats)", ylabel="KL of the factor's latent (nats)")
        tidy(axes)
        outer_labels_only(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    return captioned("Capacity spent on each factor", _explained(len(trials)), groups.note)


# ---- rows


def _spent(scores: RunScores) -> pd.DataFrame:
    """trial_id, capacity, factor, kl: one row for each factor at each evaluation."""
    whole = set(scores.trials["trial_id"])
    rows = [row for record in scores.results.records if record.trial_id in whole for row in _of(record)]
    if not rows:
        raise NothingToDraw(
            f"no trial has reported {METRIC} with a capacity yet: train annealed_vae and evaluate {METRIC}"
        )
    return pd.DataFrame(rows, columns=["trial_id", "capacity", "factor", "kl"])


def _of(record: Any) -> Iterator[tuple[str, float, str, float]]:
    for row in record.rows:
        capacity, details = row["metrics"].get(WATCHED), row.get("details", {})
        values, names = _detail(details, "values"), _detail(details, "names")
        if isinstance(capacity, int | float) and np.isfinite(capacity) and len(values) == len(names):
            for name, value in zip(names, values, strict=True):
                if isinstance(value, int | float) and np.isfinite(value):
                    yield record.trial_id, float(capacity), str(name), float(value)


def _detail(details: dict[str, Any], part: str) -> list[Any]:
    """A detail of the metric in whichever size it was evaluated; rows come from a folder that others may write to."""
    found: Any = next((details[key] for key in (f"{METRIC}_{part}", f"{METRIC}_{part}_fast") if key in details), [])
    return found if isinstance(found, list) else []


# ---- drawing


def _draw_factors(axes: Axes, spent: pd.DataFrame) -> None:
    """Draws one line per factor, in the order of the data set's factors."""
    for number, name in enumerate(list(dict.fromkeys(spent["factor"]))[:MOST_FACTORS]):
        own = spent[spent["factor"] == name]
        colour, line = PALETTE[number % len(PALETTE)], "-" if number < len(PALETTE) else "--"
        at, each = _aligned(own)
        axes.plot(at, each.mean(axis=0), line, color=colour, linewidth=2, label=words(name))
        if len(each) >= FEWEST_SPREAD:
            half = half_width(each.std(axis=0, ddof=1), np.full(len(at), len(each)))
            low, high = each.mean(axis=0) - half, each.mean(axis=0) + half
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _aligned(spent: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Capacities (p,) that all trials have passed, and the KL of each trial there, (trials, p)."""
    trials = [trial.sort_values("capacity", kind="stable") for _, trial in spent.groupby("trial_id")]
    low, high = max(t["capacity"].iloc[0] for t in trials), min(t["capacity"].iloc[-1] for t in trials)
    at = np.unique(np.linspace(min(low, high), high, PLACES))
    return at, np.array([np.interp(at, trial["capacity"], trial["kl"]) for trial in trials])


def _explained(trials: int) -> str:
    band = f"; bands are 95 % t intervals over trials, from {FEWEST_SPREAD} on" if trials >= FEWEST_SPREAD else ""
    lines = f"Lines are means over n trials that differ by seed{band} (n = {trials} in all)."
    matching = "Each factor is matched with the latent that tells most about it"
    return f"{lines} {matching}; a line that rises early is learnt first."


KIND = Kind(
    name="capacity",
    question="In which order does a growing capacity go to the factors?",
    choose=choose,
    draw=draw,
)
