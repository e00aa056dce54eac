"""Numbers of each factor over training: read from the details of rows, drawn as one line per factor."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from disentune.analysis.statistics import half_width
from disentune.report.canvas import PALETTE, words
from disentune.report.groups import FEWEST_SPREAD

COLUMNS = ["trial_id", "x", "factor", "y"]
MOST_FACTORS = 12
PLACES = 60
"""Places at which trials are compared; between its own rows each trial is a straight line."""


def per_factor(row: Mapping[str, Any], metric: str) -> Iterator[tuple[str, float]]:
    """Factor and number, of the metric in whichever size it was evaluated; none if the row does not have it."""
    values, names = _detail(row, metric, "values"), _detail(row, metric, "names")
    if len(values) == len(names):
        for name, value in zip(names, values, strict=True):
            if isinstance(value, int | float) and np.isfinite(value):
                yield str(name), float(value)


def _detail(row: Mapping[str, Any], metric: str, part: str) -> list[Any]:
    """Rows come from a folder that others may write to, so anything may be in them."""
    details = row.get("details", {})
    found: Any = next((details[key] for key in (f"{metric}_{part}", f"{metric}_{part}_fast") if key in details), [])
    return found if isinstance(found, list) else []


def factors_of(frame: pd.DataFrame) -> list[str]:
    """In the order of the data set, at most as many as can be told apart."""
    return list(dict.fromkeys(frame["factor"]))[:MOST_FACTORS]


def draw_factors(
    axes: Axes, frame: pd.DataFrame, factors: Sequence[str] | None = None, notes: Mapping[str, str] | None = None
) -> None:
    """One line per factor, the mean over trials, with its note in the legend."""
    for number, name in enumerate(factors or factors_of(frame)):
        own = frame[frame["factor"] == name]
        colour, line = PALETTE[number % len(PALETTE)], "-" if number < len(PALETTE) else "--"
        at, each = _aligned(own)
        axes.plot(
            at, each.mean(axis=0), line, color=colour, linewidth=2, label=words(name) + (notes or {}).get(name, "")
        )
        if len(each) >= FEWEST_SPREAD:
            half = half_width(each.std(axis=0, ddof=1), np.full(len(at), len(each)))
            low, high = each.mean(axis=0) - half, each.mean(axis=0) + half
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _aligned(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Places (p,) that all trials have passed, and the number of each trial there, (trials, p)."""
    trials = [trial.sort_values("x", kind="stable") for _, trial in frame.groupby("trial_id")]
    low, high = max(t["x"].iloc[0] for t in trials), min(t["x"].iloc[-1] for t in trials)
    at = np.unique(np.linspace(min(low, high), high, PLACES))
    return at, np.array([np.interp(at, trial["x"], trial["y"]) for trial in trials])


def explained(trials: int) -> str:
    band = f"; bands are 95 % t intervals over trials, from {FEWEST_SPREAD} on" if trials >= FEWEST_SPREAD else ""
    return f"Lines are means over n trials that differ by seed{band} (n = {trials} in all)."
