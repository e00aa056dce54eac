"""Verdicts are pure functions of rows, in sweep order."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from disentune.maths.randomness import stream
from disentune.runs.verdicts import History, Member, Replicates, milestones, moves, verdict
from disentune.spec.settings import Asha, Median, NoScheduler, Pbt
from disentune.spec.space import draw
from disentune.spec.sweepfile import Domain

ASHA = Asha(name="asha", grace=10, reduction=2)
MEDIAN = Median(name="median", grace=10, min_trials=2)


def seed(values, ended=False, mode="max"):
    made = History(ended=ended)
    for step, value in values.items():
        made.add(step, value, mode)
    return made


def history(values, ended=False, mode="max"):
    """A point of one seed."""
    return Replicates([seed(values, ended, mode)])


def test_the_first_trial_always_continues():
    assert verdict(ASHA, history({10: -5.0}), [], 10) == "go"


@pytest.mark.parametrize(("value", "expected"), [(0.05, "stop"), (0.25, "stop"), (0.35, "go"), (0.5, "go")])
def test_asha_keeps_the_best_half_of_the_trials_so_far(value, expected):
    # With three trials before it, floor(4 / 2) = 2 of the four go on: it must beat all but one.
    before = [history({10: v}) for v in (0.1, 0.3, 0.4)]
    assert verdict(ASHA, history({10: value}), before, 10) == expected


def test_asha_lets_a_tie_continue():
    assert verdict(ASHA, history({10: 0.4}), [history({10: 0.4})], 10) == "go"


def test_a_trial_waits_for_the_trials_before_it_and_no_others():
    unsettled = history({5: 0.9})
    assert verdict(ASHA, history({10: 0.4}), [unsettled], 10) == "wait"
    assert verdict(ASHA, history({10: 0.4}), [history({5: 0.9}, ended=True)], 10) == "go"


def test_a_minimised_objective_is_turned_round_and_nan_is_the_worst():
    low, high, broken = (history({10: value}, mode="min") for value in (1.0, 2.0, math.nan))
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


# ---- several seeds of a point


def test_a_point_is_judged_by_the_mean_of_its_seeds():
    # 0.5 and 0.1 have the mean 0.3: worse than 0.31 and better than 0.29, whatever its best seed does.
    point = Replicates([seed({10: 0.5}), seed({10: 0.1})])
    assert verdict(ASHA, point, [history({10: 0.31})], 10) == "stop"
    assert verdict(ASHA, point, [history({10: 0.29})], 10) == "go"


@pytest.mark.parametrize("scheduler", [ASHA, MEDIAN])
def test_a_point_waits_until_every_seed_has_a_value_or_has_ended(scheduler):
    lags, failed = seed({5: 0.9}), seed({5: 0.9}, ended=True)
    assert verdict(scheduler, Replicates([seed({10: 0.4}), lags]), [], 10) == "wait"
    assert verdict(scheduler, history({10: 0.4}), [Replicates([seed({10: 0.1}), lags])], 10) == "wait"
    assert verdict(scheduler, Replicates([seed({10: 0.4}), failed]), [], 10) == "go"
    assert verdict(scheduler, history({10: 0.4}), [Replicates([seed({10: 0.1}), failed])], 10) == "go"


def test_a_seed_that_has_failed_does_not_count_in_the_mean():
    point = Replicates([seed({10: 0.4}), seed({5: 0.0}, ended=True)])
    assert verdict(ASHA, point, [history({10: 0.3})], 10) == "go"
    assert verdict(ASHA, point, [history({10: 0.5})], 10) == "stop"


def test_a_point_of_which_no_seed_got_so_far_is_not_a_peer():
    failed = Replicates([seed({5: 0.9}, ended=True)] * 2)
    assert verdict(ASHA, history({10: 0.4}), [failed], 10) == "go"


def test_a_seed_without_a_number_makes_its_point_the_worst():
    for broken in ([0.9, math.nan], [math.inf, -math.inf]):
        point = Replicates([seed({10: value}) for value in broken])
        assert verdict(ASHA, point, [history({10: -5.0})], 10) == "stop"


def test_median_takes_means_over_seeds_at_each_step():
    # Over seeds the peers have 0.2, 0.4 and 0.3, 0.7 at steps 10 and 20: running means 0.3 and 0.5, median 0.4.
    before = [
        Replicates([seed({10: 0.1, 20: 0.6}), seed({10: 0.3, 20: 0.2})]),
        Replicates([seed({10: 0.6, 20: 0.7}), seed({10: 0.0, 20: 0.7})]),
    ]
    # The best mean over seeds decides, not the best seed: 0.9 and -0.08 have the mean 0.41.
    assert verdict(MEDIAN, Replicates([seed({10: 0.9, 20: 0.0}), seed({10: -0.08, 20: 0.0})]), before, 20) == "go"
    assert verdict(MEDIAN, Replicates([seed({10: 0.9, 20: 0.0}), seed({10: -0.12, 20: 0.0})]), before, 20) == "stop"


# ---- milestones


def test_milestones_are_the_rungs_on_steps_that_report(trial_with):
    trial = trial_with(training__steps=1000, evaluation__every=50)
    assert milestones(Asha(name="asha", grace=50, reduction=3), trial, "mig") == [50, 150, 450]
    assert milestones(Asha(name="asha", grace=50, reduction=2.5), trial, "mig") == [50, 150, 350, 800]
    assert list(milestones(Median(name="median", grace=900), trial, "mig")) == [900, 950]
    assert list(milestones(Pbt(name="pbt", every=400, keys=["framework.beta"]), trial, "mig")) == [400, 800]
    assert list(milestones(NoScheduler(), trial, "mig")) == []


@pytest.mark.parametrize(
    "scheduler", [Median(name="median", grace=1), Pbt(name="pbt", every=1, keys=["framework.beta"])]
)
def test_milestones_of_millions_of_steps_take_no_memory(trial_with, scheduler):
    trial = trial_with(training__steps=10**7, training__log_every=1)
    tracemalloc.start()
    found = milestones(scheduler, trial, "loss")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
    assert (found[0], found[-1], len(found)) == (1, 10**7 - 1, 10**7 - 1)


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


def test_a_copied_value_is_perturbed_by_a_fifth_or_drawn_again_within_its_range():
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


# ---- a step on a list or among whole numbers

STEPPING = Pbt(name="pbt", every=10, keys=["framework.beta"], quantile=0.25, resample=0)


def stepped(domain, value, steps=40):
    """What the only copy of a source that has this value gets, at many steps."""
    members = [Member(f"t{i}", float(i), {"framework.beta": value}) for i in range(4)]
    made = (moves(STEPPING, "p", step, members, {"framework.beta": domain}) for step in range(steps))
    return {move["values"]["framework.beta"] for generation in made for move in generation.values()}


@pytest.mark.parametrize("kind", ["grid", "choice"])
@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ([1.0, 10.0, 100.0], 10.0, {1.0, 100.0}),
        ([100.0, 1.0, 10.0], 10.0, {1.0, 100.0}),
        ([1.0, 1.1, 1.2, 1.3, 1.4], 1.2, {1.1, 1.3}),
        ([-4, -2, 0, 3], 0, {-2, 3}),
        ([1, 10, 100], 10.0, {1, 100}),
        ([1.0, 10.0, 100.0], 20.0, {10.0, 100.0}),
    ],
)
def test_a_copy_takes_a_neighbouring_value_of_the_list_in_the_order_of_the_numbers(kind, values, value, expected):
    assert stepped(Domain(**{kind: values}), value) == expected


@pytest.mark.parametrize(("value", "expected"), [(1.0, {10.0}), (100.0, {10.0})])
def test_at_the_end_of_a_list_a_copy_moves_inward_so_that_it_differs_from_its_source(value, expected):
    assert stepped(Domain(grid=[1.0, 10.0, 100.0]), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, {2}), (2, {1, 3}), (0, {1}), (3, {2, 4}), (10, {8}), (7, {6, 8}), (9, {7, 10})],
)
def test_whole_numbers_move_by_a_fifth_and_at_least_by_one_within_their_range(value, expected):
    low = min(value, 1)
    assert stepped(Domain(int=[low, 10]), value) == expected


def test_negative_whole_numbers_move_too():
    assert stepped(Domain(int=[-5, 5]), -1) == {-2, 0}
    assert stepped(Domain(int=[-5, 5]), -5) == {-4}


def test_a_range_of_whole_numbers_gives_whole_numbers_to_a_parameter_with_a_fraction_too():
    assert stepped(Domain(int=[1, 10]), 2.0) == {1.0, 3.0}


@pytest.mark.parametrize("domain", [Domain(grid=[3.0]), Domain(choice=[3]), Domain(int=[3, 3])])
def test_a_domain_of_one_value_has_nowhere_to_move(domain):
    assert stepped(domain, 3) == {3}


@pytest.mark.parametrize("values", [[1.0, 10.0, 100.0], [100.0, 1.0, 10.0, 1000.0]])
@pytest.mark.parametrize("value", [1.0, 10.0, 100.0])
def test_two_copies_of_one_source_take_different_values_of_a_list(values, value):
    """Copies share their seed, so with equal values they would train to the same bits."""
    members = [Member(f"t{i}", float(i), {"framework.beta": value}) for i in range(8)]
    seen = set()
    for step in range(100):
        made = [*moves(PBT, "p", step, members, {"framework.beta": Domain(grid=values)}).values()]
        assert made[0] != made[1]
        assert all(move["values"]["framework.beta"] in values for move in made)
        seen.add(made[0]["source"] == made[1]["source"])
    assert seen == {True, False}


def test_two_copies_differ_in_one_of_several_lists_if_the_first_has_no_other_value():
    lists = {"framework.beta": Domain(grid=[1.0]), "training.learning_rate": Domain(choice=[0.1, 0.2])}
    scheduler = STEPPING.model_copy(update={"keys": list(lists)})
    members = [Member(f"t{i}", float(i), {"framework.beta": 1.0, "training.learning_rate": 0.1}) for i in range(8)]
    for step in range(40):
        made = moves(scheduler, "p", step, members, lists)
        # a list of two values has one neighbour only, and a copy with the values of its source would be the source
        assert all(move["values"] == {"framework.beta": 1.0, "training.learning_rate": 0.2} for move in made.values())


def naive_moves(scheduler, population, step, members, domain):
    """The published rule for ranges, draw by draw: which sources, which values, and from which random numbers."""
    ranked = sorted(members, key=lambda member: (-member.value, member.trial_id))
    rng = stream(scheduler.seed, f"pbt/{population}", step)
    count = max(1, int(scheduler.quantile * len(ranked)))
    made = {}
    for loser in ranked[-count:]:
        source = ranked[int(rng.integers(count))]
        anew, up, number = rng.uniform() < scheduler.resample, rng.uniform() < 0.5, int(rng.integers(2**31))
        value = source.values["framework.beta"] * (1.2 if up else 0.8)
        if domain.kind != "normal":
            value = sorted([domain.values[0], value, domain.values[1]])[1]
        value = draw(domain, scheduler.seed, "pbt/framework.beta", number) if anew else value
        made[loser.trial_id] = {"source": source.trial_id, "values": {"framework.beta": value}}
    return made


@pytest.mark.parametrize("domain", [Domain(uniform=[0.02, 0.07]), Domain(log_uniform=[1e-4, 1]), Domain(normal=[0, 1])])
def test_ranges_with_fractions_keep_their_moves_to_the_bit(domain):
    for step in range(100):
        expected = naive_moves(PBT, "p", step, EIGHT, domain)
        assert moves(PBT, "p", step, EIGHT, {"framework.beta": domain}) == expected


@pytest.mark.parametrize("kind", ["grid", "int"])
def test_sources_and_new_draws_do_not_depend_on_how_a_value_moves(kind):
    """Random numbers are taken in the same order for every kind of domain."""
    domain = Domain(grid=[0.01, 0.02]) if kind == "grid" else Domain(int=[1, 9])
    for step in range(50):
        made, other = (moves(PBT, "p", step, EIGHT, {"framework.beta": d}) for d in (domain, BETA["framework.beta"]))
        assert {t: move["source"] for t, move in made.items()} == {t: move["source"] for t, move in other.items()}
