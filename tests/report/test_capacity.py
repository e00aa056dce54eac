"""What a growing capacity is spent on, from the rows of annealed VAEs."""

import numpy as np
import pytest
import scipy

from conftest import RunMaker
from disentune.report import canvas, capacity
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import Capacity
from disentune.spec.settings import Objective
from run_examples import quick_trial

STEPS = (500, 1000, 1500)


def rows(shift, names=("x", "scale"), suffix=""):
    """Position takes its nats early, scale late; `shift` tells seeds apart."""
    spent = {500: [2.0, 0.0], 1000: [3.0, 0.5], 1500: [3.5, 2.0]}
    return [
        {"step": step, "loss": 1.0, "mig": 0.5, "watch_capacity": step / 250, f"kl_per_factor{suffix}": 1.0,
         "details": {f"kl_per_factor_values{suffix}": [value + shift for value in spent[step]],
                     f"kl_per_factor_names{suffix}": list(names)}}
        for step in STEPS
    ]  # fmt: skip


@pytest.fixture
def scores_of(tmp_path):
    def make(trials):
        maker = RunMaker(tmp_path / "runs" / "demo" / "main")
        maker.sweep()
        for own, changes in trials:
            quick_trial(
                maker, own, framework__name="annealed_vae", framework__beta=..., framework__c_max=6.0, **changes
            )
        return RunScores(read(maker.run), Objective(metric="mig", mode="max"))

    return make


def drawn(scores):
    with canvas.style():
        figure = canvas.figure()
        caption = capacity.draw(figure, scores, Capacity())
        return figure, caption


@pytest.mark.parametrize("suffix", ["", "_fast"])
def test_lines_are_means_over_seeds_at_each_capacity(scores_of, suffix):
    figure, caption = drawn(
        scores_of([(rows(shift, suffix=suffix), {"seed": seed}) for seed, shift in enumerate((0, 1, 5))])
    )
    (axes,) = figure.axes
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert list(lines) == ["x", "scale"]
    for name, values in (("x", [2.0, 3.0, 3.5]), ("scale", [0.0, 0.5, 2.0])):
        at, mean = lines[name].T
        np.testing.assert_allclose(mean, np.interp(at, [2, 4, 6], values) + 2)
        assert (at[0], at[-1]) == (2, 6)
    assert "95 % t intervals" in caption.text


def test_bands_are_t_intervals(scores_of):
    shifts = np.array([0.0, 1.0, 5.0])
    figure, _ = drawn(scores_of([(rows(shift), {"seed": seed}) for seed, shift in enumerate(shifts)]))
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    at_end = band[np.isclose(band[:, 0], 6), 1]
    expected = scipy.stats.t.interval(0.95, 2, loc=3.5 + shifts.mean(), scale=scipy.stats.sem(shifts))
    assert (at_end.min(), at_end.max()) == pytest.approx(expected)


def test_settings_have_panels_of_their_own(scores_of):
    trials = [(rows(0), {"seed": seed, "framework__gamma": gamma}) for seed in (0, 1) for gamma in (10.0, 100.0)]
    figure, _ = drawn(scores_of(trials))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["gamma 10 (n = 2)", "gamma 100 (n = 2)"]


def test_it_is_chosen_where_a_capacity_grows(scores_of):
    assert capacity.choose(scores_of([(rows(0), {})])) == [Capacity()]


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {key: value for key, value in row.items() if key != "watch_capacity"},
        lambda row: {**row, "details": {}},
        lambda row: {**row, "details": {"kl_per_factor_values": "x", "kl_per_factor_names": 3}},
        lambda row: {**row, "details": {"kl_per_factor_values": [None, "a"], "kl_per_factor_names": ["x", "y"]}},
    ],
)
def test_rows_without_it_or_with_nonsense_draw_nothing(scores_of, change):
    scores = scores_of([([change(row) for row in rows(0)], {})])
    assert capacity.choose(scores) == []
    with pytest.raises(NothingToDraw, match="train annealed_vae and evaluate kl_per_factor"):
        drawn(scores)
