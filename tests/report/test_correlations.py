import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from scipy.stats import spearmanr

from disentune.report import canvas
from disentune.report.correlations import KIND
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Correlations
from disentune.spec.settings import Objective
from run_examples import quick_trial, study

NAN = float("nan")
SWAPPED = [0, 1, 2, 3, 4, 5, 7, 6]
"""Of eight ranks; one swap of neighbours leaves 1 - 6 * 2 / (8 * 63) = 0.976."""


def scores_of(maker):
    return RunScores(read(maker.run), Objective(metric="mig", mode="max"))


def one_dataset(maker, **metrics):
    """A trial for each number of the lists."""
    for seed, row in enumerate(zip(*metrics.values(), strict=True)):
        quick_trial(maker, [{"step": 1, **dict(zip(metrics, row, strict=True))}], seed=seed)
    return scores_of(maker)


def drawn(scores, **asked):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, Correlations(**asked))
        figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible() and axes.get_title()]
    return figure, caption, {axes.get_title(): matrix_of(axes) for axes in panels}


def matrix_of(axes):
    mesh = next(part for part in axes.collections if isinstance(part, QuadMesh))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-1, 1)
    assert mesh.get_cmap().name == canvas.DIVERGING
    return np.ma.filled(mesh.get_array(), np.nan)


# ---- numbers


def test_numbers_are_spearmans_of_scipy(make_run):
    rng = np.random.default_rng(0)
    mig = rng.uniform(size=30).round(1)  # with ties
    metrics = {"mig": mig, "sap": mig + rng.normal(0, 0.2, 30), "irs": -mig + rng.normal(0, 0.5, 30)}
    _, caption, panels = drawn(one_dataset(make_run(), **metrics))
    (label, values), keys = *panels.items(), list(metrics)
    assert label == "(n = 30)"
    expected = [[spearmanr(metrics[a], metrics[b]).statistic for b in keys] for a in keys]
    assert values == pytest.approx(np.array(expected))
    assert "data set" not in caption.text


def test_each_pair_is_over_the_trials_that_have_both(make_run):
    mig = [0.1, 0.2, 0.3, 0.4, 0.5, NAN, 0.0, 0.7, 0.6, 0.8]
    sap = [0.1, 0.3, 0.2, 0.4, NAN, 0.9, 0.5, 0.6, 0.8, 0.7]
    _, _, panels = drawn(one_dataset(make_run(), mig=mig, sap=sap))
    both = [0, 1, 2, 3, 6, 7, 8, 9]
    expected = spearmanr(np.array(mig)[both], np.array(sap)[both]).statistic
    assert panels["(n = 8)"][0, 1] == pytest.approx(expected)


def test_a_constant_metric_has_no_number(make_run):
    figure, caption, panels = drawn(one_dataset(make_run(), mig=range(8), sap=[0.5] * 8, irs=SWAPPED))
    values = panels["(n = 8)"]
    assert np.isnan(values).tolist() == [[False, True, False], [True, True, True], [False, True, False]]
    assert "Hatched" in caption.text
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "0.98", "0.98", "1.00"]


def test_a_pair_that_few_trials_have_has_no_number(make_run):
    scores = one_dataset(make_run(), mig=range(8), irs=SWAPPED, sap=[*range(7), NAN])
    assert np.isnan(drawn(scores)[2]["(n = 8)"][0]).tolist() == [False, False, True]


def test_numbers_are_written_in_the_cells_with_names_on_both_sides(make_run):
    figure, _, _ = drawn(one_dataset(make_run(), mig=range(8), dci_disentanglement=range(8, 0, -1)))
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["1.00", "-1.00", "-1.00", "1.00"]
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == ["MIG", "DCI disentanglement"]
    assert axes.get_ylim() == (1.5, -0.5)  # the first metric on top, as in a table


@pytest.mark.slow
def test_narrow_cells_have_hundredths(make_run):
    rng = np.random.default_rng(0)
    for count in (5, 20):
        scores = one_dataset(make_run(str(count)), **{f"metric_{i}": rng.uniform(size=8) for i in range(count)})
        figure, caption, panels = drawn(scores)
        (values,) = panels.values()
        texts = [text.get_text() for text in figure.axes[0].texts]
        hundredths = count == 20
        expected = [f"{100 * value:.0f}" if hundredths else f"{value:.2f}" for value in values.ravel()]
        assert texts == expected
        assert ("hundredths" in caption.text) == hundredths


