import pytest

from disentune.report.scores import NothingToDraw, RunScores
from disentune.spec.settings import Objective


@pytest.fixture
def scores(scores_of_study):
    return scores_of_study(seeds=2)


def test_keys_are_sorted_into_numbers_and_names(scores):
    assert {"framework.beta", "model.latents"} <= set(scores.numbers)
    assert {"dataset.name", "framework.name", "recon.name"} <= set(scores.names)
    assert scores.metrics == ["mig", "dci_disentanglement", "sap"]


def test_trials_have_their_last_value_unless_the_objective_takes_the_best(scores):
    last = scores.scored("mig", ["arm"])
    best = RunScores(scores.results, Objective(metric="mig", mode="max", at="best")).scored("mig")
    assert len(last) == len(best) == 128
    assert (best["value"].to_numpy() >= last["value"].to_numpy()).all()
    assert list(last.columns) == ["trial_id", "arm", "value"]


def test_a_number_that_no_trial_has_is_nothing_to_draw(scores):
    with pytest.raises(NothingToDraw, match="no trial has reported udr"):
        scores.scored("udr")


def test_only_keeps_the_trials_of_an_expression(scores):
    kept = scores.only("dataset.name == 'xysquares' and arm == 'plain'")
    assert set(kept.trials["arm"]) == {"plain"}
    assert len(kept.trials) == 32
    with pytest.raises(NothingToDraw, match="selects no trial"):
        scores.only("seed > 10")


def test_arms_stand_in_the_order_of_the_file(scores):
    assert scores.order("arm", ["overlapping", "plain"]) == ["plain", "overlapping"]
    assert scores.order("framework.beta", [0.1, 0.001]) == [0.001, 0.1]
