import itertools
import time
import warnings

import numpy as np
import optuna
import pandas as pd
import pytest
from matplotlib.text import Text

from disentune.report import canvas, importance
from disentune.report.importance import KIND, MOST_BARS, REST
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Importance
from disentune.spec.settings import Objective
from run_examples import quick_trial, study

FOREST = 0.03
"""A tree sees a bootstrap sample, two thirds of the cells, and fills the others with their neighbours. With 64 trees
the shares of 20 grids came out within 0.027 of the analysis of variance, within 0.015 where noise was small."""


def scores_of(maker):
    return RunScores(read(maker.run), Objective(metric="mig", mode="max"))


def trials(maker, changes, values):
    for change, value in zip(changes, values, strict=True):
        quick_trial(maker, [{"step": 1, "mig": float(value)}], **change)
    return scores_of(maker)


def grid(**domains):
    return [dict(zip(domains, point, strict=True)) for point in itertools.product(*domains.values())]


def drawn(scores, **asked):
    """The figure, its caption, and the length of each bar from the top."""
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, Importance(**asked))
        figure.draw_without_rendering()
    axes = figure.axes[0]
    lengths = [patch.get_width() for patch in axes.patches]
    assert axes.yaxis_inverted()
    return figure, caption, dict(zip([label.get_text() for label in axes.get_yticklabels()], lengths, strict=True))


def main_effects(changes, values):
    """Of a full factorial grid: the variance of a key's means over the whole variance."""
    frame, values = pd.DataFrame(changes), np.array(values)
    means = {key: [values[(frame[key] == level).to_numpy()].mean() for level in frame[key].unique()] for key in frame}
    return {key.split("__")[-1]: np.var(some) / np.var(values) for key, some in means.items()}


# ---- shares


@pytest.mark.slow
def test_a_key_with_thrice_the_slope_comes_first_and_the_seed_last(make_run):
    rng = np.random.default_rng(0)
    points = grid(framework__beta=(0.0, 1.0, 2.0, 3.0), model__latents=(2, 3, 4, 5), seed=range(4))
    values = [3 * p["framework__beta"] + p["model__latents"] + rng.normal(0, 0.5) for p in points]
    _, caption, bars = drawn(trials(make_run(), points, values))
    assert list(bars) == ["beta", "latents", "seed", REST]
    # variances 9 * 1.25 and 1.25, and noise of 0.25
    assert bars["beta"] == pytest.approx(9 * 1.25 / 12.75, abs=FOREST)
    assert bars["latents"] == pytest.approx(1.25 / 12.75, abs=FOREST)
    assert bars["seed"] < 0.01
    assert caption.title == "Which keys MIG depends on"


@pytest.mark.parametrize("draw", range(3))
def test_shares_are_the_main_effects_of_the_analysis_of_variance(make_run, draw):
    """With an interaction, a nonlinear key and names: all that a grid may have."""
    rng = np.random.default_rng(draw)
    points = grid(framework__name=("ada_gvae", "ada_ml_vae", "beta_vae"), model__latents=(2, 5, 9, 10), seed=range(5))
    base = {"ada_gvae": 0.2, "ada_ml_vae": 1.0, "beta_vae": 0.5}
    values = [base[p["framework__name"]] * (1 + p["model__latents"] % 5) + 0.3 * rng.normal() for p in points]
    _, _, bars = drawn(trials(make_run(), points, values))
    expected = main_effects(points, values)
    assert bars["framework.name"] == pytest.approx(expected["name"], abs=FOREST)
    assert bars["latents"] == pytest.approx(expected["latents"], abs=FOREST)
    assert bars["seed"] == pytest.approx(expected["seed"], abs=FOREST)
    assert bars[REST] == pytest.approx(1 - sum(expected.values()), abs=3 * FOREST)  # of three
    assert bars[REST] > 0.1


def test_the_values_of_a_logarithmic_grid_count_alike(make_run):
    """On a plain scale the smallest beta would weigh a ten-thousandth, and what it does would be nothing."""
    rng = np.random.default_rng(0)
    points = grid(framework__beta=(1e-4, 1e-3, 1e-2, 1e-1, 1.0), model__latents=(2, 3, 4), seed=range(4))
    values = [(p["framework__beta"] == 1e-4) + 0.3 * p["model__latents"] + 0.1 * rng.normal() for p in points]
    _, _, bars = drawn(trials(make_run(), points, values))
    expected = main_effects(points, values)
    assert expected["beta"] > 0.5
    assert bars["beta"] == pytest.approx(expected["beta"], abs=FOREST)


