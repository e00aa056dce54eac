"""Which factor is learnt first, from the details of rows."""

import numpy as np
import pandas as pd
import pytest
import scipy

from conftest import RunMaker
from disentune.report import canvas, learning_order
from disentune.report.factors import COLUMNS
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import LearningOrder
from disentune.spec.settings import Objective
from run_examples import quick_trial

NAMES = ["x", "scale", "shape"]
EARLY_X = {500: [0.6, 0.1, 0.0], 1000: [0.8, 0.4, 0.1], 1500: [0.9, 0.6, 0.2]}


def rows(told=EARLY_X, distances=(3.0, 2.0, 1.0), suffix=""):
    found = []
    for step, values in told.items():
        details = {f"factor_information_values{suffix}": values, f"factor_information_names{suffix}": NAMES}
        if distances:
            details |= {"factor_importance_values": list(distances), "factor_importance_names": NAMES}
        found.append({"step": step, "loss": 1.0, "mig": 0.5, "factor_information": 0.5, "details": details})
    return found


@pytest.fixture
def scores_of(tmp_path):
    def make(trials):
        maker = RunMaker(tmp_path / "runs" / "demo" / "main")
        maker.sweep()
        for seed, own in enumerate(trials):
            quick_trial(maker, own, seed=seed)
        return RunScores(read(maker.run), Objective(metric="mig", mode="max"))

    return make


def drawn(scores):
    with canvas.style():
        figure = canvas.figure()
        caption = learning_order.draw(figure, scores, LearningOrder())
        return figure.axes[0], caption.text


@pytest.mark.parametrize("suffix", ["", "_fast"])
def test_lines_are_means_over_seeds_with_the_largest_distance_first(scores_of, suffix):
    shifted = {step: [value + 0.1 for value in values] for step, values in EARLY_X.items()}
    trials = [rows(told, (1.0, 2.0, 3.0), suffix) for told in (EARLY_X, shifted)]
    axes, _ = drawn(scores_of(trials))
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert list(lines) == ["shape (3)", "scale (2)", "x (1)"]
    at, mean = lines["x (1)"].T
    np.testing.assert_allclose(mean, np.interp(at, list(EARLY_X), [0.6, 0.8, 0.9]) + 0.05)
    assert (at[0], at[-1]) == (500, 1500)


def test_the_correlation_is_the_mean_over_trials_of_scipys(scores_of):
    told = [np.mean(list(EARLY_X.values()), axis=0)] * 3
    orders = [(3.0, 2.0, 1.0), (3.0, 1.0, 2.0), (1.0, 2.0, 3.0)]
    each = [scipy.stats.spearmanr(*pair).statistic for pair in zip(told, orders, strict=True)]
    low, high = scipy.stats.t.interval(0.95, 2, loc=np.mean(each), scale=scipy.stats.sem(each))
    _, text = drawn(scores_of([rows(distances=order) for order in orders]))
    assert (
        f"averaged over training: {np.mean(each):.2f} (mean over 3 trials, 95 % t interval {low:.2f} to {high:.2f})"
        in text
    )


def test_without_distances_there_is_no_correlation_and_nothing_in_brackets(scores_of):
    axes, text = drawn(scores_of([rows(distances=())]))
    assert [line.get_label() for line in axes.get_lines()] == NAMES
    assert "orrelation" not in text
    assert "brackets" not in text


def test_two_factors_are_too_few_to_correlate():
    frame = pd.DataFrame([("t", 0, "x", 1.0), ("t", 0, "y", 2.0)], columns=COLUMNS)
    assert np.isnan(learning_order.rank_agreement(frame, frame))
    three = pd.concat([frame, pd.DataFrame([("t", 0, "z", 3.0)], columns=COLUMNS)])
    assert learning_order.rank_agreement(three, three) == pytest.approx(1)


def test_distances_that_differ_by_rounding_have_no_order():
    told = pd.DataFrame([("t", 0, name, number) for number, name in enumerate("xyz")], columns=COLUMNS)
    equal = told.assign(y=845.0 * (1 + 1e-7 * told["y"]))
    assert np.isnan(learning_order.rank_agreement(told, equal))
    assert learning_order.rank_agreement(told, told.assign(y=845.0 * (1 + 1e-3 * told["y"]))) == pytest.approx(1)


def test_it_is_chosen_where_information_was_evaluated_more_than_once(scores_of):
    assert learning_order.choose(scores_of([rows()])) == [LearningOrder()]


def test_a_run_without_it_says_what_to_evaluate(scores_of):
    scores = scores_of([[{"step": 500, "loss": 1.0, "mig": 0.5}]])
    assert learning_order.choose(scores) == []
    with pytest.raises(NothingToDraw, match="evaluate factor_information, and factor_importance beside it"):
        drawn(scores)
