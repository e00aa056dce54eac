"""Which trials of runs are compared."""

import pytest

from disentune.analysis.runs import CUT, RUN, compared_trials
from disentune.analysis.scores import KEYS
from disentune.plugin import COMPARED, FIXED
from disentune.results.tables import read
from disentune.spec.settings import Objective
from run_examples import quick_trial

OBJECTIVE = Objective(metric="mig", mode="max")


def trials_of(maker):
    return compared_trials([read(maker.run)], "mig", OBJECTIVE)


def test_trials_of_less_training_are_left_out_of_a_comparison_and_counted(make_run):
    maker = make_run()
    quick_trial(maker, [{"step": 1500, "mig": 0.2}], seed=0)
    quick_trial(maker, [{"step": 300, "mig": 0.9}], status="stopped", seed=1)
    quick_trial(maker, [{"step": 600, "mig": 0.8}], status="running", seed=2)
    quick_trial(maker, [], status="pending", seed=3)
    trials, notes = trials_of(maker)
    assert trials["mig"].tolist() == [0.2]
    assert notes == [
        "1 of 4 trials have no score yet; they are left out",
        "2 of 3 trials were stopped early or have not ended yet and are left out",
    ]


def test_where_no_trial_has_ended_all_are_compared_with_a_warning(make_run):
    maker = make_run()
    for seed, step in enumerate((300, 600)):
        quick_trial(maker, [{"step": step, "mig": 0.1 * step}], status="running", seed=seed)
    trials, notes = trials_of(maker)
    assert sorted(trials["mig"]) == pytest.approx([30.0, 60.0])
    assert notes == ["no trial has trained to its end, so trials of different budgets are compared"]


def test_a_whole_run_is_compared_without_remarks(make_run):
    maker = make_run()
    quick_trial(maker, [{"step": 1500, "mig": 0.2}], seed=0)
    trials, notes = trials_of(maker)
    assert (len(trials), notes) == (1, [])
    assert "cut short" not in trials


def test_no_number_of_a_plug_in_may_replace_a_column_of_these_tables():
    assert {*KEYS, RUN, CUT} <= {*COMPARED, *FIXED}


def test_scores_that_compare_seeds_with_each_other_are_no_replicates(make_run):
    maker = make_run()
    quick_trial(maker, [{"step": 1500, "mig": 0.2, "udr": 0.3}], seed=0)
    (note,) = compared_trials([read(maker.run)], "udr", OBJECTIVE)[1]
    assert "the scores of seeds depend on each other" in note
