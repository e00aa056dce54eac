"""Comparisons of arms: in pairs where seeds are shared, without a verdict where they are too few."""

import numpy as np
import pandas as pd
import pytest
import scipy

from disentune.analysis import compare, statistics
from disentune.errors import ConfigError
from study_examples import A, B

KEYS = {
    "a", "b", "n_a", "n_b", "paired", "difference", "low", "high", "p", "p_holm", "probability_of_improvement",
    "seeds_needed",
}  # fmt: skip


def trials(**arms):
    """Scores of each arm, of seeds 0, 1, ..."""
    rows = [
        {"arm": arm, "seed": seed, "mig": score} for arm, scores in arms.items() for seed, score in enumerate(scores)
    ]
    return pd.DataFrame(rows)


def test_ten_numbers_in_pairs():
    (pair,) = compare(trials(a=A, b=B), "arm", "mig").pairs
    assert (pair.a, pair.b, pair.n_a, pair.n_b, pair.paired) == ("a", "b", 5, 5, True)
    assert (pair.difference, pair.low, pair.high) == pytest.approx((0.03574, 0.00493, 0.06655), abs=1e-5)
    assert pair.correlation == pytest.approx(0.7384, abs=1e-4)
    assert pair.p == pair.p_holm == 0.125
    assert (pair.probability_of_improvement, pair.improvement_low, pair.improvement_high) == pytest.approx(
        (0.8, 0.44, 1)
    )
    assert pair.verdict == "cannot reach 5 % with 5 pairs (smallest p 0.0625)"


def test_other_seeds_are_not_pairs():
    frame = trials(a=A, b=B)
    frame.loc[frame["arm"] == "b", "seed"] += 10
    (pair,) = compare(frame, "arm", "mig").pairs
    theirs = scipy.stats.ttest_ind(A, B, equal_var=False).confidence_interval()
    assert not pair.paired
    assert (pair.low, pair.high) == pytest.approx(tuple(theirs))
    assert pair.p == pytest.approx(28 / 252)
    assert pair.verdict == "not resolved"
    assert np.isnan(pair.correlation)


def test_json_has_its_keys_and_null_for_what_is_unknown():
    shown = compare(trials(a=[1.0, 2.0], b=[0.0, 0.5]), "arm", "mig").as_json()
    assert list(shown) == ["metric", "by", "pairs"]
    assert set(shown["pairs"][0]) >= KEYS
    assert shown["pairs"][0]["p"] is shown["pairs"][0]["seeds_needed"] is None
    assert shown["pairs"][0]["difference"] == 1.25


def test_two_seeds_give_no_verdict():
    (pair,) = compare(trials(a=[1.0, 2.0], b=[0.0, 0.5]), "arm", "mig").pairs
    assert pair.verdict == "no verdict with only 2 seeds"
    assert np.isnan(pair.p)


def test_a_clear_difference_of_six_seeds_is_resolved():
    rng = np.random.default_rng(0)
    (pair,) = compare(trials(a=rng.normal(5, 1, 6), b=rng.normal(0, 1, 6)), "arm", "mig").pairs
    assert pair.p == 2 / 64
    assert pair.verdict == "resolved"
    assert pair.seeds_needed <= 6


def test_more_seeds_are_needed_than_those_with_which_the_test_cannot_reach_5_percent():
    """Whatever the effect, five pairs give p >= 0.0625 and three seeds each p >= 0.1."""
    frame = trials(a=[9.0, 9.1, 9.3, 9.2], b=[0.1, 0.3, 0.2, 0.2])
    assert compare(frame, "arm", "mig").pairs[0].seeds_needed == 6
    frame.loc[frame["arm"] == "b", "seed"] += 10
    assert compare(frame, "arm", "mig").pairs[0].seeds_needed == 4


def test_a_difference_that_is_the_same_in_every_seed_needs_the_fewest_seeds():
    assert compare(trials(a=[5.0] * 4, b=[4.0] * 4), "arm", "mig").pairs[0].seeds_needed == 6
    assert compare(trials(a=[5.0] * 4, b=[5.0] * 4), "arm", "mig").pairs[0].seeds_needed is None


def test_too_few_seeds_for_so_many_pairs_are_reported():
    """With six seeds the smallest p is 2/64, of three pairs corrected 6/64; with seven it is 6/128."""
    found = compare(trials(a=np.arange(6) + 9.0, b=np.arange(6) * 1.1, c=np.arange(6) * 1.3 - 9), "arm", "mig")
    assert {pair.p_holm for pair in found.pairs} == {6 / 64}
    assert {pair.seeds_needed for pair in found.pairs} == {7}
    assert {pair.verdict for pair in found.pairs} == {"cannot reach 5 % with 6 pairs (smallest p holm 0.0938)"}
    assert {pair.verdict for pair in compare(trials(a=A, b=B, c=A), "arm", "mig").pairs} == {
        "cannot reach 5 % with 5 pairs (smallest p 0.0625)"
    }


