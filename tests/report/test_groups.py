import numpy as np
import pandas as pd
import pytest

from disentune.report import canvas
from disentune.report.design import Layout
from disentune.report.groups import (
    Shown,
    along,
    back,
    budgets,
    combined,
    counted,
    draw_dots,
    grouped,
    label,
    legend,
    mixture,
    name_axis,
    number_axis,
    numbers_of,
    shown,
    spread,
    table,
    whole,
    widen,
)
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")


def last(score):
    return [{"step": 1500, "mig": score}]


@pytest.fixture
def scores(scores_of_study):
    return scores_of_study(seeds=2, betas=(0.001, 0.1))


def axes_of(width=7.0):
    return canvas.figure(width).subplots()


def tick_labels(axes):
    return [tick.get_text() for tick in axes.get_xticklabels()]


# ---- keys


def test_a_key_that_no_trial_has_is_named_with_the_nearest_one(scores):
    with pytest.raises(NothingToDraw, match=r"no trial has the key datset\.name\. Did you mean 'dataset\.name'\?"):
        table(scores, None, ["arm", None, "datset.name"])
    assert list(table(scores, None, ["arm", None, "seed"]).columns) == ["trial_id", "arm", "seed", "cut", "value"]


def test_that_nothing_was_scored_comes_before_an_unknown_key(make_run):
    with pytest.raises(NothingToDraw, match="no trial has reported mig yet"):
        table(RunScores(read(make_run().run), MIG), None, ["dataset.name"])


def test_missing_values_are_no_number():
    column = pd.Series([1, None, 3], dtype="Int64")
    assert numbers_of(column).tolist() == pytest.approx([1, np.nan, 3], nan_ok=True)


def test_truth_values_words_and_infinity_are_not_numbers():
    assert numbers_of(pd.Series([True, False])).isna().all()
    found = numbers_of(pd.Series(["a", "2", np.inf, True, 4.5], dtype=object))
    assert found.tolist() == pytest.approx([np.nan, 2, np.nan, np.nan, 4.5], nan_ok=True)


# ---- what is shown


def test_the_most_populated_values_are_shown_in_their_order(scores):
    column = pd.Series(["d", "d", "c", "b", "b", "b", "a"])
    found = shown(scores, ["dataset.name"], column, 2)
    assert found.values == ["b", "d"]
    assert found.note == "The 2 of 4 values of dataset.name with the most trials are shown."
    assert shown(scores, ["dataset.name"], column, 3).values == ["a", "b", "d"]  # of equals the first in order
    assert shown(scores, ["dataset.name"], column, 4).note == ""
    assert shown(scores, [], column, 4).values == [""]


def test_labels_are_short_in_one_line_and_distinct():
    long = "the same beginning and the same end of it all"
    assert label(long) == "the same begi… end of it all"
    assert len(label(long)) == len("x" * 28) == len(label("x" * 28))
    labels = Shown(("arm",), ["two\nlines\tand  more", "", True, 0.001, 3, "$x$"], 6).labels
    assert labels == ["two lines and more", '""', "true", "0.001", "3", "$x$"]
    assert Shown(("arm",), ["a b", "a\nb", "a\tb"], 3).labels == ["a b", "a b (2)", "a b (3)"]


def test_groups_have_the_values_of_their_trials(scores):
    groups = grouped(scores, None, Layout("dataset.name", ("framework.name",)))
    frame = scores.scored(None, ["dataset.name", "framework.name"])
    assert (groups.places.values, groups.series.values) == (["xy_object", "xysquares"], ["ada_gvae", "beta_vae"])
    for place, series, trials in groups:
        dataset, framework = groups.places.values[place], groups.series.values[series]
        expected = [row.value for row in frame.set_axis(["id", "dataset", "framework", "value"], axis=1).itertuples()
                    if (row.dataset, row.framework) == (dataset, framework)]  # fmt: skip
        assert trials["value"].tolist() == expected
    assert groups.sizes == [16] * 4


def test_groups_that_stand_side_by_side_share_a_place_and_do_not_meet(scores):
    groups = grouped(scores, None, Layout("dataset.name", ("framework.name",)))
    assert [groups.centre(1, series) for series in (0, 1)] == pytest.approx([0.8, 1.2])
    assert groups.width == pytest.approx(0.4)
    assert grouped(scores, None, Layout("arm")).centre(1, 0) == 1


