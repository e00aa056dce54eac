import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from disentune.report import canvas
from disentune.report.scores import RunScores
from disentune.report.violins import KIND, density
from disentune.results.tables import read
from disentune.spec.figures import Violins
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
    """Dots of each group, from left to right of where they are first drawn."""
    return [line for line in axes.lines if line.get_marker() == "o"]


def shapes(axes):
    return [one.get_paths()[0].vertices for one in axes.collections if isinstance(one, PolyCollection)]


def level_lines(axes):
    """(from, to, height) of each horizontal line."""
    found = [one.get_segments()[0] for one in axes.collections if isinstance(one, LineCollection)]
    return [(a[0], b[0], a[1]) for a, b in found]


@pytest.fixture
def scores(scores_of_study):
    """One arm: betas and latents are fully crossed with data sets and frameworks."""
    return scores_of_study().only("arm == 'plain'")


HALVES = Violins(x="dataset.name", split="framework.name")
EIGHT = [0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.6, 0.7]


@pytest.fixture
def run_of(make_run):
    """Scores of one arm for each list of values."""

    def make(arms, **changes):
        maker = make_run()
        for arm, values in arms.items():
            for seed, value in enumerate(values):
                quick_trial(maker, last(value), arm, seed=seed, model__latents=2 + list(arms).index(arm), **changes)
        return RunScores(read(maker.run), MIG)

    return make


def test_the_density_is_a_sum_of_gaussians_of_scotts_width_as_a_share_of_its_peak():
    numbers = np.random.default_rng(0).gamma(2.0, 0.1, 20)
    heights, share = density(numbers)
    width = np.std(numbers, ddof=1) * len(numbers) ** (-1 / 5)
    naive = [sum(np.exp(-0.5 * ((at - number) / width) ** 2) for number in numbers) for at in heights]
    assert share == pytest.approx(np.array(naive) / max(naive))
    assert (heights[0], heights[-1]) == (numbers.min(), numbers.max())  # cut: nothing below the smallest


@pytest.mark.parametrize("numbers", [[0.1, 0.2], [0.5] * 9, [0.0] * 9, [1.0, 1 + 1e-12, 1 - 1e-12], []])
def test_few_or_equal_numbers_have_no_density(numbers):
    assert density(np.array(numbers)) is None


@pytest.mark.parametrize("scale", [1e-200, 1e200, -3.0])
def test_the_shape_does_not_depend_on_the_unit(scale):
    numbers = np.array([0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.6, 0.7])
    expected = density(numbers)[1]
    assert density(scale * numbers)[1] == pytest.approx(expected[::-1] if scale < 0 else expected)


def test_data_sets_are_places_and_frameworks_are_halves(scores):
    axes, caption = drawn(scores, HALVES)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["xy_object", "xysquares"]
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["ada_gvae", "beta_vae"]
    assert caption.title == "MIG by dataset.name and framework.name"
    assert axes.get_xlabel() == "dataset.name"
    assert axes.get_ylabel() == "MIG (higher is better)"
    for vertices, place, side in zip(shapes(axes), (0, 0, 1, 1), (-1, 1, -1, 1), strict=True):
        aside = side * (vertices[:, 0] - place)
        assert aside.min() == pytest.approx(0, abs=1e-12)  # rounding
        assert aside.max() == pytest.approx(0.4)


