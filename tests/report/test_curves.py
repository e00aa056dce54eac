from itertools import product

import numpy as np
import pandas as pd
import pytest

from disentune.report import canvas
from disentune.report.curves import KIND, MOST_LINES
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Curves
from disentune.spec.settings import Objective
from run_examples import STEPS, quick_trial


@pytest.fixture
def scores(scores_of_study):
    """One arm and data set: betas and latents are fully crossed with the two frameworks."""
    return scores_of_study(seeds=3).only("arm == 'plain' and dataset.name == 'xysquares'")


def scores_of(maker, mode="max", metric="mig"):
    return RunScores(read(maker.run), Objective(metric=metric, mode=mode))


def course(*values, every=100, first=1):
    return [{"step": every * (i + first), "mig": value, "loss": 1 - value} for i, value in enumerate(values)]


def drawn(scores, **asked):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, Curves(**asked))
        figure.draw_without_rendering()
    return figure, caption


def means(figure):
    """Of each line with a label: its steps and values."""
    lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    return {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in lines}


def legend(figure):
    return [text.get_text().strip() for text in figure.legends[0].get_texts()]


def band(figure, number=0):
    """The lowest and the highest of a band at each of its steps."""
    points = pd.DataFrame(figure.axes[0].collections[number].get_paths()[0].vertices, columns=["step", "value"])
    return points.groupby("step")["value"].agg(["min", "max"])


def thin(figure):
    return [line for line in figure.axes[0].lines if line.get_label().startswith("_")]


# ---- mean and spread


def test_line_and_band_are_mean_and_sd_of_the_trials_that_agree(scores):
    figure, caption = drawn(scores, by="framework.name")
    assert legend(figure) == ["ada_gvae (n = 24)", "beta_vae (n = 24)"]
    assert "that also differ in latents and beta, a full crossing" in caption.text
    rows = scores.results.rows
    for number, name in enumerate(["ada_gvae", "beta_vae"]):
        expected = rows[rows["framework.name"] == name].groupby("step")["mig"].agg(["mean", "std"])
        steps, values = means(figure)[name]
        assert steps == list(STEPS)
        assert values == pytest.approx(expected["mean"].tolist())
        found = band(figure, number)
        assert found["min"].tolist() == pytest.approx((expected["mean"] - expected["std"]).tolist())
        assert found["max"].tolist() == pytest.approx((expected["mean"] + expected["std"]).tolist())


def test_the_legend_says_how_many_trials_are_behind_each_line_not_behind_its_colour(make_run):
    maker = make_run()
    for latents, beta, seed in product((2, 4, 8), (1.0, 4.0, 16.0), range(3)):
        rows = [{"step": step, "mig": beta} for step in STEPS]
        quick_trial(maker, rows, model__latents=latents, framework__beta=beta, seed=seed)
    figure, caption = drawn(scores_of(maker))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"latents {n} (n = 9)" for n in (2, 4, 8)]
    assert legend(figure) == [f"{n} (n = 3)" for n in (1, 4, 16)]
    assert "the mean over n trials" in caption.text


def test_a_mean_ends_where_the_first_of_its_trials_ends(make_run):
    maker = make_run()
    quick_trial(maker, course(0.1, 0.2, 0.3), seed=0)
    quick_trial(maker, course(0.3), seed=1)
    figure, caption = drawn(scores_of(maker))
    assert means(figure)["mean"] == (
        [100, 200, 300],
        pytest.approx([0.2, np.nan, np.nan], nan_ok=True),
    )
    assert "1 trial ends before others of the same line: means stop there" in caption.text
    thin = [line.get_ydata().tolist() for line in figure.axes[0].lines if line.get_linewidth() < 1]
    assert [0.1, 0.2, 0.3] in thin  # the longer trial is seen to its end
    assert len(figure.axes[0].collections) == 0  # two trials have no spread
    quick_trial(maker, course(0.2, 0.4), seed=2)
    (bar,) = drawn(scores_of(maker))[0].axes[0].collections  # all three share one step only
    assert bar.get_segments()[0][:, 0].tolist() == [100, 100]


def test_the_longer_trials_of_a_crowd_are_drawn_only_beyond_the_mean(make_run):
    maker = make_run()
    for seed in range(MOST_LINES + 1):
        quick_trial(maker, course(0.1, 0.2, 0.3) if seed == 0 else course(0.1, 0.2), seed=seed)
    figure, _ = drawn(scores_of(maker))
    thin = [line.get_ydata() for line in figure.axes[0].lines if line.get_linewidth() < 1]
    assert all(np.isnan(values[0]) for values in thin)
    assert sum(np.isfinite(values[-1]) for values in thin) == 1


