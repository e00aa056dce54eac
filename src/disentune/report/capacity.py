"""What a growing capacity is spent on: Burgess et al., arXiv 2018, Fig. 4: the KL of each factor's latent."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from disentune.report.canvas import tidy
from disentune.report.factors import COLUMNS, draw_factors, explained, per_factor
from disentune.report.groups import captioned, combined, outer_labels_only, panelled, shown
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Capacity

METRIC, WATCHED = "kl_per_factor", "watch_capacity"
MOST_PANELS = 6
MATCHING = "Each factor is matched with the latent that tells most about it; a line that rises early is learnt first."


def choose(scores: RunScores) -> list[Capacity]:
    try:
        spent = _spent(scores)
    except NothingToDraw:
        return []
    return [Capacity()] if spent.groupby("trial_id")["x"].nunique().max() > 1 else []


def draw(figure: Figure, scores: RunScores, spec: Capacity) -> Caption:
    spent = _spent(scores)
    trials = scores.trials[scores.trials["trial_id"].isin(spent["trial_id"])]
    keys = [key for key in scores.design.keys if trials[key].nunique(dropna=False) > 1]
    column = combined(trials, keys)
    groups = shown(scores, keys, column, MOST_PANELS)
    trials = trials[column.isin(groups.values)]
    for axes, own in panelled(figure, scores, trials, keys):
        draw_factors(axes, spent[spent["trial_id"].isin(own["trial_id"])])
        axes.set(xlabel="capacity (nats)", ylabel="KL of the factor's latent (nats)")
        tidy(axes)
        outer_labels_only(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    return captioned("Capacity spent on each factor", explained(len(trials)), MATCHING, groups.note)


# ---- rows


def _spent(scores: RunScores) -> pd.DataFrame:
    """trial_id, x (the capacity), factor, y (its KL): one row for each factor at each evaluation."""
    whole = set(scores.trials["trial_id"])
    rows = [row for record in scores.results.records if record.trial_id in whole for row in _of(record)]
    if not rows:
        raise NothingToDraw(
            f"no trial has reported {METRIC} with a capacity yet: train annealed_vae and evaluate {METRIC}"
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def _of(record: Any) -> Iterator[tuple[str, float, str, float]]:
    for row in record.rows:
        capacity = row["metrics"].get(WATCHED)
        if isinstance(capacity, int | float) and np.isfinite(capacity):
            for name, value in per_factor(row, METRIC):
                yield record.trial_id, float(capacity), name, value


KIND = Kind(
    name="capacity",
    question="In which order does a growing capacity go to the factors?",
    choose=choose,
    draw=draw,
)