def test_trials_without_a_key_are_counted_with_it_as_a_value_of_its_own(make_run):
    points = grid(radius=(None, 3, 11), framework__beta=(1.0, 2.0), seed=range(4))
    maker, rng = make_run(), np.random.default_rng(0)
    values = [{None: 0.0, 3: 2.0, 11: 1.0}[p["radius"]] + p["framework__beta"] + 0.1 * rng.normal() for p in points]
    for point, value in zip(points, values, strict=True):
        radius = point["radius"]
        change = {key: point[key] for key in ("framework__beta", "seed")}
        loss = {"recon__name": "overlap", "recon__radius": radius, "recon__alpha": 9.0} if radius else {}
        quick_trial(maker, [{"step": 1, "mig": value}], **change, **loss)
    _, caption, bars = drawn(scores_of(maker))
    # recon.name tells part of what the radius does, and a tree may ask either; together they have the whole effect
    means = [np.mean([v for p, v in zip(points, values, strict=True) if p["radius"] == r]) for r in (None, 3, 11)]
    assert set(bars) == {"recon.name", "radius", "beta", "seed", REST}
    assert bars["recon.name"] + bars["radius"] > 0.5 * np.var(means) / np.var(values)
    assert "all 24 trials" in caption.text


# ---- keys


@pytest.mark.parametrize("base", [0.5, 2.0])
def test_keys_that_always_change_together_have_one_bar(make_run, base):
    rng = np.random.default_rng(0)
    points = [{"framework__beta": base**i, "model__latents": 2 + i, "training__batch_size": size, "seed": seed}
              for i in range(3) for size in (8, 16) for seed in range(3)]  # fmt: skip
    values = [p["model__latents"] + 0.1 * rng.normal() for p in points]
    _, caption, bars = drawn(trials(make_run(), points, values))
    assert set(bars) == {"latents + beta", "batch_size", "seed", REST}
    assert bars["latents + beta"] > 0.9
    assert "Keys with + between them always change together." in caption.text


def test_numbers_drawn_at_random_are_two_keys(make_run):
    """Each value of one comes with one of the other, but not in the same order."""
    rng = np.random.default_rng(0)
    points = [{"framework__beta": rng.uniform(), "training__learning_rate": rng.uniform() / 100} for _ in range(60)]
    scores = trials(make_run(), points, [3 * p["framework__beta"] + 100 * p["training__learning_rate"] for p in points])
    _, caption, bars = drawn(scores)
    assert list(bars)[:2] == ["beta", "learning_rate"]
    assert bars["beta"] > 0.6
    assert "The 60 values of beta are binned" in caption.text


def test_a_few_numbers_drawn_at_random_are_two_keys_for_every_seed(make_run):
    draws = [(0.1, 0.003), (0.7, 0.001), (0.3, 0.002), (0.9, 0.005), (0.5, 0.004)]
    points = [{"framework__beta": beta, "training__learning_rate": rate, "seed": seed}
              for beta, rate in draws for seed in range(3)]  # fmt: skip
    _, _, bars = drawn(trials(make_run(), points, [p["framework__beta"] for p in points]))
    assert set(bars) == {"beta", "learning_rate", "seed", REST}


def test_seeds_that_do_not_repeat_are_left_out_and_it_is_reported(make_run):
    points = grid(framework__beta=(1.0, 2.0), model__latents=range(2, 8))
    points = [{**point, "seed": i} for i, point in enumerate(points)]
    _, caption, bars = drawn(trials(make_run(), points, np.random.default_rng(0).uniform(size=12)))
    assert set(bars) == {"beta", "latents", REST}
    assert "The seed is left out" in caption.text
    assert "is chance" not in caption.text


def test_a_key_and_the_seed_are_enough(make_run):
    points = grid(framework__beta=(1.0, 2.0), seed=range(4))
    _, caption, bars = drawn(trials(make_run(), points, [p["framework__beta"] + 0.1 * p["seed"] for p in points]))
    assert list(bars) == ["beta", "seed", REST]
    assert "The share of the seed is chance." in caption.text


