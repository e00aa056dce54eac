import numpy as np
import pytest
from matplotlib.collections import PathCollection

from disentune.report import canvas
from disentune.report.parallel import KIND, MOST_NAMES, NOWHERE
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Parallel
from disentune.spec.settings import Objective
from run_examples import quick_trial


@pytest.fixture
def scores(scores_of_study):
    return scores_of_study(seeds=2)


def scores_of(maker, mode="max"):
    return RunScores(read(maker.run), Objective(metric="mig", mode=mode))


def trials(maker, changes, values, mode="max"):
    for change, value in zip(changes, values, strict=True):
        quick_trial(maker, [{"step": 1, "mig": value}], **change)
    return scores_of(maker, mode)


def drawn(scores, **asked):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, Parallel(**asked))
        figure.draw_without_rendering()
    return figure, caption


def lines(figure):
    """The heights of every trial on the axes, as drawn: the last is its score's."""
    collection = next(part for part in figure.axes[0].collections if isinstance(part, PathCollection))
    paths = [path.vertices[::3] for path in collection.get_paths()]
    assert all(path[:, 0].tolist() == list(range(len(path))) for path in paths)
    return np.array([path[:, 1] for path in paths])


def titles(figure):
    return [text.get_text().replace("\n", " ") for text in figure.axes[0].texts if text.get_position()[1] > 1]


def ticks(figure, place):
    """Labels of an axis by their height."""
    found = [text for text in figure.axes[0].texts if text.get_position()[1] <= 1]
    return {round(text.get_position()[1], 6): text.get_text() for text in found
            if place - 0.5 < text.get_position()[0] < place}  # fmt: skip


def bar(figure):
    return figure.axes[0].child_axes[0]


# ---- lines


def test_numbers_stand_where_they_are_between_the_smallest_and_the_largest(make_run):
    grid = [{"model__latents": latents, "framework__beta": beta} for latents, beta in [(2, 0.01), (4, 1.0), (10, 0.1)]]
    found = lines(drawn(trials(make_run(), grid, [0.0, 0.5, 2.0]))[0])
    # latents from 2 to 10 on a plain scale; beta over two magnitudes on a logarithmic one; scores from 0 to 2
    assert found == pytest.approx(np.array([[0.0, 0.0, 0.0], [0.25, 1.0, 0.25], [1.0, 0.5, 1.0]]))


def test_ticks_are_at_the_height_of_their_values(make_run):
    grid = [{"model__latents": latents, "framework__beta": beta} for latents, beta in [(2, 0.01), (4, 1.0), (10, 0.1)]]
    figure, _ = drawn(trials(make_run(), grid, [0.0, 0.5, 2.0]))
    assert titles(figure) == ["latents", "beta"]
    assert ticks(figure, 0) == {0.0: "2", 0.25: "4", 1.0: "10"}
    assert ticks(figure, 1) == {0.0: "0.01", 0.5: "0.1", 1.0: "1"}


def test_many_numbers_have_ticks_at_round_values(make_run):
    rng = np.random.default_rng(0)
    grid = [{"framework__beta": 10 ** rng.uniform(-4, 0), "training__batch_size": int(rng.integers(20, 260))}
            for _ in range(40)]  # fmt: skip
    scores = trials(make_run(), grid, rng.uniform(size=40))
    figure, _ = drawn(scores)
    for place, (key, scale) in enumerate([("framework.beta", np.log), ("training.batch_size", np.asarray)]):
        low, high = scale(scores.trials[key].min()), scale(scores.trials[key].max())
        assert len(ticks(figure, place)) >= 3
        for height, label in ticks(figure, place).items():
            assert (scale(float(label)) - low) / (high - low) == pytest.approx(height, abs=1e-6)  # as rounded above
    assert set(ticks(figure, 0).values()) <= {"0.0001", "0.001", "0.01", "0.1", "1"}


def test_few_decades_have_several_ticks_and_whole_numbers_whole_ticks(make_run):
    grid = [{"framework__beta": 2e-4 * 1.1**i, "dataset__spacing": 1 + i % 8} for i in range(40)]
    figure, _ = drawn(trials(make_run(), grid, range(40)))
    found = {tick for place in (0, 1) for tick in ticks(figure, place).values()}
    assert found == {"0.0002", "0.0005", "0.001", "0.002", "0.005", "2", "4", "6", "8"}


