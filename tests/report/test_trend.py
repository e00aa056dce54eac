import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from scipy.interpolate import PchipInterpolator

from disentune.report import canvas, trend
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.trend import KIND, _rounded, bandwidth_for, jittered, joined, local_weights, smoothable, smoothed
from disentune.results.tables import read
from disentune.spec.figures import Trend
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


def lines(axes):
    return [line for line in axes.lines if line.get_marker() != "o"]


def bands(axes):
    return [one.get_paths()[0].vertices for one in axes.collections if isinstance(one, PolyCollection)]


@pytest.fixture
def spacings(make_run):
    """Ada-GVAE falls with the spacing, as in the paper; beta-VAE is low."""
    maker = make_run()
    rng = np.random.default_rng(0)
    for spacing in range(1, 9):
        for framework, top in (("ada_gvae", 0.9), ("beta_vae", 0.2)):
            for seed in range(5):
                score = top * np.exp(-0.5 * (spacing - 1)) * rng.uniform(0.8, 1.1)
                quick_trial(maker, last(score), framework__name=framework, dataset__spacing=spacing, seed=seed)
    return RunScores(read(maker.run), MIG)


# ---- smoothing


def test_the_line_is_the_weighted_least_squares_line_at_each_place():
    rng = np.random.default_rng(0)
    x, y = np.repeat(np.arange(6.0), 3), rng.normal(size=18)
    for at in (0.0, 2.0, 5.0):
        root = np.exp(-0.25 * ((x - at) / 0.9) ** 2)  # lstsq squares what it is given
        design = np.stack([np.ones_like(x), x - at], axis=1)
        expected = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0][0]
        # the ridge, 1e-6 of the squared bandwidth, moves it by about as much
        assert (local_weights(np.array([at]), x, 0.9) @ y).item() == pytest.approx(expected, abs=1e-5)


def test_a_straight_line_stays_itself_and_has_no_spread():
    x = np.repeat(np.linspace(0, 1, 7), 2)
    line = smoothed(x, 3 * x + 1, bandwidth_for(x))
    assert line.height == pytest.approx(3 * line.at + 1, abs=1e-4)  # the ridge
    assert line.sd == pytest.approx(0, abs=1e-4)
    assert (line.at[0], line.at[-1]) == (0, 1)


def test_between_places_the_line_turns_only_at_them_also_over_a_wide_gap():
    x = np.array([0.0, 1, 2, 3, 30])
    y = np.array([0.9, 0.6, 0.3, 0.1, 0.2])
    line = smoothed(x, y, 1.0)
    at_places = np.array([(local_weights(np.array([place]), x, 1.0) @ y).item() for place in x])
    assert line.height == pytest.approx(PchipInterpolator(x, at_places)(line.at))
    assert line.height.min() >= min(at_places) - 1e-12  # rounding
    assert at_places[-1] == pytest.approx(0.2)  # nothing else is near


def test_the_spread_is_the_deviation_of_the_trials_about_the_line():
    rng = np.random.default_rng(0)
    x = np.repeat(np.arange(10.0), 200)
    line = smoothed(x, np.sin(x / 3) + (0.1 + 0.02 * x) * rng.normal(size=2000), 1.0)
    # 200 trials a place, about 3 places in the kernel: sd is known to 1 / sqrt(2 * 600), 3 %; bias of the ends alike
    assert line.sd == pytest.approx(0.1 + 0.02 * line.at, rel=0.12)


@pytest.mark.slow
def test_a_trial_alone_at_its_place_does_not_hide_the_spread():
    """Each of few trials draws the line to itself, so residuals are smaller than deviations; that is corrected."""
    x, rng = np.arange(8.0), np.random.default_rng(0)
    ends = [smoothed(x, rng.normal(size=8), bandwidth_for(x)).sd[[0, -1]] ** 2 for _ in range(2000)]
    # 4000 estimates, each about as uncertain as from 2 trials: 1 / sqrt(4000) is 2 %
    assert np.mean(ends) == pytest.approx(1, rel=0.06)


def test_few_places_are_joined_at_their_means():
    line = joined(np.array([2.0, 1, 2, 5]), np.array([0.2, 0.7, 0.4, 0.1]))
    assert line.at.tolist() == [1, 2, 5]
    assert line.height == pytest.approx([0.7, 0.3, 0.1])
    assert np.isnan(line.sd).all()  # two trials are no band
    three = joined(np.array([1.0, 1, 1]), np.array([0.2, 0.4, 0.9]))
    assert three.sd == pytest.approx([np.std([0.2, 0.4, 0.9], ddof=1)])


def test_a_smooth_line_rests_on_three_trials_everywhere():
    singles, threes = np.arange(8.0), np.repeat(np.arange(8.0), 3)
    assert not smoothable(singles, bandwidth_for(singles))
    assert smoothable(threes, bandwidth_for(threes))
    assert not smoothable(np.append(threes, 30.0), 0.7)  # one far away by itself


