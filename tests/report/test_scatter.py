import math

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from scipy.stats import t

from disentune.report import canvas
from disentune.report.scatter import KIND, half_width, pareto
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Scatter, keys_of, metrics_of
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")


@pytest.fixture
def scores(make_run):
    """Three betas, four seeds: MIG rises with beta, SAP falls."""
    maker, rng = make_run(), np.random.default_rng(0)
    for beta in (1.0, 2.0, 3.0):
        for seed in range(4):
            row = {"step": 1, "mig": 0.1 * beta + 0.01 * rng.normal(), "sap": 0.5 - 0.1 * beta + 0.01 * rng.normal()}
            quick_trial(maker, [row], framework__beta=beta, seed=seed)
    return RunScores(read(maker.run), MIG)


def drawn(scores, **asked):
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, scores, Scatter(**asked))
        figure.draw_without_rendering()
    return figure.axes[0], caption


def test_diamonds_are_group_means_with_t_intervals_on_both_axes(scores):
    axes, caption = drawn(scores, x="sap")
    found = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    found = sorted(found, key=lambda one: one[0].get_ydata()[0])  # MIG rises with beta
    for one, (_, group) in zip(found, scores.trials.groupby("framework.beta"), strict=True):
        assert (one[0].get_xdata()[0], one[0].get_ydata()[0]) == pytest.approx(
            (group["sap"].mean(), group["mig"].mean())
        )
        across, up = one[2]
        for metric, ends in (("sap", across.get_segments()[0][:, 0]), ("mig", up.get_segments()[0][:, 1])):
            low, high = t.interval(0.95, 3, group[metric].mean(), group[metric].std() / 2)  # four trials
            assert ends == pytest.approx([low, high])
    assert "95 % intervals" in caption.text


def test_intervals_need_three_trials():
    assert math.isnan(half_width(1.0, 2))
    assert half_width(1.0, 3) == pytest.approx(t.ppf(0.975, 2) / math.sqrt(3))


def dominated(x, y, i):
    return any(x[j] >= x[i] and y[j] >= y[i] and (x[j], y[j]) != (x[i], y[i]) for j in range(len(x)))


@pytest.mark.parametrize("seed", range(5))
def test_the_front_is_what_no_other_point_beats(seed):
    x, y = np.random.default_rng(seed).integers(0, 6, (2, 15)).tolist()  # with ties
    assert sorted(pareto(x, y)) == [i for i in range(15) if not dominated(x, y, i)]


def test_the_front_follows_the_directions_of_the_metrics(scores):
    _, caption = drawn(scores, x="sap")
    assert "3 of 3 groups that no other beats" in caption.text  # more of one is less of the other
    lower = RunScores(scores.results, Objective(metric="mig", mode="min"))
    _, caption = drawn(lower, x="sap")
    assert "1 of 3 groups" in caption.text
    assert "Pareto" not in drawn(scores, x="sap", pareto=False)[1].text


def test_groups_are_named_while_they_are_few_or_when_asked(scores):
    assert sorted(text.get_text() for text in drawn(scores)[0].texts) == ["1 (n = 4)", "2 (n = 4)", "3 (n = 4)"]
    assert list(drawn(scores, labels=False)[0].texts) == []


def test_a_named_key_stands_beside_the_means_and_lines_join_them_in_its_order(scores):
    axes, caption = drawn(scores, by="arm", label="framework.beta", pareto=False)
    assert sorted(text.get_text() for text in axes.texts) == ["1", "2", "3"]
    (joined,) = [line for line in axes.lines if len(line.get_xdata()) == 3 and line.get_linestyle() == "-"]
    means = [[text.xy[0], text.xy[1]] for text in sorted(axes.texts, key=lambda text: text.get_text())]
    np.testing.assert_allclose(joined.get_xydata(), means)
    assert "Numbers beside the means: beta" in caption.text


def test_colours_stand_for_the_named_key(scores):
    axes, _ = drawn(scores, by="seed")
    assert len(axes.figure.legends[0].get_texts()) == 4


def test_one_metric_or_the_same_one_twice_is_refused(scores, make_run):
    with pytest.raises(NothingToDraw, match="both mig"):
        drawn(scores, x="mig")
    maker = make_run("one")
    quick_trial(maker, [{"step": 1, "mig": 0.1}])
    alone = RunScores(read(maker.run), MIG)
    with pytest.raises(NothingToDraw, match="have mig only"):
        drawn(alone)
    assert KIND.choose(alone) == []


def test_chosen_for_the_objective_and_the_first_other_metric(scores):
    assert KIND.choose(scores) == [Scatter(x="sap", y="mig")]


def test_another_measurement_of_the_objective_is_not_set_against_it(make_run):
    maker = make_run()
    for beta in (1.0, 2.0, 3.0):
        row = {"step": 1, "mig": beta, "mig_fast": beta, "mig_scored": beta, "mig_sampled_scored": beta, "udr": beta}
        quick_trial(maker, [row], framework__beta=beta)
    scores = RunScores(read(maker.run), MIG)
    assert [(spec.x, spec.y) for spec in KIND.choose(scores)] == [("udr", "mig")]
    assert drawn(scores, x="mig_fast")[0].get_xlabel() == "MIG fast (higher is better)"


def test_its_axes_are_metrics_and_no_keys():
    figure = Scatter(x="sap", y="mig", by="arm")
    assert (metrics_of(figure), keys_of(figure)) == (["sap", "mig"], ["arm"])
