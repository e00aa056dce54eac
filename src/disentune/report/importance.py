"""How much of a score's variance each swept key explains, the seed among them.

Optuna's fANOVA (Hutter, Hoos, Leyton-Brown, ICML 2014): a forest predicts the score, and each key's share is the
variance of the forest's mean along that key alone, over the whole variance.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from disentune.report.canvas import FAINT, GREY, PALETTE, WIDTH, words
from disentune.report.groups import swept_keys
from disentune.report.kind import Caption, Kind
from disentune.report.places import brief, in_words, places
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Importance

FEWEST = 8
"""Trials, below which a forest has nothing to learn."""
MOST_TREES, FEWEST_TREES = 64, 16
WORK = 200_000
"""Trees x trials x values of all keys that take about a second."""
MOST_BARS = 16
LONGEST = 40
REST = "interactions and chance"


@dataclass(frozen=True)
class Design:
    """The trials as the forest sees them: `codes` has a column for each key (or keys that vary together), its values
    numbered from 0 in their order; `value` is the score."""

    codes: pd.DataFrame
    value: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> pd.Series:
        """How many values each key has."""
        return self.codes.max() + 1


def choose(scores: RunScores) -> list[Importance]:
    try:
        _design(scores, scores.objective.metric)
    except NothingToDraw:
        return []
    return [Importance()]


def draw(figure: Figure, scores: RunScores, spec: Importance) -> Caption:
    metric = spec.metric or scores.objective.metric
    design = _design(scores, metric)
    trials, trees = _affordable(design)
    shares = _shares(_sampled(design, trials), trees)
    _draw_bars(figure, shares[:MOST_BARS], f"share of the variance of {words(metric)}")
    return Caption(f"What decides {words(metric)}", _explained(design, shares, trials, trees))


# ---- trials as numbers


def _design(scores: RunScores, metric: str) -> Design:
    frame = scores.scored(metric, ["seed", *scores.varying])
    value = frame["value"].to_numpy()
    if len(frame) < FEWEST:
        raise NothingToDraw(f"importance needs {FEWEST} trials that have {metric}, but there are {len(frame)}")
    if np.ptp(value) <= 1e-12 * np.abs(value).max():
        raise NothingToDraw(f"every trial has the same {metric}: there is no variance to explain")
    keys = swept_keys(scores, frame)
    divided = {key: places(scores, key, frame[key]) for key in keys}
    codes = {key: _dense(found.codes) for key, found in divided.items()}
    seeds = _seeds(frame["seed"])
    ordered = {key for key in keys if scores.is_number(key)}
    merged = _merged(codes | ({} if seeds is None else {"seed": seeds}), ordered)
    if merged.shape[1] < 2:
        raise NothingToDraw("importance needs two keys that vary by themselves, the seed counted")
    notes = [found.note for found in divided.values()]
    if seeds is None:
        notes.append("The seed is left out: it does not come back in other trials, or is the same in all.")
    return Design(merged, value, tuple(filter(None, notes)))


def _dense(codes: np.ndarray) -> np.ndarray:
    """From 0 without gaps; the values that places() leaves out become one of their own, for no trial is dropped."""
    return np.unique(codes, return_inverse=True)[1]


def _seeds(column: pd.Series) -> np.ndarray | None:
    """A seed that is used once is but another name of its trial, and would explain everything."""
    seeds, codes = np.unique(column.to_numpy(), return_inverse=True)
    return codes if 1 < len(seeds) <= len(column) / 2 else None


def _merged(codes: dict[str, np.ndarray], ordered: set[str]) -> pd.DataFrame:
    """Keys that always change together as one column, for nothing tells which of them is the cause."""
    groups: list[list[str]] = []
    for key in codes:
        same = (group for group in groups if _together(codes[group[0]], codes[key], {group[0], key} <= ordered))
        group = next(same, None)
        if group is None:
            groups.append([key])
        else:
            group.append(key)
    return pd.DataFrame({" + ".join(in_words(group)): codes[group[0]] for group in groups})


def _together(first: np.ndarray, second: np.ndarray, numbers: bool) -> bool:
    """One value of each for one of the other; of two numbers that were drawn at random also in the same order."""
    pairs = sorted(set(zip(first.tolist(), second.tolist(), strict=True)))
    if not len(pairs) == len(set(first)) == len(set(second)):
        return False
    steps = np.diff([pair[1] for pair in pairs])
    return not numbers or bool((steps > 0).all() or (steps < 0).all())


# ---- shares


def _affordable(design: Design) -> tuple[int, int]:
    """Trials and trees: rather fewer trees than fewer trials, within a second or so."""
    values = int(design.sizes.sum())
    trials = min(len(design.value), max(FEWEST, WORK // (FEWEST_TREES * values)))
    return trials, int(np.clip(WORK // (trials * values), FEWEST_TREES, MOST_TREES))


def _sampled(design: Design, trials: int) -> Design:
    kept = np.sort(np.random.default_rng(0).permutation(len(design.value))[:trials])
    return Design(design.codes.iloc[kept], design.value[kept])


def _shares(design: Design, trees: int) -> list[tuple[str, float]]:
    """The largest first."""
    columns = list(design.codes)
    with _quiet():
        study = optuna.create_study()
        study.add_trials(_trials(design))
        evaluator = FanovaImportanceEvaluator(n_trees=trees, seed=0)
        try:
            found = get_param_importances(study, evaluator=evaluator, normalize=False)
        except RuntimeError as error:  # Optuna's word for a forest that predicts the same everywhere
            raise NothingToDraw("no key explains any of the variance") from error
    return sorted(((columns[int(name)], float(share)) for name, share in found.items()), key=lambda pair: -pair[1])


def _trials(design: Design) -> list[Any]:
    """Every value of a key is a unit of its axis, whatever it was: a number, a name, or none at all.

    fANOVA weighs what the forest predicts by the lengths of an axis. Optuna takes them on the plain scale even for a
    logarithmic distribution, so that the largest beta of a grid would weigh more than all others together; and it
    takes names as one column each, whose corners (2 to the number of names) are mostly no name. With units each
    value counts alike, as in the analysis of variance of a grid, a trial without a key is not dropped, and the
    time grows with the number of values only.
    """
    distributions: dict[str, BaseDistribution] = {
        str(i): FloatDistribution(0, float(size)) for i, size in enumerate(design.sizes)
    }
    scaled = design.value / np.abs(design.value).max()
    return [
        optuna.create_trial(
            params={str(i): code + 0.5 for i, code in enumerate(codes)}, distributions=distributions, value=float(value)
        )
        for codes, value in zip(design.codes.to_numpy(dtype=float).tolist(), scaled, strict=True)
    ]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's remarks: a study that is made, an argument that is experimental."""
    verbosity = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)


