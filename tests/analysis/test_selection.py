"""How often a chosen setting wins: against the published procedure, enumerated, and closed forms."""

from itertools import product

import numpy as np
import pytest

from disentune.analysis import selection
from disentune.errors import ConfigError
from study_examples import METRICS, study


def enumerated(frame, same_metric, same_dataset):
    """The published procedure with every draw that it may make, one after another."""
    scores = {
        (name, metric): trials.set_index(["method", "strength", "seed"])[metric].to_dict()
        for name, trials in frame.groupby("dataset")
        for metric in METRICS
    }
    wins = []
    for ((name, metric), source), ((other_name, other_metric), target) in product(scores.items(), repeat=2):
        if (metric == other_metric, name == other_name) != (same_metric, same_dataset):
            continue
        for seed in {key[2] for key in source}:
            best = max((key for key in source if key[2] == seed), key=source.get)
            for ours in (score for key, score in target.items() if key[:2] == best[:2] and key[2] != seed):
                wins.append(np.mean([(ours > rival) + (ours == rival) / 2 for rival in target.values()]))
    return np.mean(wins)


def all_seeds(frame):
    return frame


def other_seeds(frame):
    return frame.assign(seed=frame["seed"] + 10 * (frame["dataset"] == "data1"))


def fewer_seeds(frame):
    return frame[(frame["dataset"] != "data1") | (frame["seed"] < 2)]


def holes(frame):
    return frame.drop(index=[0, 5, 9, 20, 33])


@pytest.mark.parametrize("change", [all_seeds, other_seeds, fewer_seeds, holes])
def test_every_comparison_is_counted_that_the_published_procedure_may_draw(change):
    frame = change(study(datasets=3, setting=1.0, seeds=3, methods=2, strengths=2).round(1))  # some scores tie
    rows = selection(frame).set_index(["same_metric", "same_dataset"])
    assert len(rows) == 4
    for kind in rows.index:
        assert rows.loc[kind, "value"] == pytest.approx(enumerated(frame, *kind))


def test_without_one_of_its_seeds_a_data_set_may_have_nothing_to_compare():
    """The second data set has one seed of its own, so only two of three seeds can be left out in the first."""
    frame = study(datasets=2, setting=1.0, seeds=3)
    frame = frame[(frame["dataset"] == "data0") == (frame["seed"] < 2)]
    rows = selection(frame).set_index(["same_metric", "same_dataset"])
    assert rows.loc[(True, True), "value"] == pytest.approx(enumerated(frame, True, True))
    assert np.isnan(rows.loc[(True, True), "high"])


def test_random_scores_win_half_of_the_time():
    rows = selection(study(datasets=7, methods=6, strengths=6, seeds=50))
    assert rows["value"].between(0.49, 0.51).all()
    assert len(rows) == 4
    assert set(rows["n"]) == {12_600}


def test_settings_without_noise_win_except_for_ties_with_themselves():
    rows = selection(study(methods=6, strengths=6, noise=0.0, setting=1.0))
    np.testing.assert_allclose(rows["value"], 1 - 1 / 72)


@pytest.mark.parametrize(("share", "value"), [(0.25, 0.645), (0.5, 0.787), (0.75, 0.901)])
def test_the_share_of_the_setting_decides_how_often_it_wins(share, value):
    """Normal effects of 36 settings that have this share of the variance; Monte Carlo values, 0.005 exact."""
    found = [
        selection(study(1, 6, 6, 20, setting=share**0.5, noise=(1 - share) ** 0.5, metrics=["mig"], rng=rng))["value"][
            0
        ]
        for rng in range(40)
    ]
    assert np.mean(found) == pytest.approx(value, abs=0.02)


@pytest.mark.slow
def test_the_mean_of_other_seeds_chooses_better_than_one():
    frames = [study(1, 6, 6, 50, setting=1.0, metrics=["mig"], rng=rng) for rng in range(20)]
    found = {by: np.mean([selection(one, by=by)["value"][0] for one in frames]) for by in ("seed", "mean")}
    assert found["mean"] == pytest.approx(0.882, abs=0.02)
    assert found["seed"] < found["mean"] - 0.05


def test_missing_trials_are_left_out():
    frame = study(setting=1.0, seeds=6)
    rows = selection(frame.drop(index=[3, 50, 77]))
    np.testing.assert_allclose(rows["value"], selection(frame)["value"], atol=0.05)
    assert set(rows["n"]) == {len(frame) - 3}


def test_the_interval_is_by_a_jackknife_over_seeds():
    """Against the textbook: pseudo-values n * whole - (n - 1) * without one."""
    frame = study(setting=1.0, datasets=1, metrics=["mig"], seeds=5)
    row = selection(frame).iloc[0]
    without = [selection(frame[frame["seed"] != seed])["value"][0] for seed in range(5)]
    pseudo = 5 * row["value"] - 4 * np.array(without)
    half = 2.7764451 * pseudo.std(ddof=1) / np.sqrt(5)
    assert row["high"] - row["value"] == pytest.approx(min(half, 1 - row["value"]))


def test_one_data_set_has_no_other():
    assert selection(study(datasets=1))["same_dataset"].tolist() == [True, True]


def test_two_seeds_have_no_interval():
    assert np.isnan(selection(study(seeds=2))[["low", "high"]]).all(axis=None)


def test_one_seed_is_refused():
    with pytest.raises(ConfigError, match="the table has only one seed"):
        selection(study(seeds=1))