def test_of_many_keys_the_least_are_left_out(make_run, monkeypatch):
    monkeypatch.setattr(importance, "MOST_BARS", 2)
    points = grid(framework__beta=(0.0, 1.0), model__latents=(2, 3), training__batch_size=(8, 16), seed=range(3))
    values = [9 * p["framework__beta"] + 3 * p["model__latents"] + p["training__batch_size"] / 8 for p in points]
    _, caption, bars = drawn(trials(make_run(), points, values))
    assert MOST_BARS == 16
    assert list(bars) == ["beta", "latents", REST]
    assert sum(bars.values()) == pytest.approx(1)
    assert "2 more keys account for less." in caption.text


# ---- picture


@pytest.mark.slow
def test_bars_are_sorted_with_the_rest_last_and_labelled(make_run):
    maker = make_run()
    study(maker, seeds=2)
    figure, _, bars = drawn(scores_of(maker).only("arm == 'plain'"))
    lengths = list(bars.values())
    assert set(bars) == {"framework.name", "dataset.name", "beta", "latents", "seed", REST}
    assert list(bars)[-1] == REST
    assert lengths[:-1] == sorted(lengths[:-1], reverse=True)
    assert [text.get_text() for text in figure.axes[0].texts] == [f"{length:.0%}" for length in lengths]
    assert figure.axes[0].get_xlabel() == "share in the forest's MIG (n = 64)"


def test_optuna_is_quiet_and_stays_as_loud_as_it_was(make_run, capfd):
    scores = trials(make_run(), grid(framework__beta=(1.0, 2.0), seed=range(4)), range(8))
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        drawn(scores)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(before)
    assert capfd.readouterr() == ("", "")


def test_only_remarks_on_experiments_are_silenced(make_run, monkeypatch):
    def loud(*_, **__):
        warnings.warn("something else", UserWarning, stacklevel=1)

    monkeypatch.setattr(importance, "get_param_importances", loud)
    scores = trials(make_run(), grid(framework__beta=(1.0, 2.0), seed=range(4)), range(8))
    with pytest.raises(UserWarning, match="something else"):
        drawn(scores)


# ---- arms


def two_arms(maker, count=4):
    """Beta moves the score in the first arm only; the arms differ in their width by far more."""
    rng = np.random.default_rng(0)
    for arm, width, slope in (("plain", 64, 3.0), ("wide", 128, 0.0)):
        for point in grid(framework__beta=(0.0, 1.0, 2.0, 3.0), seed=range(count)):
            value = width + slope * point["framework__beta"] + 0.1 * rng.normal()
            quick_trial(maker, [{"step": 1, "mig": value}], arm, model__width=width, **point)
    return scores_of(maker)


def test_each_arm_is_explained_by_itself_so_what_arms_differ_in_has_no_bar(make_run):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, two_arms(make_run()), Importance())
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    names = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    lengths = [[patch.get_width() for patch in axes.patches] for axes in figure.axes]
    found = [dict(zip(*pair, strict=True)) for pair in zip(names, lengths, strict=True)]
    assert titles == ["plain (n = 16)", "wide (n = 16)"]
    assert all("width" not in bars for bars in found)
    assert found[0]["beta"] > 0.9
    assert found[1]["beta"] < 0.5
    assert caption.title == "Which keys MIG depends on within each arm"
    assert "all 16 trials of plain" in caption.text
    assert "not the variance explained" in caption.text
    assert "With only 16 trials" in caption.text


def test_no_label_of_several_arms_is_cut_off_at_the_edge(make_run):
    with canvas.style():
        figure = canvas.figure()
        KIND.draw(figure, two_arms(make_run()), Importance())
        canvas.png(figure)
    (label,) = (text for text in figure.findobj(Text) if text.get_text().startswith("share"))
    texts = [label, *(text for axes in figure.axes for text in axes.texts)]
    ends = np.array([text.get_window_extent().corners() for text in texts])
    assert ends.min() >= 0
    assert (ends.max(axis=(0, 1)) <= figure.bbox.size).all()


