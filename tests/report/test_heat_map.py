import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from disentune.report import canvas
from disentune.report.heat_map import KIND
from disentune.report.places import brief, in_words, lightness, places
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import HeatMap
from disentune.spec.settings import Objective
from run_examples import quick_trial


@pytest.fixture
def scores(scores_of_study):
    return scores_of_study(seeds=2)


@pytest.fixture
def part(scores):
    """One arm, framework and number of latents."""
    return scores.only("arm == 'plain' and framework.name == 'ada_gvae' and model.latents == 9")


def scores_of(maker, mode="max"):
    return RunScores(read(maker.run), Objective(metric="mig", mode=mode))


def trials(maker, changes, values):
    for change, value in zip(changes, values, strict=True):
        quick_trial(maker, [{"step": 1, "mig": value}], **change)
    return scores_of(maker)


def drawn(scores, **asked):
    """The figure, its caption, and what is in each cell (rows upwards)."""
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, HeatMap(**asked))
        figure.draw_without_rendering()
    mesh = next(part for part in figure.axes[0].collections if isinstance(part, QuadMesh))
    return figure, caption, np.ma.filled(mesh.get_array(), np.nan)


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


# ---- cells


def test_a_cell_is_the_mean_of_its_trials(part):
    scores = part
    figure, _, cells = drawn(scores, x="framework.beta", y="dataset.name")
    axes = figure.axes[0]
    assert ticks(axes.xaxis) == ["0.0001", "0.001", "0.01", "0.1"]
    assert ticks(axes.yaxis) == ["xy_object", "xysquares"]
    assert axes.yaxis_inverted()  # names are read from the top, numbers grow upwards
    rows = scores.results.trials
    for row, dataset in enumerate(["xy_object", "xysquares"]):
        for column, beta in enumerate([1e-4, 1e-3, 1e-2, 1e-1]):
            inside = rows[(rows["dataset.name"] == dataset) & (rows["framework.beta"] == beta)]
            assert cells[row, column] == pytest.approx(inside["mig"].mean())


def test_a_cell_with_several_trials_tells_their_sd_and_number(make_run):
    grid = [{"framework__beta": beta, "model__latents": 9, "seed": seed} for beta in (1.0, 2.0) for seed in (0, 1)]
    figure, caption, _ = drawn(trials(make_run(), grid, [0.1, 0.3, 0.5, 0.5]), x="framework.beta", y="model.latents")
    # sd of a sample of 0.1 and 0.3: sqrt(2 * 0.1^2 / 1)
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.200\n±0.14, n 2", "0.500\n±0, n 2"]
    assert "4 trials in all" in caption.text
    assert "standard deviation" in caption.text


def test_a_cell_with_one_trial_has_no_deviation(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents} for beta in (1.0, 2.0) for latents in (3, 4)]
    figure, caption, _ = drawn(trials(make_run(), grid, [0.1, 0.2, 0.3, 0.4]))
    assert sorted(text.get_text() for text in figure.axes[0].texts) == [f"0.{i}00\nn 1" for i in range(1, 5)]
    assert "standard deviation" not in caption.text


def test_cells_without_a_trial_are_hatched_and_have_no_text(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents} for beta, latents in [(1.0, 3), (2.0, 3), (2.0, 4)]]
    figure, caption, cells = drawn(trials(make_run(), grid, [0.1, 0.2, 0.3]), x="framework.beta", y="model.latents")
    assert np.isnan(cells).tolist() == [[False, False], [True, False]]
    hatched = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    assert [patch.get_xy() for patch in hatched] == [(-0.5, 0.5)]
    assert len(figure.axes[0].texts) == 3
    assert "Hatched: no trial." in caption.text


