"""The density of codes: one panel per setting, of its middle trial, with the numbers of all of them."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import trial_config
from disentune.learn.pictures import Pictures, to_bytes
from disentune.learn.plane import SIDE, aggregate_density, empty
from disentune.report import canvas
from disentune.report.density import KIND
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Density
from disentune.spec.settings import Objective

GAP = Objective(metric="prior_divergence", mode="min")
USUAL = {"model__latents": 2, "framework__name": "decomposition_vae"}


def plane(seed, peak=1.0):
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1, 1, (6, 2)).astype(np.float32)
    prior = np.zeros((SIDE, SIDE), np.float16)
    prior[100:200, 100:200] = peak
    return replace(empty(), labels=np.arange(6), means=means, logvars=np.full_like(means, -3), prior=prior)


def pictures(shown):
    nothing = np.empty((0, 1, 1, 2), np.uint8)
    return Pictures(
        originals=nothing, reconstructions=nothing, traversals=np.empty((0, 8, 1, 1, 2), np.uint8),
        latents=np.arange(2), kl=np.ones(2, np.float32), spans=np.zeros((2, 2), np.float32), distances={}, plane=shown,
    )  # fmt: skip


def add(maker, seed, gap, shown=None, **changes):
    row = {"step": 600, "prior_divergence": gap, "prior_log_density": -gap - 1}
    trial_id = maker.trial([row], seed=seed, **USUAL, **changes)
    if shown is not None:
        maker.run.trial(trial_id).write_pictures(600, to_bytes(pictures(shown)))


@pytest.fixture
def grid(make_run):
    """2 alphas x 3 betas x 3 seeds; the middle score of every cell is that of seed 2."""
    maker = make_run()
    for i, alpha in enumerate((0.0, 5.0)):
        for j, beta in enumerate((0.5, 1.0, 4.0)):
            for seed, gap in enumerate((3.0, 1.0, 2.0)):
                add(maker, seed, gap + i, plane(100 * i + 10 * j + seed), framework__alpha=alpha, framework__beta=beta)
    return maker


def drawing(maker, **spec):
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, RunScores(read(maker.run), GAP), Density(**spec))
        figure.draw_without_rendering()
    return figure, caption


def panels(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def test_a_panel_shows_the_codes_of_its_middle_trial(grid):
    figure, caption = drawing(grid)
    shown = panels(figure)
    assert len(shown) == 2 * 3 + 1
    expected = [plane(100 * i + 10 * j + 2) for i in range(2) for j in range(3)]
    found = [axes.images[0].get_array() for axes in shown if axes.get_title() != "prior"]
    for array, own in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, aggregate_density(own))
    assert "Of the 3 trials of a panel, the one of the middle prior divergence is drawn." in caption.text
    assert caption.title == "Density of all codes by beta and alpha"


def test_numbers_are_means_over_the_trials_of_a_panel(grid):
    titles = [axes.get_title() for axes in panels(drawing(grid)[0])]
    assert titles.count("KL 2, log p -3") == 3
    assert titles.count("KL 3, log p -4") == 3


def test_rows_and_columns_are_named(grid):
    figure, _ = drawing(grid)
    texts = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
    assert texts == {"", "beta 0.5", "beta 1", "beta 4", "alpha 0", "alpha 5"}
    swapped, _ = drawing(grid, x="framework.alpha", y="framework.beta")
    assert {axes.get_ylabel() for axes in swapped.axes} == {"", "beta 0.5", "beta 1", "beta 4"}


def test_the_prior_stands_beside_them_in_the_same_colours(grid):
    figure, _ = drawing(grid)
    (prior,) = [axes for axes in figure.axes if axes.get_title() == "prior"]
    np.testing.assert_array_equal(prior.images[0].get_array(), plane(0).prior)
    assert {axes.images[0].get_clim() for axes in panels(figure)} == {(0.0, 1.0)}


def test_priors_that_differ_are_only_outlined(make_run):
    maker = make_run()
    for beta, peak in ((1.0, 1.0), (2.0, 0.5)):
        add(maker, 0, 1.0, plane(0, peak), framework__beta=beta)
    figure, _ = drawing(maker)
    assert [axes.get_title() for axes in panels(figure)] == ["KL 1, log p -2"] * 2
    assert all(axes.collections for axes in panels(figure))


def test_one_setting_is_one_panel(make_run):
    maker = make_run()
    add(maker, 0, 1.0, plane(0))
    figure, caption = drawing(maker)
    assert len(panels(figure)) == 2
    assert caption.title == "Density of all codes"


def test_a_panel_whose_trials_have_no_pictures_is_left_empty(grid):
    add(grid, 7, 1.0, None, framework__alpha=0.0, framework__beta=9.0)
    figure, _ = drawing(grid)
    assert len(panels(figure)) == 7


def test_what_is_missing_is_said_with_what_to_do(make_run):
    maker = make_run()
    add(maker, 0, 1.0, None)
    with pytest.raises(NothingToDraw, match=r"model\.latents: 2"):
        drawing(maker)
    add(maker, 1, 1.0, empty())
    with pytest.raises(NothingToDraw, match=r"model\.latents: 2"):
        drawing(maker)
    with pytest.raises(NothingToDraw, match=r"framework\.gamma"):
        drawing(maker, x="framework.gamma")


def test_damaged_pictures_are_passed_over(make_run):
    maker = make_run()
    add(maker, 0, 1.0, plane(0))
    for seed in (1, 2):
        add(maker, seed, 0.5)
        damaged = maker.run.trial(trial_config(**USUAL, seed=seed).id)
        damaged.write_pictures(600, b"no archive")
    figure, _ = drawing(maker)
    np.testing.assert_allclose(panels(figure)[0].images[0].get_array(), aggregate_density(plane(0)))


def test_it_is_chosen_where_models_of_two_latents_have_pictures(grid, make_run):
    assert KIND.choose(RunScores(read(grid.run), GAP)) == [Density()]
    other = make_run("other")
    add(other, 0, 1.0, None)
    assert KIND.choose(RunScores(read(other.run), GAP)) == []