def test_a_metric_that_is_better_when_low_is_marked(make_run):
    scores = one_dataset(make_run(), mig=range(8), loss=range(8, 0, -1))
    figure, caption, _ = drawn(scores, metrics=["mig", "loss"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["MIG", "loss ↓"]
    assert "↓: lower is better." in caption.text


# ---- data sets


def test_each_data_set_has_a_panel_since_pooling_confounds(make_run):
    """In each data set the two metrics disagree fully; pooled they would agree, for one data set is easy (Simpson)."""
    maker = make_run()
    for dataset, base in (("xysquares", 0.0), ("xy_object", 20.0)):
        for seed in range(8):
            row = {"step": 1, "mig": base + seed, "sap": base - seed}
            quick_trial(maker, [row], dataset__name=dataset, seed=seed)
    scores = scores_of(maker)
    pooled = scores.results.trials[["mig", "sap"]].corr(method="spearman").iloc[0, 1]
    assert pooled > 0.4
    _, caption, panels = drawn(scores)
    assert list(panels) == ["xy_object (n = 8)", "xysquares (n = 8)"]
    assert [values[0, 1] for values in panels.values()] == pytest.approx([-1, -1])
    assert "Each data set is shown separately" in caption.text


def test_data_sets_with_few_trials_are_left_out_and_it_is_reported(make_run):
    maker = make_run()
    for dataset, seeds in (("xysquares", 7), ("xy_object", 8)):
        for seed in range(seeds):
            quick_trial(maker, [{"step": 1, "mig": seed, "sap": seed**2}], dataset__name=dataset, seed=seed)
    _, caption, panels = drawn(scores_of(maker))
    assert list(panels) == ["xy_object (n = 8)"]
    assert "Data sets with fewer than 8 trials are left out: 1." in caption.text
    assert "Each data set is shown separately" in caption.text


def test_all_of_many_data_sets_are_shown_the_largest_first(make_run):
    maker = make_run()
    names = ["xysquares", "xy_object", "xy_blocks", "xy_single_square", "pinwheel", "xy_object_shaded", "sprites2d"]
    for extra, dataset in enumerate(names):
        for seed in range(8 + extra):
            quick_trial(maker, [{"step": 1, "mig": seed, "sap": -seed}], dataset__name=dataset, seed=seed)
    _, caption, panels = drawn(scores_of(maker))
    assert list(panels) == [f"{name} (n = {8 + extra})" for extra, name in enumerate(names)][::-1]
    assert "data sets the" not in caption.text


# ---- choices


def test_a_study_has_one(make_run):
    maker = make_run()
    study(maker, seeds=1)
    assert KIND.choose(scores_of(maker)) == [Correlations()]


def test_two_metrics_are_left_to_their_scatter_plot_unless_they_are_asked_for(make_run):
    scores = one_dataset(make_run(), mig=range(8), sap=SWAPPED)
    assert KIND.choose(scores) == []
    assert drawn(scores)[2]["(n = 8)"].shape == (2, 2)


def test_a_metric_that_was_scored_again_is_not_correlated_with_itself_unless_it_is_asked_for(make_run):
    ranks = [*range(8)]
    scores = one_dataset(make_run(), mig=ranks, mig_scored=ranks, sap=SWAPPED, udr_scored=ranks)
    assert [label.get_text() for label in drawn(scores)[0].axes[0].get_yticklabels()] == ["MIG", "SAP", "UDR scored"]
    labels = drawn(scores, metrics=["mig", "mig_scored"])[0].axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["MIG", "MIG scored"]


def test_named_metrics_are_drawn_in_their_order_and_absent_ones_said(make_run):
    scores = one_dataset(make_run(), mig=range(8), sap=SWAPPED, irs=SWAPPED[::-1])
    figure, caption, _ = drawn(scores, metrics=["irs", "udr", "mig"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["IRS", "MIG"]
    assert "No trial reports UDR." in caption.text


def test_of_many_metrics_the_first_are_drawn(make_run):
    rng = np.random.default_rng(0)
    metrics = {f"metric_{i}": rng.uniform(size=8) for i in range(25)}
    _, caption, panels = drawn(one_dataset(make_run(), **metrics))
    assert panels["(n = 8)"].shape == (20, 20)
    assert "The first 20 of 25 metrics are shown." in caption.text


@pytest.mark.parametrize(("metrics", "reason"), [
    ({}, "none"),
    ({"mig": range(8)}, "have mig"),
    ({"mig": range(7), "sap": range(7)}, "8 trials"),
    ({"mig": range(8), "sap": [0.5] * 8}, "different values"),
    ({"mig": range(8), "sap": [NAN] * 8}, "have mig"),
    ({"mig": range(8), "sap": [*range(7), float("inf")]}, "8 trials"),
])  # fmt: skip
def test_runs_with_nothing_to_compare_choose_nothing_and_say_why(make_run, metrics, reason):
    scores = one_dataset(make_run(), **metrics)
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match=reason):
        drawn(scores)


def test_failed_trials_are_in_no_number(make_run):
    maker = make_run()
    for seed in range(8):
        quick_trial(maker, [{"step": 1, "mig": seed, "sap": seed}], seed=seed)
    quick_trial(maker, [{"step": 1, "mig": 99, "sap": -99}], status="diverged", seed=9)
    assert drawn(scores_of(maker))[2]["(n = 8)"][0, 1] == pytest.approx(1)
