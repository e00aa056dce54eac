"""The figure of a manipulated data set: originals above, results below, the magnified difference between them."""

import numpy as np
import pytest

from disentune.learn.pictures import Pictures, to_bytes
from disentune.report import canvas, manipulation
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import ManipulationFigure
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")
BEFORE = np.random.default_rng(0).integers(60, 200, (3, 8, 8, 1), dtype=np.uint8)
CHANGE = np.random.default_rng(1).integers(-20, 21, BEFORE.shape)
CHANGE[0, 0, 0, 0] = 20


def pictures(unchanged):
    after = (BEFORE + CHANGE).astype(np.uint8)
    return Pictures(
        originals=after, reconstructions=after, traversals=after[None][:0], latents=np.arange(0),
        kl=np.ones(0, np.float32), spans=np.zeros((0, 2), np.float32), distances={}, unchanged=unchanged,
    )  # fmt: skip


def test_the_largest_change_fills_the_range_and_no_change_is_grey():
    change = manipulation.change_of("arm", pictures(BEFORE), 3)
    assert (change.largest, change.times) == (20, 127 / 20)
    for place in np.ndindex(BEFORE.shape):
        assert change.magnified[place] == round(128 + 127 / 20 * int(CHANGE[place]))
    np.testing.assert_array_equal(change.before, BEFORE)
    same = manipulation.change_of("arm", pictures((BEFORE + CHANGE).astype(np.uint8)), 3)
    assert (same.magnified == 128).all()


def scores_of(make_run, unchanged):
    maker = make_run()
    for arm, shown in unchanged.items():
        beta = len(maker.run.trials()) + 1.0
        trial_id = quick_trial(maker, [{"step": 1500, "mig": 0.5}], arm, framework__beta=beta)
        maker.run.trial(trial_id).write_pictures(1500, to_bytes(pictures(shown)))
    return RunScores(read(maker.run), MIG)


def test_each_arm_with_a_manipulated_data_set_has_a_panel(make_run):
    scores = scores_of(make_run, {"changed": BEFORE, "plain": None, "also": BEFORE})
    with canvas.style():
        figure = canvas.figure()
        manipulation.draw(figure, scores, ManipulationFigure(images=2))
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.partition(":")[0] for title in titles] == ["also", "changed"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["original", "change x 6.35", "result"]
    assert titles[0].endswith("no pixel shown changes by more than 0.0784")


def test_without_a_manipulated_data_set_there_is_nothing_to_draw(make_run):
    scores = scores_of(make_run, {"plain": None})
    assert manipulation.choose(scores) == []
    with pytest.raises(NothingToDraw, match="no trial was trained on a manipulated data set"):
        manipulation.draw(None, scores, ManipulationFigure())