def test_dots_quartiles_and_ends_are_those_of_the_rows(scores):
    axes, _ = drawn(scores, HALVES)
    frame = scores.scored("mig", ["dataset.name", "framework.name"])
    groups = [group["value"] for _, group in frame.groupby(["dataset.name", "framework.name"])]
    lines = level_lines(axes)
    for i, values in enumerate(groups):
        side = 1 if i % 2 else -1
        assert sorted(dots(axes)[i].get_ydata()) == pytest.approx(sorted(values))
        assert (side * (dots(axes)[i].get_xdata() - i // 2) > 0).all()
        heights = shapes(axes)[i][:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((values.min(), values.max()))
        found = lines[3 * i : 3 * i + 3]
        assert [line[2] for line in found] == pytest.approx(values.quantile([0.25, 0.5, 0.75]).tolist())
        centre, edge = (0, 1) if side == 1 else (1, 0)
        assert [line[centre] for line in found] == pytest.approx([i // 2] * 3)
        assert all(0.05 < side * (line[edge] - i // 2) <= 0.4 for line in found)


def test_quartile_lines_end_at_the_outline(run_of):
    values = EIGHT
    axes, _ = drawn(run_of({"all": values}), Violins())
    heights, share = density(np.array(values))
    for left, right, height in level_lines(axes):
        assert right == pytest.approx(-left)
        assert right == pytest.approx(0.45 * 0.8 * np.interp(height, heights, share))


def test_the_number_of_trials_is_written_below_each_half(make_run):
    maker = make_run()
    for seed in range(7):
        quick_trial(maker, last(0.1 * seed), framework__name="ada_gvae" if seed < 3 else "beta_vae", seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Violins(x="arm", split="framework.name"))
    assert [(text.get_position()[0], text.get_text()) for text in axes.texts[:-1]] == [(-0.2, "3"), (0.2, "4")]


def test_fewer_than_eight_trials_are_dots_with_their_mean(run_of):
    axes, caption = drawn(run_of({"a": [0.1, 0.4], "b": EIGHT, "c": [0.1, 0.2, 0.6]}), Violins())
    assert [len(line.get_ydata()) for line in dots(axes)] == [2, 8, 3]
    assert len(shapes(axes)) == 1
    means = {round((left + right) / 2): height for left, right, height in level_lines(axes) if right - left > 0.7}
    assert means[0] == pytest.approx(0.25)
    assert means[2] == pytest.approx(0.3)
    assert "Lines are means of groups with fewer than 8 trials." in caption.text


def test_more_than_two_values_of_split_are_whole_violins_side_by_side(make_run):
    maker = make_run()
    for framework in ("ada_gvae", "ada_ml_vae", "beta_vae"):
        for seed in range(8):
            quick_trial(maker, last(0.1 * seed), framework__name=framework, seed=seed)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Violins(x="arm", split="framework.name"))
    middles = [(vertices[:, 0].min() + vertices[:, 0].max()) / 2 for vertices in shapes(axes)]
    assert middles == pytest.approx([-0.8 / 3, 0, 0.8 / 3])


def test_failed_trials_are_in_no_violin_and_the_caption_says_so(run_of, make_run):
    scores = run_of({"a": [0.1, 0.2, 0.3]})
    quick_trial(make_run(), last(0.9), "a", status="failed", seed=9)
    axes, caption = drawn(RunScores(read(scores.results.run), MIG), Violins())
    assert sorted(dots(axes)[0].get_ydata()) == pytest.approx([0.1, 0.2, 0.3])
    assert "n = 3 of 4" in caption.text
    assert "Lines are means" in caption.text


def test_names_of_any_kind_are_shown_as_they_are(run_of):
    names = ["$x_1$", "<script>alert(1)</script>", "ä β with spaces", "_hidden", "long " * 30]
    scores = run_of({name: [0.1, 0.2, 0.4] for name in names})
    axes, _ = drawn(scores, Violins(x="arm"))
    labels = {tick.get_text() for tick in axes.get_xticklabels()}
    assert set(names[:4]) < labels
    assert max(map(len, labels)) <= 28
    side_by_side, _ = drawn(scores, Violins(x="seed", split="arm"))
    for figure in (axes.figure, side_by_side.figure):
        assert canvas.png(figure).startswith(b"\x89PNG")
        assert canvas.svg(figure).startswith("<svg")


def test_hundreds_of_values_are_cut_and_the_caption_says_so(run_of):
    arms = {f"arm{i:03}": [0.1, 0.2, 0.4][: 3 if i >= 90 else 1] for i in range(110)}
    axes, caption = drawn(run_of(arms), Violins())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"arm{i:03}" for i in range(90, 102)]
    assert "The 12 of 110 values of arm with the most trials are shown." in caption.text


def test_another_metric_is_drawn_where_the_figure_names_it(scores):
    axes, caption = drawn(scores, Violins(metric="dci_disentanglement", x="dataset.name", split="framework.name"))
    assert re.match("DCI disentanglement by dataset.name", caption.title)
    values = pd.concat([pd.Series(line.get_ydata()) for line in dots(axes)])
    assert sorted(values) == pytest.approx(sorted(scores.scored("dci_disentanglement")["value"]))


def test_chosen_where_replicates_are_eight(make_run):
    maker = make_run()
    for arm, latents in (("a", 2), ("b", 3)):
        for framework in ("ada_gvae", "beta_vae"):
            for seed in range(8):
                quick_trial(maker, last(0.1 * seed), arm, model__latents=latents, framework__name=framework, seed=seed)
    scores = RunScores(read(maker.run), MIG)
    assert KIND.choose(scores) == [Violins(x="arm")]
    assert KIND.choose(scores.only("seed < 7")) == []
    axes, caption = drawn(scores, Violins(x="arm"))
    assert caption.title == "MIG by arm and framework.name"
    assert len(shapes(axes)) == 4
    assert "Trials of one group differ only by seed." in caption.text


def test_a_split_over_a_full_crossing_says_over_what_it_averages(scores):
    _, caption = drawn(scores, HALVES)
    assert "averages over latents, beta and seed: a full crossing" in caption.text
