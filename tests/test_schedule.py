"""Verdicts are pure functions of rows, in sweep order."""

import itertools
import math

import numpy as np
import pytest

from disentune.schedule import History, Member, milestones, moves, verdict
from disentune.settings import Asha, Median, NoScheduler, Pbt
from disentune.sweepfile import Domain

ASHA = Asha(name="asha", grace=10, reduction=2)
MEDIAN = Median(name="median", grace=10, min_trials=2)


def history(values, ended=False):
    made = History(ended=ended)
    for step, value in values.items():
        made.add(step, value, "max")
    return made


def test_the_first_trial_always_goes_on():
    assert verdict(ASHA, history({10: -5.0}), [], 10) == "go"


@pytest.mark.parametrize(("value", "expected"), [(0.05, "stop"), (0.25, "stop"), (0.35, "go"), (0.5, "go")])
def test_asha_keeps_the_best_half_of_the_trials_so_far(value, expected):
    # With three trials before it, floor(4 / 2) = 2 of the four go on: it must beat all but one.
    before = [history({10: v}) for v in (0.1, 0.3, 0.4)]
    assert verdict(ASHA, history({10: value}), before, 10) == expected


def test_asha_lets_a_tie_go_on():
    assert verdict(ASHA, history({10: 0.4}), [history({10: 0.4})], 10) == "go"


def test_a_trial_waits_for_the_trials_before_it_and_no_others():
    unsettled = history({5: 0.9})
    assert verdict(ASHA, history({10: 0.4}), [unsettled], 10) == "wait"
    assert verdict(ASHA, history({10: 0.4}), [history({5: 0.9}, ended=True)], 10) == "go"


def test_a_minimised_objective_is_turned_round_and_nan_is_the_worst():
    low, high, broken = History(), History(), History()
    low.add(10, 1.0, "min")
    high.add(10, 2.0, "min")
    broken.add(10, math.nan, "min")
    assert verdict(ASHA, low, [high], 10) == "go"
    assert verdict(ASHA, high, [low], 10) == "stop"
    assert verdict(ASHA, broken, [high], 10) == "stop"


def test_median_compares_the_best_value_with_the_running_means_of_others():
    # Running means at step 20: (0.1+0.3)/2 = 0.2 and (0.5+0.7)/2 = 0.6; their median is 0.4.
    before = [history({10: 0.1, 20: 0.3}), history({10: 0.5, 20: 0.7})]
    assert verdict(MEDIAN, history({10: 0.41, 20: 0.0}), before, 20) == "go"
    assert verdict(MEDIAN, history({10: 0.39, 20: 0.0}), before, 20) == "stop"


def test_median_cuts_nobody_before_it_has_enough_trials_to_compare():
    assert verdict(MEDIAN, history({10: -9.0}), [history({10: 1.0})], 10) == "go"


def naive_asha(values, reduction):
    """Goes through the trials in sweep order and rung by rung, with sorted lists instead of counts."""
    kept = []
    for i, value in enumerate(values):
        ranking = sorted(values[: i + 1], reverse=True)
        kept.append(value >= ranking[max(1, int((i + 1) / reduction)) - 1])
    return kept


@pytest.mark.parametrize("reduction", [2, 3, 4])
def test_asha_equals_a_naive_ranking(reduction):
    values = np.random.default_rng(0).permutation(40).astype(float).tolist()
    histories = [history({10: value}) for value in values]
    scheduler = Asha(name="asha", grace=10, reduction=reduction)
    ours = [verdict(scheduler, h, histories[:i], 10) == "go" for i, h in enumerate(histories)]
    assert ours == naive_asha(values, reduction)


def test_milestones_are_the_rungs_on_steps_that_report(trial_with):
    trial = trial_with(training__steps=1000, evaluation__every=50)
    assert milestones(Asha(name="asha", grace=50, reduction=3), trial, "mig") == [50, 150, 450]
    assert milestones(Asha(name="asha", grace=50, reduction=2.5), trial, "mig") == [50, 150, 350, 800]
    assert milestones(Median(name="median", grace=900), trial, "mig") == [900, 950]
    assert milestones(Pbt(name="pbt", every=400, keys=["framework.beta"]), trial, "mig") == [400, 800]
    assert milestones(NoScheduler(), trial, "mig") == []


PBT = Pbt(name="pbt", every=10, keys=["framework.beta"], quantile=0.25)
BETA = {"framework.beta": Domain(log_uniform=[1e-4, 1.0])}
EIGHT = [Member(f"t{i}", float(i), {"framework.beta": 0.01 * (i + 1)}) for i in range(8)]


def test_the_worst_quarter_copies_the_best_quarter():
    made = moves(PBT, "all/seed 0", 10, EIGHT, BETA)
    assert set(made) == {"t0", "t1"}
    assert {move["source"] for move in made.values()} <= {"t6", "t7"}


def test_moves_depend_on_no_order_and_differ_between_steps():
    made = moves(PBT, "p", 10, EIGHT, BETA)
    for order in itertools.islice(itertools.permutations(EIGHT), 0, 2000, 199):
        assert moves(PBT, "p", 10, order, BETA) == made
    assert moves(PBT, "p", 20, EIGHT, BETA) != made


def test_a_copied_value_is_perturbed_by_a_fifth_or_drawn_anew_within_its_range():
    perturbed, anew = 0, 0
    for step in range(200):
        for move in moves(PBT, "p", step, EIGHT, BETA).values():
            source = next(member for member in EIGHT if member.trial_id == move["source"])
            value = move["values"]["framework.beta"]
            assert 1e-4 <= value <= 1.0
            ratio = value / source.values["framework.beta"]
            if math.isclose(ratio, 0.8) or math.isclose(ratio, 1.2):
                perturbed += 1
            else:
                anew += 1
    # 400 moves, a quarter of them drawn anew: 100 +- 4 standard deviations of 8.7.
    assert 65 < anew < 135
    assert perturbed + anew == 400


def test_values_on_a_grid_stay_on_it():
    grid = {"framework.beta": Domain(grid=[0.01, 0.07, 0.1])}
    for step in range(50):
        for move in moves(PBT, "p", step, EIGHT, grid).values():
            assert move["values"]["framework.beta"] in (0.01, 0.07, 0.1)
