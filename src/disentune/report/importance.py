"""How much each swept key, including the seed, changes a forest's prediction of a score.

Optuna's fANOVA (Hutter, Hoos, Leyton-Brown, ICML 2014): a forest predicts the score, and each key's share is the
variance of the forest's mean along that key, divided by the total variance of the forest. It is computed within one
arm: a union of arms has no common space of keys, and shares over it would reflect what the arms happen to contain.
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
from disentune.report.design import swept
from disentune.report.kind import Caption, Kind
from disentune.report.places import brief, in_words, places
from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.figures import Importance

FEWEST = 8
"""Minimum number of trials; with fewer, a forest has nothing to learn."""
FEW = 50
"""With fewer trials, shares vary by tens of percent between samples."""
MOST_ARMS = 4
MOST_TREES, FEWEST_TREES = 64, 16
WORK = 200_000
"""Trees x trials x values of all keys that can be computed in about a second."""
MOST_BARS = 16
LONGEST = 40
REST = "interactions and chance"


@dataclass(frozen=True)
class Design:
    """The input of the forest: `codes` has one column per key (or keys that vary together), with its values numbered
    from 0 in order; `value` is the score."""

    codes: pd.DataFrame
    value: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> pd.Series:
        """The number of values of each key."""
        return self.codes.max() + 1


def choose(scores: RunScores) -> list[Importance]:
    """Chosen if the forest can be fitted in all arms."""
    try:
        _arms(scores, scores.objective.metric)
    except NothingToDraw:
        return []
    return [Importance()]


def draw(figure: Figure, scores: RunScores, spec: Importance) -> Caption:
    metric = spec.metric or scores.objective.metric
    designs = _arms(scores, metric)
    budgets = {arm: _affordable(design) for arm, design in designs.items()}
    shares = {arm: _shares(_sampled(design, budgets[arm][0]), budgets[arm][1]) for arm, design in designs.items()}
    _draw_arms(figure, {arm: some[:MOST_BARS] for arm, some in shares.items()}, designs, metric)
    inside = " within each arm" if len(designs) > 1 else ""
    return Caption(f"Which keys {words(metric)} depends on{inside}", _explained(scores, designs, shares, budgets))


# ---- the arms


def _arms(scores: RunScores, metric: str) -> dict[str, Design]:
    """Each arm separately, because keys that differ between arms are confounded with all other differences."""
    frame = scores.scored(metric, ["arm"])
    arms = scores.order("arm", list(frame["arm"].unique()))
    if len(arms) > MOST_ARMS:
        raise NothingToDraw(
            f"importance is computed within one arm, and there are {len(arms)}; choose one with "
            f"only: \"arm == '{arms[0]}'\""
        )
    found = {}
    for arm in arms:
        ids = set(frame["trial_id"][frame["arm"] == arm])
        try:
            found[arm] = _design(scores.of(ids), metric)
        except NothingToDraw as reason:
            if len(arms) == 1:
                raise
            raise NothingToDraw(f"importance is computed within each arm, but in arm {arm}, {reason}") from None
    return found


# ---- trials as numbers


def _design(scores: RunScores, metric: str) -> Design:
    frame = scores.scored(metric, ["seed", *scores.varying, "cut"])
    value = frame["value"].to_numpy()
    if len(frame) < FEWEST:
        raise NothingToDraw(f"importance needs {FEWEST} trials that have {metric}, but there are {len(frame)}")
    if np.ptp(value) <= 1e-12 * np.abs(value).max():
        raise NothingToDraw(f"every trial has the same {metric}, so there is nothing to explain")
    keys = [key for key in scores.varying if swept(frame, key)]
    divided = {key: places(scores, key, frame[key]) for key in keys}
    codes = {key: _dense(found.codes) for key, found in divided.items()}
    seeds = _seeds(frame["seed"])
    ordered = {key for key in keys if scores.is_number(key)}
    merged = _merged(codes | ({} if seeds is None else {"seed": seeds}), ordered)
    if merged.shape[1] < 2:
        raise NothingToDraw("importance needs two keys that vary independently, including the seed")
    notes = [found.note for found in divided.values()]
    if seeds is None:
        notes.append("The seed is left out: each trial has its own, or all have the same.")
    cut = int(frame["cut"].sum())
    if 0 < cut < len(frame):
        notes.append(f"Budgets differ: {cut} of {len(frame)} trials were stopped early or are still training.")
    return Design(merged, value, tuple(filter(None, notes)))


def _dense(codes: np.ndarray) -> np.ndarray:
    """Numbers from 0 without gaps; values that places() leaves out share one number, so that no trial is dropped."""
    return np.unique(codes, return_inverse=True)[1]


def _seeds(column: pd.Series) -> np.ndarray | None:
    """A seed that is used only once identifies its trial and would explain everything."""
    seeds, codes = np.unique(column.to_numpy(), return_inverse=True)
    return codes if 1 < len(seeds) <= len(column) / 2 else None


def _merged(codes: dict[str, np.ndarray], ordered: set[str]) -> pd.DataFrame:
    """Keys that always change together become one column, because it is unknown which of them is the cause."""
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
    """Whether each value of one key goes with one value of the other; for two sampled numbers also in the same
    order."""
    pairs = sorted(set(zip(first.tolist(), second.tolist(), strict=True)))
    if not len(pairs) == len(set(first)) == len(set(second)):
        return False
    steps = np.diff([pair[1] for pair in pairs])
    return not numbers or bool((steps > 0).all() or (steps < 0).all())


# ---- shares


def _affordable(design: Design) -> tuple[int, int]:
    """Numbers of trials and trees that take about a second; reduces trees before trials."""
    values = int(design.sizes.sum())
    trials = min(len(design.value), max(FEWEST, WORK // (FEWEST_TREES * values)))
    return trials, int(np.clip(WORK // (trials * values), FEWEST_TREES, MOST_TREES))


def _sampled(design: Design, trials: int) -> Design:
    kept = np.sort(np.random.default_rng(0).permutation(len(design.value))[:trials])
    return Design(design.codes.iloc[kept], design.value[kept])


def _shares(design: Design, trees: int) -> list[tuple[str, float]]:
    """Shares, largest first."""
    columns = list(design.codes)
    with _quiet():
        study = optuna.create_study()
        study.add_trials(_trials(design))
        evaluator = FanovaImportanceEvaluator(n_trees=trees, seed=0)
        try:
            found = get_param_importances(study, evaluator=evaluator, normalize=False)
        except RuntimeError as error:  # raised by Optuna for a forest that predicts the same everywhere
            raise NothingToDraw("no key explains any of the variance") from error
    return sorted(((columns[int(name)], float(share)) for name, share in found.items()), key=lambda pair: -pair[1])


def _trials(design: Design) -> list[Any]:
    """Every value of a key takes one unit of its axis, whether it is a number, a name or missing.

    fANOVA weights the forest's predictions by lengths on an axis. Optuna uses the linear scale even for a logarithmic
    distribution, so the largest beta of a grid would outweigh all others together; and it encodes each name as a
    column, so most of the corners (2 to the number of names) are no valid name. With units, each value counts equally,
    as in the analysis of variance of a grid, trials without a key are not dropped, and the time grows only with the
    number of values.
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
    """Hides Optuna's messages about created studies and experimental arguments."""
    verbosity = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(verbosity)