def test_the_colour_bar_tells_the_number_and_which_direction_is_better(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents} for beta in (1.0, 2.0) for latents in (3, 4)]
    maker = make_run()
    trials(maker, grid, [0.1, 0.2, 0.3, 0.4])
    for mode, better in (("max", "higher"), ("min", "lower")):
        figure, _, _ = drawn(scores_of(maker, mode))
        assert figure.axes[1].get_ylabel() == f"mean MIG ({better} is better)"


def test_text_is_dark_on_light_cells_and_light_on_dark_ones(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents} for beta in (1.0, 2.0) for latents in (3, 4)]
    figure, _, _ = drawn(trials(make_run(), grid, [0.0, 0.1, 0.9, 1.0]))
    assert {t.get_text(): t.get_color() for t in figure.axes[0].texts if t.get_text()[:4] in ("0.00", "1.00")} == {
        "0.00\nn 1": "white",
        "1.00\nn 1": "black",
    }
    assert lightness((0, 1, 0)) > lightness((1, 0, 0)) > lightness((0, 0, 1))


# ---- keys


def test_the_two_numbers_with_most_values_are_chosen(scores):
    assert KIND.choose(scores) == []  # arms, data sets and frameworks would need 8 panels
    scores = scores.only("dataset.name == 'xysquares' and arm == 'plain'")
    assert KIND.choose(scores) == []  # 8 cells are few
    figure, caption, _ = drawn(scores)
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("beta", "latents")
    assert not figure.axes[0].yaxis_inverted()
    assert caption.title == "MIG by beta and latents, framework.name in panels"
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["ada_gvae (n = 16)", "beta_vae (n = 16)"]


@pytest.mark.parametrize(("asked", "labels"), [({"x": "dataset.name"}, ("dataset.name", "beta")),
                                               ({"y": "dataset.name"}, ("beta", "dataset.name")),
                                               ({"y": "framework.beta"}, ("latents", "beta"))])  # fmt: skip
def test_a_key_that_is_not_named_is_chosen(scores, asked, labels):
    axes = drawn(scores.only("arm == 'plain' and framework.name == 'ada_gvae'"), **asked)[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == labels


def test_parameters_that_a_plugin_fixes_are_shown_by_its_name(scores):
    assert "dataset.square_size" in scores.varying
    assert scores.design.keys == ("arm", "dataset.name", "model.latents", "framework.name", "framework.beta")
    assert scores.design.by_arm == ("recon.name",)


def test_a_parameter_that_a_plugin_has_twice_is_swept(make_run):
    points = [("beta_vae", 1.0), ("beta_vae", 2.0), ("ada_gvae", 1.0)]
    scores = trials(make_run(), [{"framework__name": name, "framework__beta": beta} for name, beta in points], range(3))
    assert scores.design.keys == ("framework.name", "framework.beta")


def test_keys_that_change_together_are_not_chosen(make_run):
    grid = [{"framework__beta": float(i), "model__latents": i + 1, "seed": seed} for i in range(3) for seed in range(2)]
    scores = trials(make_run(), grid, np.arange(6) / 10)
    assert KIND.choose(scores) == []
    asked = {"x": "framework.beta", "y": "model.latents"}
    assert np.isnan(drawn(scores, **asked)[2]).sum() == 6  # but drawn when asked for: a diagonal


def test_the_first_pair_that_is_crossed_is_chosen(make_run):
    grid = [{"framework__beta": float(i), "model__latents": i + 1, "training__batch_size": size}
            for i in range(3) for size in (8, 16, 32)]  # fmt: skip
    scores = trials(make_run(), grid, np.arange(9) / 10)
    assert "training.batch_size" in (KIND.choose(scores)[0].x, KIND.choose(scores)[0].y)


def test_the_seed_is_drawn_only_when_named(make_run):
    grid = [{"framework__beta": float(i), "seed": seed} for i in range(3) for seed in range(4)]
    scores = trials(make_run(), grid, np.arange(12) / 12)
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match="two keys"):
        drawn(scores)
    cells = drawn(scores, y="seed")[2]
    assert cells.shape == (4, 3)