def test_an_arm_with_few_trials_and_many_arms_are_refused_with_a_sentence(make_run):
    with pytest.raises(NothingToDraw, match="within each arm, but in arm plain, importance needs 8 trials"):
        drawn(two_arms(make_run("few"), count=1))
    maker = make_run("many")
    for arm in range(5):
        quick_trial(maker, [{"step": 1, "mig": 0.1 * arm}], f"arm{arm}", model__latents=2 + arm)
    with pytest.raises(NothingToDraw, match="there are 5; choose one with only: \"arm == 'arm0'\""):
        drawn(scores_of(maker))


# ---- large, odd and empty runs


@pytest.fixture(scope="module")
def thousand():
    """Trials as the forest gets them."""
    rng = np.random.default_rng(0)
    codes = pd.DataFrame({f"key{i}": rng.integers(0, 8, 1000) for i in range(8)})
    return importance.Design(codes, 3.0 * codes["key0"].to_numpy() + codes["key1"].to_numpy() + rng.normal(size=1000))


def test_a_thousand_trials_take_seconds_and_a_sample_tells_the_same(thousand):
    count, trees = importance._affordable(thousand)
    assert count < 1000
    started = time.process_time()
    found = importance._shares(importance._sampled(thousand, count), trees)
    assert time.process_time() - started < 3
    # variances 9 : 1, and noise of 1 beside (9 + 1) * 63 / 12
    assert dict(found)["key0"] == pytest.approx(9 / (10 + 12 / 63), abs=0.06)  # a sample of 200 trials
    assert [key for key, _ in found[:2]] == ["key0", "key1"]


def test_a_sample_is_the_same_whenever_it_is_drawn_and_keeps_trials_whole(thousand):
    first, second = importance._sampled(thousand, 200), importance._sampled(thousand, 200)
    assert first.codes.equals(second.codes)
    assert (thousand.value[first.codes.index] == first.value).all()
    assert first.codes.index.nunique() == 200


def test_a_sample_is_reported(make_run, monkeypatch):
    monkeypatch.setattr(importance, "WORK", 16 * 16 * (2 + 10))  # trees, trials, values of both keys
    scores = trials(make_run(), grid(framework__beta=(1.0, 2.0), seed=range(10)), range(20))
    assert "16 of the 20 trials, drawn once (16 trees)" in drawn(scores)[1].text


def test_huge_and_tiny_scores_have_shares(make_run):
    points = grid(framework__beta=(1.0, 2.0), seed=range(4))
    for name, scale in (("huge", 1e200), ("tiny", 1e-200)):
        scores = trials(make_run(name), points, [scale * (p["framework__beta"] + 0.1 * p["seed"]) for p in points])
        assert drawn(scores)[2]["beta"] > 0.5


def test_a_forest_that_knows_nothing_is_reported(make_run, monkeypatch):
    def same(*_, **__):
        raise RuntimeError("Encountered zero total variance in all trees.")

    monkeypatch.setattr(importance, "get_param_importances", same)
    with pytest.raises(NothingToDraw, match="no key explains"):
        drawn(trials(make_run(), grid(framework__beta=(1.0, 2.0), seed=range(4)), range(8)))


@pytest.mark.parametrize(("points", "values", "reason"), [
    (grid(framework__beta=(1.0, 2.0, 3.0), model__latents=(2, 3)), range(6), "8 trials that have mig, but there are 6"),
    (grid(framework__beta=(1.0, 2.0, 3.0), seed=range(3)), [0.7] * 9, "same mig"),
    (grid(framework__beta=(1.0, 2.0, 3.0), seed=range(3)), [0.7 + 1e-15 * i for i in range(9)], "same mig"),  # rounding
    (grid(framework__beta=[float(i) for i in range(9)]), range(9), "two keys"),
    (grid(seed=range(9)), range(9), "two keys"),
    (grid(framework__beta=(1.0, 2.0, 3.0), seed=range(3)), [float("nan")] * 9, "no trial has reported"),
    (grid(framework__beta=(1.0, 2.0, 3.0), seed=range(3)), [float("inf")] * 2 + [1.0] * 7, "there are 7"),
    ([], [], "no trial has reported"),
])  # fmt: skip
def test_runs_with_nothing_to_explain_choose_nothing_and_say_why(make_run, points, values, reason):
    scores = trials(make_run(), points, values)
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match=reason):
        drawn(scores)
