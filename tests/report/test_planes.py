"""Planes of two latents: the best trials above the worst, none of them twice."""

import numpy as np
import pytest

from disentune.learn.pictures import Pictures, mosaic, to_bytes
from disentune.report import canvas, planes
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import PlanesFigure
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")


def plane(shade):
    return np.full((4, 4, 8, 8, 1), shade, np.uint8)


def scores_of(make_run, count, has_planes=True):
    """Trial i has the score i / 10 and images of grey i."""
    maker, images = make_run(), np.zeros((2, 8, 8, 1), np.uint8)
    for number in range(count):
        trial_id = quick_trial(maker, [{"step": 1500, "mig": number / 10}], "all", seed=number)
        seen = Pictures(
            originals=images, reconstructions=images, traversals=np.zeros((3, 4, 8, 8, 1), np.uint8),
            latents=np.array([2, 0, 1]), kl=np.ones(3, np.float32), spans=np.zeros((3, 2), np.float32), distances={},
            two_latents=plane(number) if has_planes else None,
        )  # fmt: skip
        maker.run.trial(trial_id).write_pictures(1500, to_bytes(seen))
    return RunScores(read(maker.run), MIG)


def drawn(scores, **keys):
    with canvas.style():
        figure = canvas.figure()
        planes.draw(figure, scores, PlanesFigure(**keys))
    return [axes for axes in figure.axes if axes.images]


@pytest.mark.parametrize(
    ("count", "best", "worst"),
    [(10, [9, 8, 7, 6], [0, 1, 2, 3]), (5, [4, 3, 2], [0, 1]), (1, [0], [])],
)
def test_the_best_are_above_the_worst_and_none_is_both(make_run, count, best, worst):
    shown = drawn(scores_of(make_run, count))
    titles = [axes.get_title() for axes in shown]
    assert titles == [*(f"best, MIG {n / 10:.3g}\nz2 down, z0 right" for n in best),
                      *(f"worst, MIG {n / 10:.3g}\nz2 down, z0 right" for n in worst)]  # fmt: skip
    for axes, number in zip(shown, [*best, *worst], strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), mosaic(plane(number)))


def test_fewer_may_be_asked_for(make_run):
    assert len(drawn(scores_of(make_run, 10), count=1)) == 2


def test_without_planes_the_reason_says_how_to_get_them(make_run):
    scores = scores_of(make_run, 2, has_planes=False)
    assert planes.choose(scores) == []
    with pytest.raises(NothingToDraw, match="plane: true"):
        drawn(scores)