def test_many_values_are_cut_so_that_groups_stay_legible(make_run):
    maker = make_run()
    for i in range(20):
        for seed in range(10):
            quick_trial(maker, last(0.1), arm=f"arm{i:02}", seed=seed, model__latents=1 + i)
    groups = grouped(RunScores(read(maker.run), MIG), None, Layout("arm", ("seed",)))
    assert len(groups.series.values) == 7
    assert len(groups.places.values) == 6  # 6 x 7 <= 48
    assert len(groups.trials) == 42


def test_numbers_stand_before_what_has_none(make_run):
    maker = make_run()
    for i in range(4):
        changes = {"recon__name": "overlap", "recon__radius": 3 + i, "recon__alpha": 2.0} if i < 2 else {}
        quick_trial(maker, last(0.1 * i), seed=i, **changes)
    groups = grouped(RunScores(read(maker.run), MIG), None, Layout("recon.radius"))
    assert groups.places.labels == ["3", "4", "(none)"]
    assert [len(trials) for _, _, trials in groups] == [1, 1, 2]


# ---- axes


def test_names_are_tilted_only_where_they_would_meet(scores):
    groups = grouped(scores, None, Layout("dataset.name"))
    for width, rotation in ((7.0, 0), (2.0, 30)):
        axes = axes_of(width)
        name_axis(axes, groups, [(0, 16), (1, 16)], width - 1)
        assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {rotation}
        assert tick_labels(axes) == ["xy_object", "xysquares"]
        # "xysquares" at 30 degrees is half as high as it is long
        assert axes.figure.get_size_inches()[1] == pytest.approx(4.2 + (0.5 * 9 * 0.085 if rotation else 0))


def test_counts_stand_below_their_positions(scores):
    axes = axes_of()
    name_axis(axes, grouped(scores, None, Layout("dataset.name")), [(-0.2, 5), (1.2, 7)], 6)
    assert [(text.get_position()[0], text.get_text()) for text in axes.texts] == [(-0.2, "5"), (1.2, "7"), (-0.01, "n")]


def test_many_groups_get_a_wider_figure(scores):
    figure = canvas.figure()
    widen(figure, grouped(scores, None, Layout("dataset.name")))
    assert figure.get_size_inches().tolist() == [7.0, 4.2]
    groups = grouped(scores, None, Layout("dataset.name"))
    many = type(groups)(groups.trials, Shown(("arm",), list(range(12)), 12), Shown(("seed",), list(range(4)), 4))
    widen(figure, many)
    assert figure.get_size_inches().tolist() == pytest.approx([1 + 0.28 * 48, 4.2])


@pytest.mark.parametrize(
    ("places", "scale"),
    [([1, 2, 3], "linear"), ([1, 4, 16], "log"),
     ([0.001, 1], "log"), ([0, 0.001, 1], "symlog"), ([0, 1], "linear"), ([-1, 0, 9], "linear"),
     ([5], "linear"), ([0], "linear")],
)  # fmt: skip
def test_numbers_over_magnitudes_stand_on_a_logarithmic_axis_also_with_0(places, scale):
    axes = axes_of()
    number_axis(axes, places, 6)
    assert axes.get_xscale() == scale
    assert tick_labels(axes) == [f"{place:g}" for place in places]
    assert back(axes, along(axes, np.array(places, float))) == pytest.approx(places)


def test_labels_of_close_numbers_are_left_out():
    axes = axes_of()
    number_axis(axes, [1, 1.01, 1.02, 2, 3], 6)
    assert tick_labels(axes) == ["1", "", "", "2", "3"]


def test_a_logarithmic_axis_of_many_numbers_is_written_without_formulas():
    figure = canvas.figure()
    with canvas.style():
        axes = figure.subplots()
        number_axis(axes, np.logspace(-4, 1, 30), 6)
        axes.plot([1e-4, 10], [0, 1])
        figure.canvas.draw()
        assert {"0.0001", "0.01", "10"} <= set(tick_labels(axes))


def test_dots_are_spread_evenly_and_the_same_each_time():
    assert spread(1).tolist() == [0]
    assert spread(0).tolist() == []
    places = np.sort(spread(100))
    assert places[0] >= -0.5
    assert places[-1] < 0.5
    # Weyl's sequence of the golden ratio: gaps of 100 points are at most 2.7 times the even ones
    assert np.diff(places).max() < 0.027


