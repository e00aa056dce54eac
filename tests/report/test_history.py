import numpy as np
import pandas as pd
import pytest

from disentune.report import canvas
from disentune.report.history import KIND, best_so_far
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.points import point_numbers
from disentune.results.tables import read
from disentune.spec.figures import History
from disentune.spec.settings import Objective
from run_examples import quick_trial, suggested

MIG = Objective(metric="mig", mode="max")
BETAS = [0.3, 0.1, 0.2]


@pytest.fixture
def scores(make_run):
    """Three points of a search in their order, two seeds each."""
    maker = make_run()
    suggested(maker, {"all": [{"framework.beta": beta} for beta in BETAS]})
    for beta in BETAS:
        for seed in (0, 1):
            quick_trial(maker, [{"step": 1500, "mig": beta + seed / 100}], framework__beta=beta, seed=seed)
    return RunScores(read(maker.run), MIG)


def test_points_are_numbered_as_they_were_suggested_and_seeds_share_the_number(scores):
    numbers, trials = point_numbers(scores.results), scores.trials.set_index("trial_id")
    assert len(numbers) == 6
    assert {BETAS[number] == trials.loc[id, "framework.beta"] for id, number in numbers.items()} == {True}


def test_dots_stand_at_their_numbers_and_the_line_is_the_best_mean_so_far(scores):
    figure = canvas.figure()
    with canvas.style():
        KIND.draw(figure, scores, History())
    dots, line = figure.axes[0].lines
    assert (figure.axes[0].get_xticks() % 1 == 0).all()
    found = np.array(sorted(zip(dots.get_xdata(), dots.get_ydata(), strict=True)))
    assert found == pytest.approx(np.array([(0, 0.3), (0, 0.31), (1, 0.1), (1, 0.11), (2, 0.2), (2, 0.21)]))
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([0, 1, 2], pytest.approx([0.305] * 3))


def test_a_point_of_which_a_seed_failed_or_has_no_score_is_in_no_line(make_run):
    maker = make_run()
    suggested(maker, {"all": [{"framework.beta": beta} for beta in BETAS]})
    for beta, broken in zip(BETAS, ("failed", "running", None), strict=True):
        quick_trial(maker, [{"step": 1500, "mig": beta}], framework__beta=beta, seed=0)
        quick_trial(maker, [{"step": 1500, "mig": beta}] if broken is None else [],
                    status=broken or "done", framework__beta=beta, seed=1)  # fmt: skip
    figure = canvas.figure()
    with canvas.style():
        KIND.draw(figure, RunScores(read(maker.run), MIG), History())
    _, line = figure.axes[0].lines
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([2], [0.2])


@pytest.mark.parametrize("lower", [True, False])
def test_the_best_so_far_is_a_running_extreme_over_points_that_ended(lower):
    values, cut = np.array([3.0, 1.0, 2.0, 5.0, 0.0]), np.array([False, True, False, False, True])
    found = best_so_far(pd.DataFrame({"point": range(5), "value": values, "cut": cut}), lower)
    extreme = min if lower else max
    assert found.to_dict() == {i: extreme(values[: i + 1][~cut[: i + 1]]) for i in (0, 2, 3)}


def test_a_grid_has_no_suggested_points(make_run):
    maker = make_run("grid")
    quick_trial(maker, [{"step": 1500, "mig": 0.1}])
    scores = RunScores(read(maker.run), MIG)
    assert point_numbers(scores.results) == {}
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match="its search is not optuna"):
        KIND.draw(canvas.figure(), scores, History())


def test_a_damaged_journal_costs_only_the_numbers(scores):
    path = scores.results.run.journal_path
    path.write_bytes(path.read_bytes().replace(b"0.3", b"0.4"))
    assert point_numbers(scores.results) == {}