def test_p_values_are_corrected_over_all_pairs():
    rng = np.random.default_rng(1)
    found = compare(trials(**{name: rng.normal(level, 1, 8) for level, name in enumerate("abcd")}), "arm", "mig")
    assert [(pair.a, pair.b) for pair in found.pairs] == [*zip("dddccb", "cbabaa", strict=True)]
    corrected = statistics.holm(np.array([pair.p for pair in found.pairs]))
    assert [pair.p_holm for pair in found.pairs] == pytest.approx(corrected)


def test_a_baseline_meets_every_other_value():
    frame = pd.DataFrame(
        [{"beta": beta, "seed": seed, "mig": beta + seed % 2} for beta in (1.0, 4.0, 16.0) for seed in range(4)]
    )
    assert [(pair.a, pair.b) for pair in compare(frame, "beta", "mig", "4").pairs] == [(16.0, 4.0), (1.0, 4.0)]
    with pytest.raises(ConfigError, match="--baseline: unknown value of beta '5'"):
        compare(frame, "beta", "mig", "5")


def test_where_low_is_good_the_lower_improves():
    (pair,) = compare(trials(a=[1.0, 2, 3], b=[4.0, 5, 6]), "arm", "mig", mode="min").pairs
    assert (pair.a, pair.difference, pair.probability_of_improvement) == ("a", -3, 1)


def test_other_settings_are_averaged_within_a_seed():
    frame = pd.concat([trials(a=A, b=B).assign(beta=1.0), trials(a=A + 2, b=B + 4).assign(beta=2.0)])
    found = compare(frame, "arm", "mig")
    assert found.pairs[0].n_a == 5
    assert found.pairs[0].difference == pytest.approx(np.mean(B - A) + 1)
    assert found.notes == ("the score of a seed is the mean of its 2 trials",)
    uneven = compare(frame.iloc[:-1], "arm", "mig").notes[0]
    assert "1 to 2 trials" in uneven
    assert "with care" in uneven


def test_comparing_the_best_of_many_points_warns_of_selection():
    points = [trials(a=A + bump, b=B).assign(beta=bump) for bump in (0.0, 1.0, 2.0)]
    found = compare(pd.concat(points), "arm", "mig", best=["beta"])
    assert found.pairs[0].difference == pytest.approx(np.mean(A - B) + 2)
    assert "best of up to 3 points" in found.notes[0]
    assert "this makes every p too small" in found.notes[0]
    assert compare(points[0], "arm", "mig", best=["beta"]).notes == ()


def test_seeds_that_only_one_value_has_are_left_out_of_a_pair_with_a_note():
    found = compare(trials(a=A, b=B[:3]), "arm", "mig")
    assert (found.pairs[0].n_a, found.pairs[0].n_b) == (3, 3)
    assert found.pairs[0].difference == pytest.approx(np.mean(A[:3] - B[:3]))
    assert found.notes == (
        "a paired difference uses only the seeds that both values have; up to 2 seeds of a value are left out",
    )
    assert "one seed of a value is left out" in compare(trials(a=A, b=B[:4]), "arm", "mig").notes[0]
    assert compare(trials(a=A, b=B[:2]), "arm", "mig").notes == ()  # too few to pair


def test_null_is_a_value_of_its_own():
    frame = trials(a=A, b=B)
    frame.loc[frame["arm"] == "b", "arm"] = None
    assert compare(frame, "arm", "mig").pairs[0].b == "(none)"


@pytest.mark.parametrize(
    ("change", "by", "metric", "message"),
    [
        (lambda frame: frame, "arm", "mag", "unknown metric 'mag'"),
        (lambda frame: frame, "arms", "mig", "unknown key 'arms'. Did you mean 'arm'"),
        (lambda frame: frame, "seed", "mig", "seeds are the replicates"),
        (lambda frame: frame.assign(arm="a"), "arm", "mig", "arm: has the same value in all 10 trials"),
        (lambda frame: frame.assign(mig=np.nan), "arm", "mig", "mig: no trial has a number"),
        (lambda frame: frame.replace(A[1], np.nan), "arm", "mig", "1 of 10 trials have no finite number"),
        (lambda frame: frame[frame["seed"] == 0], "arm", "mig", "every value has only one seed"),
    ],
)
def test_what_cannot_be_compared_is_reported(change, by, metric, message):
    with pytest.raises(ConfigError, match=message):
        compare(change(trials(a=A, b=B)), by, metric)
