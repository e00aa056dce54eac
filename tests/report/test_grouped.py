import numpy as np
import pytest
from matplotlib.patches import PathPatch

from disentune.report import canvas, violins
from disentune.report.grouped import KIND
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Grouped, Violins
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")
OVERLAP = {"recon__name": "overlap", "recon__radius": 3, "recon__alpha": 2.0}


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
    return scores_of_study()


def test_boxes_are_quartiles_and_whiskers_reach_every_trial(scores):
    axes, caption = drawn(scores, Grouped())
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
    for seed, value in enumerate([0.1, 0.11, 0.12, 0.13, 0.9]):
        quick_trial(maker, last(value), seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert lines_inside(axes, -1, 1).max() == 0.9


def test_frameworks_are_places_and_losses_stand_side_by_side(scores):
    axes, caption = drawn(scores, Grouped())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["ada_gvae", "beta_vae"]
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["mse", "overlap"]
    assert [text.get_text() for text in axes.texts] == ["48"] * 4 + ["n"]
    assert caption.title == "MIG by framework and recon"
    assert axes.get_xlabel() == "framework"
    assert axes.get_ylabel() == "MIG (higher is better)"
    assert "differ in dataset, latents, beta and seed" in caption.text


def test_fewer_than_three_trials_are_dots_only(make_run):
    maker = make_run()
    for seed, (arm, value) in enumerate([("a", 0.1), ("a", 0.2), ("b", 0.1), ("b", 0.2), ("b", 0.4)]):
        quick_trial(maker, last(value), arm, seed=seed)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert [len(line.get_ydata()) for line in dots(axes)] == [2, 3]
    assert [round((left + right) / 2) for left, right, *_ in boxes(axes)] == [1]
    assert "Fewer than three trials are dots only." in caption.text


def test_one_trial_is_a_dot_and_equal_ones_a_flat_box(make_run):
    maker = make_run()
    quick_trial(maker, last(0.3))
    scores = RunScores(read(maker.run), MIG)
    axes, caption = drawn(scores, Grouped())
    assert [line.get_ydata().tolist() for line in dots(axes)] == [[0.3]]
    assert "Boxes" not in caption.text
    assert KIND.choose(scores) == []
    for seed in (1, 2):
        quick_trial(maker, last(0.3), seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Grouped())
    assert boxes(axes)[0][2:] == (0.3, 0.3)


def test_chosen_by_loss_unless_the_violins_show_the_same_groups(scores, make_run):
    assert KIND.choose(scores) == [Grouped(x="framework.name", by="recon.name")]
    maker = make_run("arms")
    for arm, loss in {"plain": {}, "rescued": OVERLAP}.items():
        for framework in ("ada_gvae", "beta_vae"):
            for seed in range(3):
                quick_trial(maker, last(0.1 * seed), arm, framework__name=framework, seed=seed, **loss)
    arms = RunScores(read(maker.run), MIG)
    assert violins.KIND.choose(arms) == [Violins(x="arm", split="framework.name")]
    assert KIND.choose(arms) == []  # an arm is a loss there
    assert KIND.choose(arms.only("seed < 2")) == [Grouped(x="framework.name", by="recon.name")]  # too few for violins


def test_not_chosen_when_one_name_varies_or_one_decides_the_other(make_run):
    maker = make_run()
    for seed in range(4):
        framework = ("ada_gvae", "beta_vae")[seed % 2]
        quick_trial(maker, last(0.1), framework, framework__name=framework, seed=seed)
    assert KIND.choose(RunScores(read(maker.run), MIG)) == []


def test_another_name_stands_beside_where_losses_do_not_vary(scores):
    plain = scores.only("recon.name == 'mse'")
    _, caption = drawn(plain, Grouped())
    assert caption.title == "MIG by framework and dataset"
    _, caption = drawn(plain, Grouped(x="dataset.name"))
    assert caption.title == "MIG by dataset and framework"
    _, caption = drawn(scores, Grouped(by="framework.name"))
    assert caption.title == "MIG by arm and framework"


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
    assert "Of 30 values of arm, the 6 with" in caption.text
    assert "Of 9 values of seed, the 7 with" in caption.text