def test_trials_that_reported_at_other_steps_do_not_make_the_mean_jump(make_run):
    maker = make_run()
    quick_trial(maker, course(0.0, 0.2, 0.4), seed=0)
    quick_trial(maker, [{"step": 100, "mig": 1.0}, {"step": 300, "mig": 1.0}], seed=1)
    # at 200 the second is between its rows, at 1.0: (0.2 + 1.0) / 2 and not 0.2
    assert means(drawn(scores_of(maker))[0])["mean"] == ([100, 200, 300], pytest.approx([0.5, 0.6, 0.7]))


def test_rows_without_a_number_are_no_points(make_run):
    maker = make_run()
    quick_trial(maker, course(0.1, float("nan"), float("inf"), 0.4))
    assert means(drawn(scores_of(maker))[0])["mean"] == ([100, 400], [0.1, 0.4])


def test_single_trials_are_thin_lines_while_they_are_few(make_run):
    maker = make_run()
    for seed in range(60):
        quick_trial(maker, course(0.1 * seed, 0.2), seed=seed)
    figure, caption = drawn(scores_of(maker))
    assert sorted(line.get_ydata()[0] for line in thin(figure)) == pytest.approx([0.1 * seed for seed in range(60)])
    assert "thin: each trial" in caption.text
    quick_trial(maker, course(0.1, 0.2), seed=60)
    figure, caption = drawn(scores_of(maker))
    assert thin(figure) == []
    assert "thin" not in caption.text


def test_failed_and_diverged_trials_are_left_out_and_it_is_reported(make_run):
    maker = make_run()
    quick_trial(maker, course(0.1, 0.2), seed=0)
    quick_trial(maker, course(9.0, 9.0), seed=1, status="diverged")
    figure, caption = drawn(scores_of(maker))
    assert means(figure) == {"mean": ([100, 200], [0.1, 0.2])}
    assert "Not shown: trials that failed or diverged (1)." in caption.text


def test_many_steps_are_thinned_with_both_ends_kept(make_run):
    maker = make_run()
    quick_trial(maker, [{"step": i, "mig": i / 1000} for i in range(1, 1001)])
    steps, values = means(drawn(scores_of(maker))[0])["mean"]
    assert (len(steps), steps[0], steps[-1]) == (400, 1, 1000)
    assert values == pytest.approx(np.array(steps) / 1000)


# ---- groups


def test_every_line_is_for_replicates_with_panels_when_colours_run_out(scores):
    figure, caption = drawn(scores)
    rows = scores.results.rows
    assert caption.title == "MIG during training, by framework.name · beta · latents"
    found = {}
    for axes in figure.axes:
        panel = axes.get_title(loc="left")
        found |= {(panel, line.get_label()): line.get_ydata().tolist() for line in axes.lines
                  if not line.get_label().startswith("_")}  # fmt: skip
    expected = rows.groupby(["framework.name", "framework.beta", "model.latents", "step"])["mig"].mean()
    assert len(found) == 16
    assert sorted(found.values()) == pytest.approx(np.array(sorted(expected.to_numpy().reshape(16, 3).tolist())))


def test_eight_lines_are_distinguished(make_run):
    maker = make_run()
    for latents in range(2, 10):
        quick_trial(maker, course(0.1, 0.2), model__latents=latents)
    lines = [line for line in drawn(scores_of(maker))[0].axes[0].lines if not line.get_label().startswith("_")]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 8


def test_a_number_that_alone_varies_divides_the_lines(make_run):
    maker = make_run()
    for beta in (0.1, 0.01):
        quick_trial(maker, course(beta, 2 * beta), framework__beta=beta)
    found = means(drawn(scores_of(maker))[0])
    assert found == {"0.01": ([100, 200], [0.01, 0.02]), "0.1": ([100, 200], [0.1, 0.2])}


def test_of_many_groups_those_with_most_trials_are_shown_in_the_order_of_their_values(make_run):
    maker = make_run()
    for latents in range(2, 12):
        for seed in range({4: 1, 5: 1, 9: 3}.get(latents, 2)):
            quick_trial(maker, course(0.1, 0.2), model__latents=latents, seed=seed)
    figure, caption = drawn(scores_of(maker), by="model.latents")
    assert legend(figure) == [f"{n} (n = {3 if n == 9 else 2})" for n in (2, 3, 6, 7, 8, 9, 10, 11)]
    assert "The 8 of 10 groups with the most trials are shown." in caption.text