def test_ticks_that_would_touch_are_left_out(make_run):
    grid = [{"model__latents": latents, "framework__beta": beta} for latents, beta in [(1, 1.0), (2, 2.0), (100, 3.0)]]
    assert list(ticks(drawn(trials(make_run(), grid, [0, 1, 2]))[0], 0).values())[-1] == "100"
    grid = [{"model__latents": latents, "framework__beta": beta} for latents, beta in [(10, 1.0), (11, 2.0), (99, 3.0)]]
    assert list(ticks(drawn(trials(make_run("near"), grid, [0, 1, 2]))[0], 0).values()) == ["10", "99"]


def test_names_are_evenly_spaced_from_the_top(make_run):
    names = ["beta_vae", "ada_gvae", "ada_ml_vae"]
    grid = [{"framework__name": name, "framework__beta": 1.0 + i} for i, name in enumerate(names)]
    figure, _ = drawn(trials(make_run(), grid, [0.1, 0.2, 0.3]))
    assert ticks(figure, 0) == {0.833333: "ada_gvae", 0.5: "ada_ml_vae", 0.166667: "beta_vae"}
    assert lines(figure)[:, 0] == pytest.approx([1 / 6, 5 / 6, 1 / 2])


def test_trials_of_the_same_value_are_spread_by_score_within_their_place(make_run):
    grid = [{"framework__name": name, "seed": seed} for name in ("ada_gvae", "beta_vae") for seed in range(10)]
    values = np.random.default_rng(0).uniform(size=20)
    figure, _ = drawn(trials(make_run(), grid, values), keys=["framework.name", "seed"])
    found = lines(figure)[:, 0]
    for low, high in ((0, 0.5), (0.5, 1)):
        band = found[(found > low) & (found < high)]
        assert len(np.unique(band)) == 10
        assert (np.diff(band) > 0).all()  # rows are in the order of their scores
        assert band.mean() == pytest.approx((low + high) / 2)


def test_a_band_is_as_wide_as_it_has_trials(make_run):
    grid = [{"dataset__rgb": True, "seed": seed} for seed in range(11)]
    grid += [{"dataset__rgb": False, "seed": seed} for seed in range(2)]
    figure, _ = drawn(trials(make_run(), grid, np.arange(13.0)), keys=["dataset.rgb"])
    found = lines(figure)[:, 0]
    assert np.ptp(found[found > 0.5]) / np.ptp(found[found < 0.5]) == pytest.approx(2 / 11)
    assert list(ticks(figure, 0).values()) == ["False", "True"]


def test_missing_values_stand_apart_and_it_is_reported(make_run):
    maker = make_run()
    for radius in (None, 3, 11):
        loss = {"recon__name": "overlap", "recon__radius": radius, "recon__alpha": 9.0} if radius else {}
        quick_trial(maker, [{"step": 1, "mig": float(radius or 0)}], **loss)
    figure, caption = drawn(scores_of(maker), keys=["recon.radius"])
    assert lines(figure)[:, 0].tolist() == [NOWHERE, 0.0, 1.0]
    assert ticks(figure, 0) == {NOWHERE: "(none)", 0.0: "3", 1.0: "11"}
    assert "(none): the trial has no such key." in caption.text
    assert figure.axes[0].get_ylim()[0] < NOWHERE


# ---- scores


def test_colours_are_those_of_the_scores(make_run):
    grid = [{"model__latents": i + 1, "framework__beta": 1.0 + i % 2} for i in range(5)]
    figure, _ = drawn(trials(make_run(), grid, [0.3, 0.1, 0.5, 0.2, 0.4]))
    collection = next(part for part in figure.axes[0].collections if isinstance(part, PathCollection))
    expected = canvas.LINES((np.array([0.1, 0.2, 0.3, 0.4, 0.5]) - 0.1) / 0.4)
    assert collection.get_edgecolors()[:, :3] == pytest.approx(expected[:, :3])


@pytest.mark.parametrize(("mode", "order"), [("max", [0.0, 0.5, 1.0]), ("min", [1.0, 0.5, 0.0])])
def test_the_best_lie_on_top(make_run, mode, order):
    grid = [{"model__latents": i + 1, "framework__beta": 1.0 + i} for i in range(3)]
    figure, _ = drawn(trials(make_run(), grid, [0.2, 0.1, 0.3], mode))
    assert lines(figure)[:, -1] == pytest.approx(order)
    better = "higher" if mode == "max" else "lower"
    assert bar(figure).get_ylabel() == f"MIG ({better} is better)"


