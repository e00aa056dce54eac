import numpy as np
import pytest

from disentune.report import canvas
from disentune.report.rungs import KIND, counts_at
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Rungs
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")
LAST = [100, 100, 100, 300, 900, 1500]
"""Steps that trials reached; rungs are at 100, 300 and 900, the end at 1500."""


def scores_of(maker):
    for seed, last in enumerate(LAST):
        rows = [{"step": step, "mig": 0.1} for step in range(100, last + 1, 100)]
        cause = "" if last == 1500 else "scheduler.asha: stopped"
        quick_trial(maker, rows, status="done", cause=cause, seed=seed)
    return RunScores(read(maker.run), MIG)


def test_dots_are_the_trials_that_reached_each_rung(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"}, scheduler={"name": "asha", "grace": 100})
    scores = scores_of(maker)
    assert KIND.choose(scores) == [Rungs()]
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, scores, Rungs())
    dots = next(line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert dict(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == {100: 6, 300: 3, 900: 2, 1500: 1}
    assert "5 of 6 trials were stopped early" in caption.text


def test_counts_are_those_at_or_above_a_step():
    assert counts_at(np.array([1, 2, 2, 5]), [1, 2, 3, 5, 6]) == [4, 3, 1, 1, 0]


def test_without_early_stopping_there_are_no_rungs(make_run):
    scores = scores_of(make_run())
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match="no scheduler of this run stops trials early"):
        KIND.draw(canvas.figure(), scores, Rungs())