def test_trials_without_the_key_are_a_group(make_run):
    maker = make_run()
    quick_trial(maker, course(0.1, 0.2))
    quick_trial(maker, course(0.3, 0.4), recon__name="overlap", recon__radius=11, recon__alpha=9.0)
    assert list(means(drawn(scores_of(maker), by="recon.radius")[0])) == ["11", "(none)"]


def test_a_key_that_no_trial_has_is_reported(scores):
    with pytest.raises(NothingToDraw, match=r"no trial has the key framework\.gamma"):
        drawn(scores, by="framework.gamma")


# ---- words


def test_axes_tell_the_number_and_which_direction_is_better(scores):
    axes = drawn(scores)[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training step", "MIG (higher is better)")
    assert drawn(scores, metric="loss")[0].axes[0].get_ylabel() == "loss (lower is better)"


def test_the_legend_is_below_the_axes(scores):
    with canvas.style():
        figure = canvas.figure()
        KIND.draw(figure, scores, Curves())
        figure.draw_without_rendering()
        lowest = min(axes.get_window_extent().y0 for axes in figure.axes)
        assert figure.legends[0].get_window_extent().y1 <= lowest
        assert len(figure.legends[0].get_texts()) >= 2


@pytest.mark.parametrize(("losses", "scale"), [((99.0, 1.0), "log"), ((4.0, 1.0), "linear"), ((99.0, -1.0), "linear")])
def test_a_loss_over_magnitudes_has_a_logarithmic_axis(make_run, losses, scale):
    maker = make_run()
    for seed in range(2):
        quick_trial(maker, [{"step": i, "loss": loss * (1 + 3 * seed)} for i, loss in enumerate(losses)], seed=seed)
    axes = drawn(scores_of(maker), metric="loss")[0].axes[0]
    assert axes.get_yscale() == scale
    assert axes.get_ylim()[0] > (0.5 if scale == "log" else -100)


def test_a_score_over_magnitudes_has_not(make_run):
    maker = make_run()
    quick_trial(maker, course(0.001, 0.9))
    assert drawn(scores_of(maker))[0].axes[0].get_yscale() == "linear"


# ---- choices and odd runs


def test_the_loss_is_chosen_and_the_objective_where_the_summary_has_no_room(scores, scores_of_study):
    assert KIND.choose(scores) == [Curves(metric="loss")]
    assert KIND.choose(scores_of_study(seeds=3)) == [Curves(metric="mig")]  # several losses do not share an axis


def test_one_step_is_no_curve_but_can_be_drawn(make_run):
    maker = make_run()
    for seed in range(2):
        quick_trial(maker, course(0.1 * (seed + 1)), seed=seed)
    scores = scores_of(maker)
    assert KIND.choose(scores) == []
    line = drawn(scores)[0].axes[0].lines[-1]
    assert line.get_ydata().tolist() == pytest.approx([0.15])
    assert line.get_marker() == "o"


def test_odd_names_are_drawn_as_they_are(make_run):
    maker = make_run()
    for arm in ("a $x^$ <script>", "é β " + "long " * 20):
        quick_trial(maker, course(0.1, 0.2), arm, seed=len(arm))
    found = list(means(drawn(scores_of(maker))[0]))
    assert found == ["a $x^$ <script>", "é β long long…long long long"]


def test_trials_of_a_random_search_have_no_mean(make_run):
    maker, rng = make_run(), np.random.default_rng(0)
    for _ in range(8):
        quick_trial(maker, course(0.1, 0.2), framework__beta=rng.uniform(), training__learning_rate=rng.uniform() / 100)
    figure, caption = drawn(scores_of(maker))
    assert means(figure) == {}
    assert len(thin(figure)) == 8
    assert "they differ in beta and learning_rate, so no mean is drawn" in caption.text
    assert KIND.choose(scores_of(maker)) == []


def test_lines_of_single_trials_are_not_called_means(make_run):
    maker = make_run()
    for beta in (1.0, 2.0):
        quick_trial(maker, course(0.1, 0.2), framework__beta=beta)
    assert drawn(scores_of(maker))[1].text == "Each line is a trial (n = 2)."
