import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch

from disentune.report import canvas
from disentune.report.grouped import KIND
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Grouped
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")


def last(score):
    return [{"step": 1500, "mig": score}]


def drawn(scores, spec):
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, scores, spec)
        figure.draw_without_rendering()
    return figure.axes[0], caption


def dots(axes):
    return [line for line in axes.lines if line.get_marker() == "o"]


def boxes(axes):
    """(left, right, lower, upper) of each."""
    found = [patch.get_path().vertices for patch in axes.patches if isinstance(patch, PathPatch)]
    return [(v[:, 0].min(), v[:, 0].max(), v[:, 1].min(), v[:, 1].max()) for v in found]


def lines_inside(axes, left, right):
    """Heights of the lines of a box: whiskers, caps, median."""
    inside = [line for line in axes.lines if line.get_marker() != "o" and left <= np.mean(line.get_xdata()) <= right]
    return np.concatenate([line.get_ydata() for line in inside])


@pytest.fixture
def scores(scores_of_study):
    """One data set: betas and latents are fully crossed with frameworks, inside each arm."""
    return scores_of_study().only("dataset.name == 'xysquares'")


BY_LOSS = Grouped(x="framework.name", by="recon.name")


def test_boxes_are_quartiles_and_whiskers_reach_every_trial(scores):
    axes, caption = drawn(scores, BY_LOSS)
    frame = scores.scored("mig", ["framework.name", "recon.name"])
    groups = [group["value"] for _, group in frame.groupby(["framework.name", "recon.name"])]
    assert len(boxes(axes)) == len(groups) == 4
    for i, values in enumerate(groups):
        left, right, lower, upper = boxes(axes)[i]
        assert (lower, upper) == pytest.approx((values.quantile(0.25), values.quantile(0.75)))
        assert (left + right) / 2 == pytest.approx(i // 2 + (0.2 if i % 2 else -0.2))
        heights = lines_inside(axes, left, right)
        assert (heights.min(), heights.max()) == pytest.approx((values.min(), values.max()))
        assert np.isclose(heights, values.median()).sum() == 2
        assert sorted(dots(axes)[i].get_ydata()) == pytest.approx(sorted(values))
        assert left < dots(axes)[i].get_xdata().min() < dots(axes)[i].get_xdata().max() < right
    assert "smallest and the largest" in caption.text


def test_whiskers_reach_a_trial_far_from_the_others(make_run):
    maker = make_run()
    for seed, value in enumerate([0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.9]):
        quick_trial(maker, last(value), seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert lines_inside(axes, -1, 1).max() == 0.9


def test_frameworks_are_places_and_losses_stand_side_by_side(scores):
    axes, caption = drawn(scores, BY_LOSS)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["ada_gvae", "beta_vae"]
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["mse", "overlap"]
    assert [text.get_text() for text in axes.texts] == ["24"] * 4 + ["n"]
    assert caption.title == "MIG by framework.name and recon.name"
    assert axes.get_xlabel() == "framework.name"
    assert axes.get_ylabel() == "MIG (higher is better)"
    assert "averages over latents, beta and seed" in caption.text


def test_fewer_than_eight_trials_are_dots_with_a_line_at_their_mean(make_run):
    maker = make_run()
    for arm, values in (("a", [0.1, 0.2]), ("b", [0.1 * i for i in range(8)])):
        for seed, value in enumerate(values):
            quick_trial(maker, last(value), arm, seed=seed, model__latents=2 + len(values))
    axes, caption = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert [len(line.get_ydata()) for line in dots(axes)] == [2, 8]
    assert [round((left + right) / 2) for left, right, *_ in boxes(axes)] == [1]
    (line,) = [one.get_segments()[0] for one in axes.collections if isinstance(one, LineCollection)]
    assert line[:, 1] == pytest.approx([0.15, 0.15])
    assert "Lines are means of groups with fewer than 8 trials." in caption.text


def test_one_trial_is_a_dot_and_equal_ones_a_flat_box(make_run):
    maker = make_run()
    quick_trial(maker, last(0.3))
    scores = RunScores(read(maker.run), MIG)
    axes, caption = drawn(scores, BY_LOSS)
    assert [line.get_ydata().tolist() for line in dots(axes)] == [[0.3]]
    assert "Boxes" not in caption.text
    assert KIND.choose(scores) == []
    for seed in range(1, 8):
        quick_trial(maker, last(0.3), seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert boxes(axes)[0][2:] == (0.3, 0.3)


def test_numbers_and_truth_values_can_be_groups(scores, make_run):
    axes, _ = drawn(scores, Grouped(x="framework.beta", by="model.latents"))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.0001", "0.001", "0.01", "0.1"]
    maker = make_run("truth")
    for seed in range(6):
        quick_trial(maker, last(0.1 * seed), training__compile=bool(seed % 2), seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Grouped(x="training.compile"))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["false", "true"]
    assert [sorted(line.get_ydata()) for line in dots(axes)] == [pytest.approx([0, 0.2, 0.4]),
                                                                 pytest.approx([0.1, 0.3, 0.5])]  # fmt: skip


def test_an_unknown_key_is_nothing_to_draw(scores):
    with pytest.raises(NothingToDraw, match=r"no trial has the key recon\.nme"):
        drawn(scores, Grouped(by="recon.nme"))


def test_a_wide_figure_shows_the_most_populated_groups(make_run):
    maker = make_run()
    for i in range(30):
        for seed in range(9):
            quick_trial(maker, last(0.01 * seed), f"arm {i:02}", model__latents=2 + i, seed=seed)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Grouped(x="arm", by="seed"))
    assert len(dots(axes)) == 42
    assert axes.figure.get_size_inches()[0] == pytest.approx(1 + 0.28 * 42)
    assert "The 6 of 30 values of arm with" in caption.text
    assert "The 7 of 9 values of seed with" in caption.text


def test_arms_are_never_pooled_also_where_the_sweep_names_other_keys(make_run):
    """The quick start: at spacing 4 there are an adversarial and a rescued arm, which a mean would mix."""
    maker = make_run()
    loss = {"recon__name": "overlap", "recon__radius": 3, "recon__alpha": 2.0}
    for arm, spacing, change, score in (("near", 1, {}, 0.7), ("far", 4, {}, 0.02), ("rescued", 4, loss, 0.44)):
        for seed in range(3):
            quick_trial(maker, last(score + 0.01 * seed), arm, dataset__spacing=spacing, seed=seed, **change)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Grouped(x="dataset.spacing"))
    assert caption.title == "MIG by spacing and arm"
    lines = [one.get_segments()[0] for one in axes.collections if isinstance(one, LineCollection)]
    assert sorted(line[0, 1] for line in lines) == pytest.approx([0.03, 0.45, 0.71])


def test_nothing_is_chosen_because_the_summary_shows_every_group(scores):
    assert KIND.choose(scores) == []