def test_the_legend_has_every_series_also_hidden_names_and_their_counts():
    figure = canvas.figure()
    legend(figure, Shown(("arm",), ["_a", "b"], 2), pd.Series(["b", "_a", "b"]))
    (found,) = figure.legends
    assert [text.get_text() for text in found.get_texts()] == [" _a (n = 1)", "b (n = 2)"]
    assert found.get_title().get_text() == "arm"
    empty = canvas.figure()
    legend(empty, Shown((), [""], 1))
    assert empty.legends == []


def test_a_legend_of_several_rows_takes_no_height_from_the_axes():
    figure = canvas.figure()
    legend(figure, Shown(("arm",), [f"{i} {'x' * 40}" for i in range(7)], 7))
    assert figure.get_size_inches()[1] == pytest.approx(4.2 + 3 * 0.18)  # two beside each other: four rows


# ---- words


def test_a_caption_says_how_many_trials_are_drawn_and_at_which_step(scores):
    frame = scores.scored(None)
    assert counted(scores, frame) == "Each dot is a trial at its last step (n = 64)."
    assert "(n = 10 of 64; the others" in counted(scores, frame[:10])
    best = RunScores(scores.results, Objective(metric="mig", mode="max", at="best"))
    assert "at its best step" in counted(best, frame)


def test_a_caption_says_what_trials_of_a_group_differ_in():
    frame = pd.DataFrame({"arm": ["a", "a", "b"], "framework.beta": [1, 1, 2]})
    assert mixture(Layout("arm"), frame) == "Trials of one group differ only by seed."
    assert mixture(Layout("arm"), frame[1:]) == ""
    assert "averages over latents, beta and seed: a full crossing" in mixture(
        Layout("arm", averaged=("model.latents", "framework.beta")), frame
    )
    assert "also differ in latents, so no mean" in mixture(Layout("arm", mixed=("model.latents",)), frame)


def test_trials_that_had_less_training_are_hollow_and_in_no_mean():
    trials = pd.DataFrame({"value": [0.1, 0.2, 0.9], "cut": [False, False, True]})
    axes = axes_of()
    draw_dots(axes, np.arange(3.0), trials, "red")
    full, hollow = axes.lines
    assert (full.get_ydata().tolist(), hollow.get_ydata().tolist()) == ([0.1, 0.2], [0.9])
    assert (full.get_markerfacecolor(), hollow.get_markerfacecolor()) == ("red", "none")
    assert whole(trials)["value"].tolist() == [0.1, 0.2]
    assert whole(trials[2:])["value"].tolist() == [0.9]  # where none ended, all count
    assert "1 trial that was stopped early or is still training; means exclude them if others of" in budgets(trials)
    assert budgets(trials, has_means=False).endswith("1 trial that was stopped early or is still training.")
    assert budgets(trials[:2]) == ""


def test_several_keys_are_one_series_with_numbers_told_by_their_key(scores):
    frame = pd.DataFrame({"framework.name": ["b", "a", "a"], "framework.beta": [0.1, 10.0, 2.0]})
    column = combined(frame, ["framework.name", "framework.beta"])
    found = shown(scores, ["framework.name", "framework.beta"], column, 7)
    assert found.labels == ["a · beta 2", "a · beta 10", "b · beta 0.1"]
    assert found.title == "framework.name · beta"


def test_geometric_grids_are_logarithmic():
    assert canvas.wants_log([1, 4, 16])
    assert canvas.wants_log([1e-4, 1e-1])
    assert not canvas.wants_log([1, 2, 3])
    assert not canvas.wants_log([1, 4])
    assert not canvas.wants_log([10, 11, 12.1])  # grows by a tenth: a line says as much
    assert not canvas.wants_log([-1, 1, 100])


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (2e-4, 7e-3, 8, [2e-4, 5e-4, 1e-3, 2e-3, 5e-3]),
        (2e-4, 7e-3, 4, [3e-4, 1e-3, 3e-3]),
        (1e-3, 1, 12, [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]),
        (1e-3, 1, 4, [1e-3, 0.01, 0.1, 1]),
        (1e-8, 1, 4, [1e-8, 1e-5, 1e-2]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round_and_at_most_as_many_as_fit(low, high, most, expected):
    assert canvas.log_ticks(low, high, most) == pytest.approx(expected)


def test_drawn_numbers_over_less_than_two_decades_have_several_labels():
    figure = canvas.figure()
    axes = figure.subplots()
    number_axis(axes, np.geomspace(1.5e-4, 7e-3, 30), 6.0)
    figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0002", "0.0005", "0.001", "0.002", "0.005"]
    assert [label.get_text() for label in axes.get_xticklabels(minor=True)] == []
