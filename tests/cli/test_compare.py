"""`disentune compare`: the difference between arms of one run or several."""

import json
import shutil

import pytest

from disentune import load
from disentune.analysis import compare


def test_pairs_as_json_are_those_of_the_trials(disentune, finished):
    code, out, err = disentune("compare", "tiny", "--by", "framework.name", "--metric", "mig", "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == ["metric", "by", "pairs"]
    trials = load(finished.path).trials
    assert found["pairs"] == compare(trials, "framework.name", "mig").as_json()["pairs"]
    assert "the score of a seed is the mean of its" in err


def test_a_person_reads_intervals_and_a_verdict(disentune, finished):
    code, out, _ = disentune("compare", "tiny", "--by", "framework.name")
    assert code == 0
    assert "95 % interval" in out
    assert "verdict" in out


def test_several_runs_are_compared_by_run(disentune, finished):
    shutil.copytree(finished.path, finished.path.parent / "again")
    code, out, _ = disentune("compare", "tiny/main", "tiny/again", "--by", "run", "--metric", "mig", "--json")
    (pair,) = json.loads(out)["pairs"]
    assert code == 0
    assert {pair["a"], pair["b"]} == {"tiny/main", "tiny/again"}
    assert (pair["difference"], pair["probability_of_improvement"]) == (0, 0.5)


def test_the_best_of_many_points_warns(disentune, finished):
    _, _, err = disentune("compare", "tiny", "--by", "framework.name", "--best")
    assert "this makes every p too small" in " ".join(err.split())


def test_a_selection_by_the_compared_metric_warns(disentune, finished):
    arguments = ("compare", "tiny", "--by", "framework.name", "--metric", "mig", "--only")
    assert "--only selects trials by mig itself" in " ".join(disentune(*arguments, "mig >= 0")[2].split())
    assert "itself" not in disentune(*arguments, "mig_max >= 0")[2]


def test_runs_with_different_objectives_are_refused(disentune, finished):
    other = finished.path.parent / "other"
    shutil.copytree(finished.path, other)
    sweep = other / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace("metric: mig", "metric: recon").replace("mode: max", "mode: min"))
    code, _, err = disentune("compare", "tiny/main", "tiny/other", "--by", "run", "--metric", "mig")
    assert code == 2
    assert "runs with different objectives cannot be compared" in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "framework.name", "--metric", "mag"], "unknown metric 'mag'"),
        (["--by", "framework.nam", "--metric", "mig"], "unknown key 'framework.nam'"),
        (["--by", "model.name", "--metric", "mig"], "has the same value in all 12 trials"),
        (["--by", "framework.name", "--only", "seed == 0"], "every value has only one seed"),
        (["--by", "framework.name", "--only", "seed > 99"], "selects no trial"),
        (["--by", "framework.name", "--baseline", "vae"], "unknown value of framework.name 'vae'"),
    ],
)
def test_wrong_input_gets_one_message(disentune, finished, arguments, message):
    code, out, err = disentune("compare", "tiny", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