def test_the_kernel_is_a_tenth_of_the_range_or_reaches_the_neighbours():
    assert bandwidth_for(np.arange(1.0, 9)) == pytest.approx(0.7)
    assert bandwidth_for(np.linspace(0, 5, 1000)) == pytest.approx(0.5)


def test_thousands_of_places_take_the_time_of_some(monkeypatch):
    sizes = []
    monkeypatch.setattr(trend, "local_weights", lambda at, *rest: sizes.append(len(at)) or local_weights(at, *rest))
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 5000)
    assert np.abs(_rounded(x) - x).max() <= 10 / 400 / 2
    assert _rounded(x[:400]).tolist() == x[:400].tolist()
    line = smoothed(x, x**2 + rng.normal(size=x.size), 0.5)
    assert max(sizes) <= 401
    assert line.height == pytest.approx(line.at**2, abs=0.5)  # bias bandwidth**2 and noise about 0.05
    assert line.sd == pytest.approx(1, abs=0.1)


def test_dots_of_one_place_stand_beside_each_other_and_near_it():
    places = np.array([1.0, 1, 1, 2, 4])
    moved = jittered(places, places)
    assert len(set(moved)) == 5
    assert np.abs(moved - places).max() <= 0.5 * 0.02 * 3
    assert moved[3:].tolist() == [2, 4]
    assert len(set(jittered(np.ones(3), np.ones(3)))) == 3


# ---- drawing


def test_every_trial_is_a_dot_at_its_number(spacings):
    axes, caption = drawn(spacings, Trend())
    frame = spacings.scored("mig", ["dataset.spacing", "framework.name"])
    for line, (_, group) in zip(dots(axes), frame.groupby("framework.name"), strict=True):
        assert line.get_ydata().tolist() == group["value"].tolist()
        assert np.abs(line.get_xdata() - group["dataset.spacing"].to_numpy()).max() <= 0.07 + 1e-12  # half of 2 % of 7
        assert len(set(line.get_xdata())) == 40
    assert caption.title == "MIG against spacing, by framework.name"
    assert "local linear" in caption.text
    assert "logarithmic" not in caption.text
    assert "Trials of one group differ only by seed." in caption.text
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend == ["ada_gvae (n = 40)", "beta_vae (n = 40)"]


def test_the_trend_goes_through_the_trials_within_their_range(spacings):
    axes, _ = drawn(spacings, Trend())
    frame = spacings.scored("mig", ["dataset.spacing", "framework.name"])
    for line, band, (_, group) in zip(lines(axes), bands(axes), frame.groupby("framework.name"), strict=True):
        x, y = line.get_data()
        means = group.groupby("dataset.spacing")["value"].mean()
        # the bias of smoothing an exponential that halves in 1.4: bandwidth**2 / 2 * curvature, 0.06 of its height
        assert np.interp(means.index, x, y) == pytest.approx(means.to_numpy(), abs=0.1 * group["value"].max())
        assert y.min() >= group["value"].min()
        assert (band[:, 1].min(), band[:, 1].max()) >= (group["value"].min(), 0)
        assert band[:, 1].max() <= group["value"].max()
        assert (x[0], x[-1]) == (1, 8)
        expected = smoothed(group["dataset.spacing"].to_numpy(float), group["value"].to_numpy(), 0.7)
        inner = np.clip(expected.height + expected.sd, *group["value"].agg(["min", "max"]))
        assert np.isin(inner.round(9), band[:, 1].round(9)).all()


def test_two_values_are_joined_at_their_means_with_the_deviation(make_run):
    maker = make_run()
    for latents, values in {2: [0.1, 0.2, 0.6], 5: [0.5, 0.4, 0.9]}.items():
        for seed, value in enumerate(values):
            quick_trial(maker, last(value), model__latents=latents, seed=seed)
    scores = RunScores(read(maker.run), MIG)
    axes, caption = drawn(scores, Trend())
    (line,) = lines(axes)
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([2, 5], pytest.approx([0.3, 0.6]))
    (band,) = bands(axes)
    ends = {(x, round(y, 6)) for x, y in band}
    deviation = np.std([0.1, 0.2, 0.6], ddof=1)  # the same for both; 0.3 - 0.26 is below every trial, so cut at 0.1
    expected = {(2, 0.1), (2, 0.3 + deviation), (5, 0.6 - deviation), (5, 0.6 + deviation)}
    assert {(x, round(y, 6)) for x, y in expected} == ends
    assert "Lines connect the means" in caption.text
    assert axes.get_xlabel() == "latents (n = 6)"


