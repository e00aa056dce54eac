import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer

from disentune.frameworks import FRAMEWORKS
from disentune.report import canvas
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.strength import KIND, STRENGTHS, USUAL, means, strength_keys
from disentune.results.tables import read
from disentune.spec.figures import Strength
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
    return figure, caption


def bars(axes):
    return [one for one in axes.containers if isinstance(one, ErrorbarContainer)]


def ends(bar):
    """(low, high) of each error bar."""
    return [(segment[0][1], segment[1][1]) for segment in bar[2][0].get_segments()]


@pytest.fixture
def scores(scores_of_study):
    """One arm and data set, 9 latents: two frameworks, four betas, three seeds."""
    return scores_of_study().only("arm == 'plain' and dataset.name == 'xysquares' and model.latents == 9")


@pytest.fixture
def several(make_run):
    """Frameworks with strengths of different names; an autoencoder has none."""
    maker = make_run()
    swept = {"beta_vae": ("beta", (1, 4, 16)), "ada_gvae": ("beta", (1, 4)), "factor_vae": ("gamma", (10, 30)),
             "annealed_vae": ("c_max", (5, 25)), "dip_vae_i": ("lambda_od", (1, 10))}  # fmt: skip
    for framework, (name, values) in swept.items():
        for value in values:
            for seed in range(3):
                quick_trial(maker, last(value / 100 + seed / 10), framework__name=framework, seed=seed,
                            **{"framework__beta": ..., f"framework__{name}": value})  # fmt: skip
    quick_trial(maker, last(0.5), framework__name="ae", framework__beta=...)
    return RunScores(read(maker.run), MIG)


def test_every_framework_has_its_strengths_and_they_are_parameters_of_it():
    assert STRENGTHS.keys() == {framework.name for framework in FRAMEWORKS} - {"manipulator"}  # which trains no encoder
    for framework in (one for one in FRAMEWORKS if one.name in STRENGTHS):
        assert set(STRENGTHS[framework.name]) <= framework.params.model_fields.keys()
    assert set(USUAL) == {key for keys in STRENGTHS.values() for key in keys}


def test_points_are_means_and_bars_deviations_of_the_rows(scores):
    figure, caption = drawn(scores, Strength())
    (axes,) = figure.axes
    frame = scores.scored("mig", ["framework.beta", "framework.name"])
    for bar, (_, group) in zip(bars(axes), frame.groupby("framework.name"), strict=True):
        expected = group.groupby("framework.beta")["value"].agg(["mean", "std"])
        assert bar[0].get_ydata() == pytest.approx(expected["mean"].to_numpy())
        low, high = expected["mean"] - expected["std"], expected["mean"] + expected["std"]
        assert np.array(ends(bar)) == pytest.approx(np.stack([low, high], axis=1))
        # beside each other by 1.2 % of three decades
        assert np.log10(bar[0].get_xdata()) == pytest.approx(np.log10(expected.index), abs=0.006 * 3 + 1e-9)
    dots = [line for line in axes.lines if line.get_markersize() == 4]
    assert sorted(np.concatenate([line.get_ydata() for line in dots])) == pytest.approx(sorted(frame["value"]))
    assert caption.title == "MIG against beta, by framework.name"
    assert "means of 3 trials" in caption.text
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "beta"
    assert axes.get_ylabel() == "MIG (higher is better)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ada_gvae (n = 12)", "beta_vae (n = 12)"]


def test_series_stand_beside_each_other_about_the_strength(scores):
    figure, _ = drawn(scores, Strength())
    first, second = (np.log10(bar[0].get_xdata()) for bar in bars(figure.axes[0]))
    assert second - first == pytest.approx(np.full(4, 0.012 * 3))
    assert (first + second) / 2 == pytest.approx([-4, -3, -2, -1])


def test_frameworks_with_the_same_strength_share_a_panel(several):
    figure, caption = drawn(several, Strength())
    assert [axes.get_xlabel() for axes in figure.axes] == ["beta", "c_max", "gamma", "lambda_od"]
    assert [len(bars(axes)) for axes in figure.axes] == [2, 1, 1, 1]
    assert [axes.get_ylabel() for axes in figure.axes] == ["MIG (higher is better)", "", "", "MIG (higher is better)"]
    assert bars(figure.axes[2])[0][0].get_ydata() == pytest.approx([0.2, 0.4])
    assert bars(figure.axes[2])[0][0].get_xdata() == pytest.approx([10, 30])
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert caption.title == "MIG against strength of regularisation, by framework.name"
    assert "A larger c_max means weaker regularisation." in caption.text
    assert "because their strength does not vary: ae." in caption.text
    assert "n = 33 of 34" in caption.text


def test_a_named_key_is_the_only_axis(several):
    figure, caption = drawn(several, Strength(x="framework.beta"))
    assert [axes.get_xlabel() for axes in figure.axes] == ["beta"]
    assert len(bars(figure.axes[0])) == 2
    assert "does not vary" not in caption.text
    assert "means weaker regularisation" not in caption.text


def test_the_first_strength_that_varies_counts(make_run, monkeypatch):
    maker = make_run()
    for i in range(4):
        slow = {"framework__name": "slow_vae", "framework__beta": 1.0 + i}
        quick_trial(maker, last(0.1), seed=i, **slow)
    assert strength_keys(RunScores(read(maker.run), MIG), None) == {"slow_vae": "framework.beta"}
    quick_trial(maker, last(0.1), seed=9, **slow, framework__gamma=3.0)
    assert strength_keys(RunScores(read(maker.run), MIG), None) == {"slow_vae": "framework.gamma"}