# ---- drawing


def _draw_arms(
    figure: Figure, shares: dict[str, list[tuple[str, float]]], designs: dict[str, Design], metric: str
) -> None:
    count = max(len(some) for some in shares.values()) + 1
    width = WIDTH if len(shares) == 1 else 3.6 * len(shares)
    figure.set_size_inches(width, (1.0 if len(shares) == 1 else 1.3) + 0.32 * count)
    grid = figure.subplots(1, len(shares), squeeze=False)[0]
    for axes, (arm, some) in zip(grid, shares.items(), strict=True):
        label, used = f"share in the forest's {words(metric)}", f"(n = {len(designs[arm].value)})"
        if len(shares) > 1:  # two labels side by side would be wider than their panels
            axes.set_title(f"{brief(arm, LONGEST)} {used}", fontsize=10, loc="left")
            figure.supxlabel(label, fontsize=10)
        _draw_bars(axes, some, "" if len(shares) > 1 else f"{label} {used}")


def _draw_bars(axes: Axes, shares: Sequence[tuple[str, float]], label: str) -> None:
    """Puts the rest last, whatever its size, because it is not a key."""
    bars = [*shares, (REST, max(0.0, 1 - sum(share for _, share in shares)))]
    colours = [_colour(key) for key, _ in bars]
    drawn = axes.barh(range(len(bars)), [share for _, share in bars], height=0.7, color=colours)
    axes.bar_label(drawn, [f"{share:.0%}" for _, share in bars], padding=3, fontsize=9)
    axes.set_yticks(range(len(bars)), [brief(key, LONGEST) for key, _ in bars])
    axes.set(xlabel=label, xlim=(0, 1.25 * max(share for _, share in bars)))
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


def _explained(
    scores: RunScores,
    designs: dict[str, Design],
    shares: dict[str, list[tuple[str, float]]],
    budgets: dict[str, tuple[int, int]],
) -> str:
    counts = [len(design.value) for design in designs.values()]
    columns = {key for design in designs.values() for key in design.codes}
    more = max(len(some) - MOST_BARS for some in shares.values())
    parts = [
        f"fANOVA by Optuna: a forest is fitted to {_trials_used(designs, budgets)}, and a bar is the variance of the "
        "forest's mean along one key, divided by the total variance of the forest; each value of a key counts equally. "
        "This describes the forest, not the variance explained in the scores, and has no interval. "
        f"{REST.capitalize()}: what no single key accounts for.",
        f"With only {min(counts)} trials, shares can change by tens of percent from sample to sample."
        if min(counts) < FEW else "",
        "The share of the seed is chance." if "seed" in columns else "",
        "Keys with + between them always change together." if any(" + " in key for key in columns) else "",
        f"{more} more keys account for less." if more > 0 else "",
        *dict.fromkeys(note for design in designs.values() for note in design.notes),
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


def _trials_used(designs: dict[str, Design], budgets: dict[str, tuple[int, int]]) -> str:
    texts = []
    for arm, design in designs.items():
        used, trees = budgets[arm]
        every = len(design.value)
        drawn = f"{used} of the {every} trials, drawn once" if used < every else f"all {every} trials"
        texts.append(f"{drawn}{f' of {arm}' if len(designs) > 1 else ''} ({trees} trees)")
    return ", ".join(texts)


KIND = Kind(
    name="importance",
    question="Which keys does the score depend on most, within one arm?",
    choose=choose,
    draw=draw,
)