def test_magnitudes_are_smoothed_on_a_logarithmic_axis(make_run):
    maker = make_run()
    for i in range(40):
        rate = 10 ** (-5 + 0.1 * i)
        quick_trial(maker, last(0.5 + 0.1 * np.log10(rate)), training__learning_rate=rate, seed=i)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Trend())
    assert axes.get_xscale() == "log"
    x, y = lines(axes)[0].get_data()
    assert y == pytest.approx(0.5 + 0.1 * np.log10(x), abs=1e-4)  # straight there, so smoothing leaves it
    assert "on the logarithmic axis" in caption.text


def test_a_number_that_does_not_differ_has_no_trend(make_run):
    maker = make_run()
    quick_trial(maker, last(0.3))
    scores = RunScores(read(maker.run), MIG)
    with pytest.raises(NothingToDraw, match=r"model\.latents is 9 in every trial"):
        drawn(scores, Trend(x="model.latents"))
    with pytest.raises(NothingToDraw, match="no number differs"):
        drawn(scores, Trend())


def test_a_series_of_one_place_has_no_line_beside_others(make_run):
    maker = make_run()
    for i, latents in enumerate([2, 3, 4, 5, 3, 3]):
        quick_trial(maker, last(0.1 * i), framework__name="beta_vae" if i < 4 else "ada_gvae", seed=i,
                    model__latents=latents)  # fmt: skip
    axes, _ = drawn(RunScores(read(maker.run), MIG), Trend())
    assert len(dots(axes)) == 2
    assert len(lines(axes)) == 1
    assert lines(axes)[0].get_color() == canvas.PALETTE[1]


def test_equal_scores_are_a_flat_line(make_run):
    maker = make_run()
    for i in range(8):
        quick_trial(maker, last(0.5), model__latents=2 + i, seed=i)
    axes, _ = drawn(RunScores(read(maker.run), MIG), Trend())
    assert set(lines(axes)[0].get_ydata()) == {0.5}


def test_trials_without_the_number_are_left_out_and_counted(make_run):
    maker = make_run()
    for seed in range(6):
        loss = {"recon__name": "overlap", "recon__radius": 3 + seed, "recon__alpha": 2.0} if seed < 4 else {}
        quick_trial(maker, last(0.1 * seed), seed=seed, **loss)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Trend(x="recon.radius"))
    assert len(dots(axes)[0].get_ydata()) == 4
    assert "n = 4 of 6" in caption.text


@pytest.mark.parametrize("x", ["framework.name", "arm", "training.compile"])
def test_what_is_not_a_number_is_nothing_to_draw(x, spacings):
    with pytest.raises(NothingToDraw, match=f"no trial with a score has a number for {x}"):
        drawn(spacings, Trend(x=x))


# ---- choosing


def test_a_number_besides_the_summarys_axis_is_chosen(make_run):
    maker = make_run()
    for spacing in range(1, 6):
        for latents in (2, 3, 4):
            quick_trial(maker, last(0.1), dataset__spacing=spacing, model__latents=latents)
    assert KIND.choose(RunScores(read(maker.run), MIG)) == [Trend(x="model.latents")]


def test_the_summarys_axis_is_not_drawn_twice(spacings):
    assert KIND.choose(spacings) == []


def test_strengths_are_not_chosen_but_drawn_when_asked(make_run):
    maker = make_run()
    for seed, beta in enumerate([0.1, 0.2, 0.3]):
        quick_trial(maker, last(0.1), framework__beta=beta, seed=seed)
    scores = RunScores(read(maker.run), MIG)
    assert KIND.choose(scores) == []
    assert drawn(scores, Trend())[1].title == "MIG against beta"


def test_numbers_of_a_random_search_are_dots_without_a_line(make_run):
    maker, rng = make_run(), np.random.default_rng(0)
    for _ in range(12):
        quick_trial(maker, last(rng.uniform()), training__learning_rate=rng.uniform() / 100,
                    training__batch_size=int(rng.integers(4, 400)))  # fmt: skip
    scores = RunScores(read(maker.run), MIG)
    assert {spec.x for spec in KIND.choose(scores)} == {"training.learning_rate", "training.batch_size"}
    axes, caption = drawn(scores, Trend(x="training.learning_rate"))
    assert lines(axes) == []
    assert "also differ in batch_size, so no mean of them is drawn" in caption.text


def test_arms_are_series_where_they_share_places_and_a_geometric_grid_is_logarithmic(make_run):
    maker = make_run()
    for arm, width in {"plain": 128, "wide": 256}.items():
        for spacing in (1, 2, 4):
            quick_trial(maker, last(0.1), arm, dataset__spacing=spacing, model__width=width)
    axes, caption = drawn(RunScores(read(maker.run), MIG), Trend(x="dataset.spacing"))
    assert caption.title == "MIG against spacing, by arm"
    assert "connect single trials" in caption.text
    assert bands(axes) == []
    assert axes.get_xscale() == "log"