def test_a_strength_on_a_schedule_counts_by_its_end(make_run):
    maker = make_run()
    for final in (1.0, 4.0):
        beta = {"schedule": "linear", "initial": 0.0, "final": final, "end": 100}
        changes = {f"framework__beta__{key}": value for key, value in beta.items()}
        quick_trial(maker, last(final / 10), framework__beta=..., **changes)
    figure, _ = drawn(RunScores(read(maker.run), MIG), Strength())
    assert figure.axes[0].get_xlabel() == "beta at the end of its schedule (n = 2)"
    assert bars(figure.axes[0])[0][0].get_data()[1].tolist() == pytest.approx([0.1, 0.4])


def test_one_framework_has_a_line_for_each_arm_that_shares_strengths(make_run):
    maker = make_run()
    for arm, width in {"plain": 128, "wide": 256}.items():
        for beta in (0.1, 0.2):
            quick_trial(maker, last(beta), arm, framework__beta=beta, model__width=width)
    figure, caption = drawn(RunScores(read(maker.run), MIG), Strength())
    assert len(bars(figure.axes[0])) == 2
    assert caption.title == "MIG against beta, by arm"
    assert "Lines connect single trials." in caption.text
    figure, caption = drawn(RunScores(read(maker.run), MIG).only("arm == 'plain'"), Strength())
    assert len(bars(figure.axes[0])) == 1
    assert figure.axes[0].get_xlabel() == "beta (n = 2)"
    assert figure.legends == []


def test_a_named_key_is_a_marginal_of_a_full_crossing_inside_one_arm(scores_of_study):
    plain = scores_of_study().only("arm == 'plain'")
    _, caption = drawn(plain, Strength(by="dataset.name"))
    assert caption.title == "MIG against beta, by dataset.name"
    assert "averages over latents, framework.name and seed: a full crossing" in caption.text


def test_arms_and_other_keys_get_panels_instead_of_a_common_mean(scores_of_study):
    scores = scores_of_study()
    figure, caption = drawn(scores, Strength())
    assert "Trials of one group differ only by seed." in caption.text
    count = sum(len(bar[0].get_xdata()) for axes in figure.axes for bar in bars(axes))
    assert count == 2 * 2 * 2 * 2 * 4  # arms, data sets, frameworks, latents, betas


def test_strengths_drawn_at_random_are_put_into_bins(make_run):
    rng = np.random.default_rng(0)
    place, value = np.sort(rng.uniform(size=40)), rng.uniform(size=40)
    found = means(pd.DataFrame({"series": "", "place": place, "value": value}))
    assert found["n"].tolist() == [5] * 8
    assert found["place"].tolist() == pytest.approx(place.reshape(8, 5).mean(axis=1).tolist())
    assert found["mean"].tolist() == pytest.approx(value.reshape(8, 5).mean(axis=1).tolist())
    assert found["sd"].tolist() == pytest.approx(value.reshape(8, 5).std(axis=1, ddof=1).tolist())
    maker = make_run()
    for seed in range(40):
        quick_trial(maker, last(value[seed]), framework__beta=float(place[seed]), seed=seed)
    figure, caption = drawn(RunScores(read(maker.run), MIG), Strength())
    assert len(bars(figure.axes[0])[0][0].get_xdata()) == 8
    assert "bins with about the same number of trials" in caption.text


def test_a_grid_is_never_binned_and_ties_do_not_break_bins():
    grid = pd.DataFrame({"series": "", "place": np.repeat(np.arange(20.0), 3), "value": 0.1})
    assert means(grid)["n"].tolist() == [3] * 20
    few = pd.DataFrame({"series": "", "place": np.arange(10.0), "value": 0.1})
    assert means(few)["n"].tolist() == [1] * 10
    tied = pd.DataFrame({"series": "", "place": [*np.zeros(30), *np.arange(1.0, 21)], "value": 0.1})
    assert means(tied)["n"].sum() == 50


def test_points_of_a_line_go_from_weak_to_strong_whatever_the_order_of_trials():
    trials = pd.DataFrame({"series": ["b", "a", "b", "a"], "place": [3.0, 2, 1, 1], "value": [0.3, 0.2, 0.1, 0.1]})
    found = means(trials)
    assert found[found["series"] == "a"]["place"].tolist() == [1, 2]
    assert found[found["series"] == "b"]["place"].tolist() == [1, 3]


def test_one_trial_is_a_point_without_a_bar(make_run):
    maker = make_run()
    quick_trial(maker, last(0.3))
    scores = RunScores(read(maker.run), MIG)
    figure, _ = drawn(scores, Strength(x="framework.beta"))
    assert ends(bars(figure.axes[0])[0]) == [(0.3, 0.3)]
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match="no framework's strength varies"):
        drawn(scores, Strength())


def test_what_is_not_a_number_is_nothing_to_draw(scores):
    with pytest.raises(NothingToDraw, match=r"no trial with a score has a number for framework\.name"):
        drawn(scores, Strength(x="framework.name"))


def test_chosen_where_a_strength_varies(scores, several):
    assert KIND.choose(several) == [Strength()]
    assert KIND.choose(scores) == []  # the summary has beta as its axis
    assert KIND.choose(scores.only("framework.beta == 0.1")) == []