# ---- drawing


def _draw_bars(figure: Figure, shares: Sequence[tuple[str, float]], label: str) -> None:
    """The rest last, whatever its length: it is of another sort."""
    bars = [*shares, (REST, max(0.0, 1 - sum(share for _, share in shares)))]
    figure.set_size_inches(WIDTH, 1.0 + 0.32 * len(bars))
    axes = figure.subplots()
    colours = [_colour(key) for key, _ in bars]
    drawn = axes.barh(range(len(bars)), [share for _, share in bars], height=0.7, color=colours)
    axes.bar_label(drawn, [f"{share:.0%}" for _, share in bars], padding=3, fontsize=9)
    axes.set_yticks(range(len(bars)), [brief(key, LONGEST) for key, _ in bars])
    axes.set(xlabel=label, xlim=(0, 1.12 * max(share for _, share in bars)))
    _tidy(axes)


def _colour(key: str) -> str:
    return {REST: GREY, "seed": PALETTE[1]}.get(key, PALETTE[0])


def _tidy(axes: Axes) -> None:
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(PercentFormatter(1, 0))


def _explained(design: Design, shares: Sequence[tuple[str, float]], trials: int, trees: int) -> str:
    every, together = len(design.value), any(" + " in key for key in design.codes)
    drawn = f"{trials} of the {every} trials, drawn once" if trials < every else f"{every} trials"
    parts = [
        f"What each key explains by itself (fANOVA of Optuna: {trees} trees on {drawn}; each value of a key counts "
        f"alike). {REST.capitalize()}: what no key explains alone.",
        "The seed's share is chance." if "seed" in design.codes else "",
        "Keys with + between them always change together." if together else "",
        f"{len(shares) - MOST_BARS} more keys explain less." if len(shares) > MOST_BARS else "",
        *design.notes,
    ]
    return " ".join(part for part in parts if part)


KIND = Kind(name="importance", choose=choose, draw=draw)