def test_the_colour_bar_is_the_last_axis(scores):
    figure, _ = drawn(scores)
    values = scores.results.trials["mig"]
    assert bar(figure).get_ylim() == pytest.approx((values.min(), values.max()))
    with canvas.style():
        figure.draw_without_rendering()
    place = figure.axes[0].transData.inverted().transform(bar(figure).get_window_extent())
    assert place[0] == pytest.approx([len(titles(figure)), 0])
    assert place[1][1] == pytest.approx(1)


def test_equal_scores_are_in_the_middle(make_run):
    grid = [{"model__latents": i + 1, "framework__beta": 1.0 + i} for i in range(3)]
    assert lines(drawn(trials(make_run(), grid, [0.5] * 3))[0])[:, -1] == pytest.approx([0.5] * 3)


# ---- keys


@pytest.mark.slow
def test_every_key_that_the_sweep_varies_is_an_axis(scores):
    assert KIND.choose(scores) == [Parallel()]
    figure, caption = drawn(scores)
    assert titles(figure) == ["arm", "dataset.name", "latents", "framework.name", "beta"]
    assert len(lines(figure)) == 128
    assert "Each of the 128 trials" in caption.text
    assert "Left out" not in caption.text


def test_of_too_many_keys_the_most_varied_are_drawn_and_the_others_said(make_run):
    keys = ["model__latents", "model__width", "training__batch_size", "training__steps", "training__learning_rate",
            "framework__beta", "evaluation__every", "evaluation__table", "dataset__image_size"]  # fmt: skip
    base = {"dataset__image_size": 64, "training__steps": 2000, "evaluation__table": 1000}
    grid = [{key: base.get(key, 8) + (i if key != "model__width" else i % 2) for key in keys} for i in range(6)]
    for change in grid:
        change["training__learning_rate"] /= 1000
    figure, caption = drawn(trials(make_run(), grid, range(6)))
    assert len(titles(figure)) == 8
    assert "width" not in titles(figure)
    assert "Not shown, because they have fewer values: width." in caption.text


def test_named_keys_stand_in_their_order_each_once(scores):
    figure, _ = drawn(scores, keys=["seed", "framework.beta", "arm", "seed"])
    assert titles(figure) == ["seed", "beta", "arm"]
    assert list(ticks(figure, 2).values()) == ["plain", "overlapping"]  # as in the file


def test_of_many_names_the_rare_share_a_place_and_it_is_reported(make_run):
    maker = make_run()
    for arm in range(MOST_NAMES + 3):
        for seed in range(1 if arm < 3 else 2):
            quick_trial(maker, [{"step": 1, "mig": arm}], f"arm{arm:02}", seed=100 * arm + seed)
    figure, caption = drawn(scores_of(maker), keys=["arm", "seed"])
    labels = list(ticks(figure, 0).values())
    assert labels == [*(f"arm{arm:02}" for arm in range(3, MOST_NAMES + 3)), "others"]
    assert (lines(figure)[:3, 0] < 1 / (MOST_NAMES + 1)).all()  # the three rare ones have the lowest scores
    assert "Beyond the 12 most frequent values: others (of arm)." in caption.text


def test_long_and_odd_names_are_cut_between_the_axes(make_run):
    maker = make_run()
    for seed, arm in enumerate(["$x^$ <script>", "é β " + "long " * 20]):
        quick_trial(maker, [{"step": 1, "mig": seed}], arm, seed=seed)
    figure, _ = drawn(scores_of(maker), keys=["seed", "arm"])
    assert list(ticks(figure, 1).values()) == ["$x^$ <script>", "é β long long…"[:13] + "…"]


# ---- odd runs


def test_one_trial_is_drawn_when_asked_for(make_run):
    scores = trials(make_run(), [{}], [0.5])
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw, match="a key that varies"):
        drawn(scores)
    figure, _ = drawn(scores, keys=["framework.beta", "framework.name"])
    assert lines(figure)[0] == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize(("asked", "reason"), [({"keys": ["framework.gamma"]}, "no trial has the key framework.gamma"),
                                               ({"metric": "udr"}, "no trial has reported udr")])  # fmt: skip
def test_what_cannot_be_drawn_is_reported(scores, asked, reason):
    with pytest.raises(NothingToDraw, match=reason):
        drawn(scores, **asked)


def test_one_key_is_not_chosen(make_run):
    grid = [{"framework__beta": 1.0 + i} for i in range(4)]
    assert KIND.choose(trials(make_run(), grid, range(4))) == []
