"""Chosen trials and runs side by side."""

import pytest

from disentune.analysis.comparison import compare, line
from disentune.analysis.runs import compared_trials
from disentune.results.tables import read
from disentune.runs.ledger import Run
from disentune.spec.settings import Objective
from run_examples import quick_trial, study


def test_runs_are_compared_with_the_intervals_of_compare(make_run, tmp_path, dashboard):
    for name, seeds in (("main", 3), ("other", 4)):
        study(make_run(name), seeds=seeds, betas=(1e-3,))
    found = dashboard(tmp_path / "runs").get("compare", chosen="demo/main,demo/other")
    runs = [read(Run(tmp_path / "runs" / "demo" / name)) for name in ("main", "other")]
    trials, _ = compared_trials(runs, "mig", Objective(metric="mig", mode="max"))
    (expected,) = compare(trials, "run", "mig").pairs
    (pair,) = found["pairs"]
    assert (pair["difference"], pair["low"], pair["high"]) == (expected.difference, expected.low, expected.high)
    assert pair["line"] == line(expected)
    assert found["by"] == "run"
    assert found["side_by_side"] is None


def test_chosen_trials_only_are_compared_by_a_key(make_run, tmp_path, dashboard):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.1 * seed + beta}], seed=seed, framework__beta=beta)
           for beta in (0.5, 0.001, 0.1) for seed in range(3)]  # fmt: skip
    chosen = ",".join(f"demo/main:{id}" for id in ids[:6])
    found = dashboard(tmp_path / "runs").get("compare", chosen=chosen, by="framework.beta", metric="mig")
    (pair,) = found["pairs"]
    assert pair["difference"] == pytest.approx(0.499)
    assert [group["value"] for group in found["groups"]] == ["0.001", "0.5"]
    assert [len(group["scores"]) for group in found["groups"]] == [3, 3]


def test_side_by_side_shows_differing_keys_first_and_every_score(make_run, tmp_path, dashboard):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.5, "loss": seed}], seed=seed) for seed in range(2)]
    found = dashboard(tmp_path / "runs").get("compare", chosen=",".join(f"demo/main:{id}" for id in ids))
    side = found["side_by_side"]
    assert {trial["id"] for trial in side["trials"]} == set(ids)
    assert [row["key"] for row in side["keys"] if row["differs"]] == ["seed"]
    assert side["keys"][0]["key"] == "seed"
    seeds = side["keys"][0]["values"]
    assert {row["key"]: row["values"] for row in side["metrics"]} == {"mig": [0.5, 0.5], "loss": seeds}


def test_what_cannot_be_compared_says_why_and_shows_the_rest(make_run, tmp_path, dashboard):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.5}], framework__beta=beta) for beta in (0.1, 0.2)]
    chosen = ",".join(f"demo/main:{id}" for id in ids)
    found = dashboard(tmp_path / "runs").get("compare", chosen=chosen, by="framework.beta")
    assert "one seed" in found["reason"]
    assert len(found["side_by_side"]["trials"]) == 2
    assert "no chosen trial has the key" in dashboard(tmp_path / "runs").get("compare", chosen=chosen, by="x")["reason"]


def test_an_unknown_run_in_a_comparison_is_a_404(make_run, tmp_path, dashboard):
    make_run()
    assert dashboard(tmp_path / "runs").refused("compare", chosen="demo/none")[0] == 404