@pytest.mark.parametrize(("asked", "reason"), [
    ({"x": "framework.gamma"}, "no trial has the key framework.gamma"),
    ({"x": "framework.bata"}, "Did you mean 'framework.beta'"),
    ({"x": "mig"}, "no trial has the key mig"),
    ({"x": "framework.beta", "y": "framework.beta"}, "both framework.beta"),
    ({"metric": "udr"}, "no trial has reported udr"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_reported(scores, asked, reason):
    with pytest.raises(NothingToDraw, match=reason):
        drawn(scores, **asked)


# ---- places


def test_missing_values_have_the_last_place(make_run):
    maker = make_run()
    for radius in (None, 3, 11):
        loss = {"recon__name": "overlap", "recon__radius": radius, "recon__alpha": 9.0} if radius else {}
        for beta in (1.0, 2.0):
            quick_trial(maker, [{"step": 1, "mig": 0.1 * (radius or 0)}], framework__beta=beta, **loss)
    figure, caption, cells = drawn(scores_of(maker), x="recon.radius", y="framework.beta")
    assert ticks(figure.axes[0].xaxis) == ["3", "11", "(none)"]
    assert cells[0] == pytest.approx([0.3, 1.1, 0.0])
    assert "(none): the trial has no such key." in caption.text


def test_many_numbers_are_taken_in_ranges_of_equal_counts(make_run):
    grid = [{"framework__beta": 2.0**i, "model__latents": 9 + i % 2} for i in range(40)]
    scores = trials(make_run(), grid, np.arange(40.0))
    figure, caption, cells = drawn(scores, x="framework.beta", y="model.latents")
    assert cells.shape == (2, 8)
    # five a range: the first holds 0..4, of which 0, 2, 4 have 9 latents
    assert cells[:, 0].tolist() == [2, 2]
    assert ticks(figure.axes[0].xaxis)[0] == "1 to 16"
    assert "The 40 values of beta are binned" in caption.text


def test_of_many_names_the_most_frequent_are_shown_and_it_is_reported(make_run):
    metrics = ["mig", "sap", "dci", "irs"]
    names = [[a, b] if a != b else [a] for a in metrics for b in metrics] + [["mcc"], ["mcc", "mig"]]
    grid = [{"evaluation__metrics": name, "model__latents": latents, "seed": seed}
            for i, name in enumerate(names) for latents in (8, 9) for seed in range(2 if i > 1 else 1)]  # fmt: skip
    figure, caption, cells = drawn(trials(make_run(), grid, [0.5] * len(grid)), x="model.latents",
                                   y="evaluation.metrics")  # fmt: skip
    assert cells.shape == (16, 2)
    assert "mig, sap" not in ticks(figure.axes[0].yaxis)
    assert "The 16 of 18 values of metrics with the most trials are shown." in caption.text
    assert "64 trials in all" in caption.text


def test_truths_are_places(make_run):
    grid = [{"dataset__rgb": rgb, "framework__beta": beta} for rgb in (True, False) for beta in (1.0, 2.0)]
    figure, _, cells = drawn(trials(make_run(), grid, [0.1, 0.2, 0.3, 0.4]))
    assert ticks(figure.axes[0].yaxis) == ["False", "True"]
    assert cells.tolist() == [[0.3, 0.4], [0.1, 0.2]]


def test_arms_are_places_in_the_order_of_the_file(make_run):
    maker = make_run()
    maker.sweep(["second", "first"])
    for arm in ("first", "second"):
        for beta in (1.0, 2.0):
            quick_trial(maker, [{"step": 1, "mig": beta}], arm, framework__beta=beta, seed=int(arm == "first"))
    assert ticks(drawn(scores_of(maker), x="arm", y="framework.beta")[0].axes[0].xaxis) == ["second", "first"]


def test_labels_are_short():
    assert brief("a\n $<script>") == "a $<script>"
    assert len(brief("é" * 100)) == 24
    assert (brief(0.0001), brief(529.0), brief(9), brief(True)) == ("0.0001", "529", "9", "True")


def test_keys_with_equal_short_names_are_shown_with_their_section():
    assert in_words(["model.width", "dataset.width", "framework.beta"]) == [
        "model.width",
        "dataset.width",
        "beta",
    ]


def test_every_trial_has_one_place(scores):
    found = places(scores, "framework.beta", scores.trials["framework.beta"])
    assert [found.labels[code] for code in found.codes] == [f"{beta:g}" for beta in scores.trials["framework.beta"]]


# ---- odd runs


def test_equal_scores_have_a_colour_bar(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents} for beta in (1.0, 2.0) for latents in (3, 4)]
    for name, value in (("zero", 0.0), ("one", 1.0)):
        figure, _, cells = drawn(trials(make_run(name), grid, [value] * 4))
        assert (cells == value).all()
        low, high = figure.axes[1].get_ylim()
        assert low < value < high


def test_infinite_scores_are_in_no_mean(make_run):
    grid = [{"framework__beta": 1.0, "model__latents": 3, "seed": seed} for seed in range(2)]
    grid += [{"framework__beta": 2.0, "model__latents": 4}]
    scores = trials(make_run(), grid, [0.5, float("inf"), 1.0])
    cells = drawn(scores, x="framework.beta", y="model.latents")[2]
    assert sorted(cells[np.isfinite(cells)]) == [0.5, 1.0]


# ---- what a cell may pool


def test_arms_are_panels_and_never_averaged(make_run):
    """The quick start: a cell of spacing 4 held the adversarial and the rescued arm."""
    maker = make_run()
    loss = {"recon__name": "overlap", "recon__radius": 3, "recon__alpha": 2.0}
    for arm, spacing, change, score in (("near", 1, {}, 0.7), ("far", 4, {}, 0.1), ("rescued", 4, loss, 0.5)):
        for beta in (1.0, 2.0):
            quick_trial(
                maker, [{"step": 1, "mig": score}], arm, dataset__spacing=spacing, framework__beta=beta, **change
            )
    figure, _, _ = drawn(scores_of(maker), x="dataset.spacing", y="framework.beta")
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["far (n = 2)", "near (n = 2)", "rescued (n = 2)"]
    texts = [text.get_text() for axes in panels for text in axes.texts]
    assert texts == ["0.100\nn 1"] * 2 + ["0.700\nn 1"] * 2 + ["0.500\nn 1"] * 2


def test_a_full_crossing_is_averaged_where_both_keys_are_named_and_anything_else_is_refused(make_run):
    grid = [{"framework__beta": beta, "model__latents": latents, "training__batch_size": size}
            for beta in (1.0, 2.0) for latents in (3, 4) for size in range(8, 16)]  # fmt: skip
    scores = trials(make_run(), grid, np.arange(32.0))
    _, caption, cells = drawn(scores, x="framework.beta", y="model.latents")
    assert cells.ravel().tolist() == pytest.approx([3.5, 19.5, 11.5, 27.5])  # rows are latents
    assert "Cells average over batch_size." in caption.text
    with pytest.raises(NothingToDraw, match="would average over batch_size, which are not fully crossed"):
        drawn(scores.only("seed == 0 and (framework.beta == 1 or training.batch_size > 8)"),
              x="framework.beta", y="model.latents")  # fmt: skip


def test_a_panel_of_a_number_names_its_key(make_run):
    maker = make_run()
    for spacing in (1, 2):
        for beta in (1.0, 2.0):
            for latents in (3, 6):
                changes = {"dataset__spacing": spacing, "framework__beta": beta, "model__latents": latents}
                quick_trial(maker, [{"step": 1, "mig": beta}], **changes)
    figure, _, _ = drawn(scores_of(maker), x="dataset.spacing", y="framework.beta")
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == ["latents 3 (n = 4)", "latents 6 (n = 4)"]
