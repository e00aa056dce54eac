"""Early stopping: how many trials reached each step, and the rungs at which they were judged."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from disentune.report.canvas import PALETTE, tidy
from disentune.report.kind import Caption, Kind
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import value_steps
from disentune.runs.verdicts import rungs
from disentune.spec.figures import Rungs
from disentune.spec.settings import Asha, Median


def choose(scores: RunScores) -> list[Rungs]:
    try:
        scores.scored(None)
        _reached(scores)
    except NothingToDraw:
        return []
    return [Rungs()]


def draw(figure: Figure, scores: RunScores, spec: Rungs) -> Caption:
    scores.scored(None)
    reached = _reached(scores)
    milestones = _milestones(scores, reached)
    axes = figure.subplots()
    _draw_survival(axes, reached)
    _draw_milestones(axes, reached, milestones)
    axes.set(
        xlabel="training step", ylabel=f"trials that reached it (n = {len(reached)})", ylim=(0, 1.15 * len(reached))
    )
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    cut = int((scores.trials["cut"]).sum())
    stopped = f"{cut} of {len(reached)} trials were stopped early or are still training."
    dots = "Dots are the rungs, with the number of trials that reached them." if milestones else ""
    return Caption("Trials by the steps they reached", " ".join(filter(None, [stopped, dots])))


def _reached(scores: RunScores) -> np.ndarray:
    """The sorted last steps of all trials."""
    if not isinstance(scores.results.run.sweep().settings.scheduler, Asha | Median):
        raise NothingToDraw("no scheduler of this run stops trials early")
    return np.sort(scores.trials["step"].to_numpy(dtype=int))


def _milestones(scores: RunScores, reached: np.ndarray) -> list[int]:
    """The rungs of ASHA and the last step, among the steps that report the objective."""
    scheduler = scores.results.run.sweep().settings.scheduler
    steps = value_steps(scores.results, scores.objective.metric).dropna()
    rows = scores.results.rows
    if not isinstance(scheduler, Asha) or steps.empty:
        return []
    interval = int(rows["step"][rows[scores.objective.metric].notna()].min())
    ends = int(scores.trials["training.steps"].max())
    return [*rungs(scheduler, ends, interval), ends]


def counts_at(reached: np.ndarray, steps: list[int]) -> list[int]:
    """How many trials reached each step."""
    return [int((reached >= step).sum()) for step in steps]


def _draw_survival(axes: Axes, reached: np.ndarray) -> None:
    steps = sorted({0, *reached.tolist()})
    axes.step(steps, counts_at(reached, steps), where="pre", color=PALETTE[0], linewidth=2)


def _draw_milestones(axes: Axes, reached: np.ndarray, milestones: list[int]) -> None:
    counts = counts_at(reached, milestones)
    axes.plot(milestones, counts, "o", color=PALETTE[0], markersize=6)
    for step, count in zip(milestones, counts, strict=True):
        axes.annotate(str(count), (step, count), (0, 7), textcoords="offset points", ha="center", fontsize=9)


KIND = Kind(
    name="rungs",
    question="How many trials did the scheduler stop, and where?",
    choose=choose,
    draw=draw,
)
