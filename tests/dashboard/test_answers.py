"""What the page receives agrees with `status`, `results` and the rows."""

import json

import pytest

from disentune.dashboard import answers
from disentune.results.tables import read
from disentune.results.watch import Watcher, as_json
from run_examples import quick_trial, study


def test_time_left_and_pace_are_those_of_status(make_run, followed):
    maker = make_run()
    maker.sweep(seeds=4)
    quick_trial(maker, [{"step": step, "mig": 0.1} for step in (20, 40)], status="running", seed=0)
    with maker.run.locked():
        one = followed(maker.run)
        expected = as_json(Watcher(maker.run).look(), "demo")
    found = answers.run(one)["picture"]
    for key in ("steps_per_second", "trials", "states", "running", "metric"):
        assert found[key] == expected[key]
    assert found["seconds_left"] == pytest.approx(expected["seconds_left"], rel=0.05)  # time passes between two looks
    assert found["running"]
    assert found["seconds_left"] > 0


@pytest.mark.slow
def test_curves_are_means_and_quartiles_of_the_rows(make_run, followed):
    maker = make_run()
    study(maker, seeds=2)
    rows = read(maker.run).rows
    found = answers.curves(followed(maker.run), "mig", "framework.name", [])["curves"]
    assert [curve["name"] for curve in found] == ["ada_gvae", "beta_vae"]
    for curve in found:
        groups = rows[rows["framework.name"] == curve["name"]].groupby("step")["mig"]
        assert curve["steps"] == [500, 1000, 1500]
        assert curve["mean"] == pytest.approx(groups.mean().tolist(), rel=1e-6)
        assert curve["low"] == pytest.approx(groups.quantile(0.25).tolist(), rel=1e-6)
        assert curve["high"] == pytest.approx(groups.quantile(0.75).tolist(), rel=1e-6)
        assert curve["trials"] == 64


def test_curves_of_numbers_are_in_their_order(make_run, followed):
    maker = make_run()
    for seed, beta in enumerate((10.0, 2.5, 1.0)):
        quick_trial(maker, [{"step": 10, "mig": 0.1}], seed=seed, framework__beta=beta)
    found = answers.curves(followed(maker.run), "mig", "framework.beta", [])["curves"]
    assert [curve["name"] for curve in found] == ["1", "2.5", "10"]


def test_curves_of_chosen_trials_are_their_rows(make_run, followed):
    maker = make_run()
    id = quick_trial(maker, [{"step": step, "mig": step / 100} for step in (10, 20, 30)])
    found = answers.curves(followed(maker.run), "mig", "", [id, "f" * 16])["curves"]
    assert found == [{"name": id, "steps": [10, 20, 30], "mean": [0.1, 0.2, 0.3], "trials": 1}]


def test_faults_are_counted_over_all_trials(make_run, followed):
    maker = make_run()
    for seed in range(2):
        id = quick_trial(maker, [{"step": 50, "mig": 0.5}], seed=seed)
        maker.run.trial(id).update_status(faults={"lost_node": seed + 1})
    assert answers.run(followed(maker.run))["faults"] == {"lost_node": 3}


def test_each_node_has_what_its_running_workers_used_at_their_last_rows(make_run, followed):
    maker = make_run()
    for seed, (state, node) in enumerate([("running", "a"), ("running", "a"), ("running", "b"), ("done", "a")]):
        id = quick_trial(maker, [{"step": step, "mig": 0.5} for step in (20, 40)], status=state, seed=seed)
        folder = maker.run.trial(id)
        folder.update_status(node=node)
        if node == "a":
            lines = [json.loads(line) for line in folder.rows_path.read_text().splitlines()]
            clocks = [{"cpu_percent": 50.0, "memory_mb": 100.0}, {"cpu_percent": 90.0, "memory_mb": 200.0 + seed}]
            rows = [{**line, "clock": {"seconds": 1.0, **clock}} for line, clock in zip(lines, clocks, strict=True)]
            folder.rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with maker.run.locked():
        nodes = answers.run(followed(maker.run))["nodes"]
    assert nodes == {"a": {"trials": 2, "cpu_percent": 180.0, "memory_mb": 401.0}, "b": {"trials": 1}}
    assert answers.run(followed(maker.run))["nodes"] == {}


def test_the_list_has_state_trials_and_best_score(make_run, tmp_path, dashboard):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    quick_trial(maker, [{"step": 50, "mig": 0.25}])
    client = dashboard(tmp_path / "runs")
    found = client.until("runs", lambda found: "states" in found["runs"][0])["runs"][0]
    assert (found["name"], found["best"], found["metric"], found["states"]) == ("demo/main", 0.25, "mig", {"done": 1})
    assert found["finished"]
    assert not found["live"]


def test_a_key_of_the_environment_is_never_sent(make_run, tmp_path, dashboard, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")
    maker = make_run()
    id = quick_trial(maker, [], status="failed", cause="refused: 0123456789abcdef0123456789abcdef01234567")
    client = dashboard(tmp_path / "runs")
    client.until("run", lambda found: found["picture"], run="demo/main")
    for name in ("run", "trial", "trials", "runs"):
        assert "89abcdef0123456789" not in client.ask(f"/api/{name}", {"run": "demo/main", "id": id}).text


def test_a_damaged_run_is_listed_and_says_what_is_wrong(make_run, tmp_path, dashboard):
    maker = make_run()
    maker.run.sweep_path.write_text("{")
    id = quick_trial(maker, [{"step": 50, "mig": 0.5}])
    (maker.run.trial(id).path / "config.json").write_text("[]")
    client = dashboard(tmp_path / "runs")
    found = client.until("run", lambda found: found["picture"], run="demo/main")
    assert any("config.json" in note for note in found["picture"]["notes"])
    assert any("sweep" in note for note in found["picture"]["notes"])
    assert client.refused("figures", run="demo/main")[0] == 400


@pytest.mark.slow
def test_a_storage_that_vanishes_keeps_its_last_picture_and_comes_back(make_run, tmp_path, dashboard):
    maker = make_run()
    quick_trial(maker, [{"step": 50, "mig": 0.5}])
    client = dashboard(tmp_path / "runs")
    client.get("runs")
    client.until("run", lambda found: found["read"] == 1 and found["picture"], run="demo/main")
    (tmp_path / "runs").rename(tmp_path / "away")
    found = client.until("run", lambda found: found["trouble"], run="demo/main")
    assert (found["read"], found["states"]) == (1, {"done": 1})
    assert "showing what was last read" in found["trouble"]
    assert [run["name"] for run in client.until("runs", lambda found: found["trouble"])["runs"]] == ["demo/main"]
    (tmp_path / "away").rename(tmp_path / "runs")
    assert client.until("run", lambda found: not found["trouble"] and found["read"] == 1, run="demo/main")


@pytest.mark.parametrize(
    ("name", "params"),
    [("trials", {"since": "-1"}), ("trials", {"since": "x"}), ("trials", {"since": "9" * 99}), ("figure", {}),
     ("figure", {"spec": "[]"}), ("figure", {"spec": '{"name": "nothing"}'}),
     ("figure", {"spec": '{"name": "trend", "x": 3}'}),
     ("compare", {"chosen": ""})],
)  # fmt: skip
def test_wrong_parameters_get_a_sentence(make_run, tmp_path, dashboard, name, params):
    quick_trial(make_run(), [{"step": 50, "mig": 0.5}])
    status, sentence = dashboard(tmp_path / "runs").refused(name, run="demo/main", **params)
    assert status == 400
    assert sentence
    assert "bug" not in sentence


def test_commands_are_ready_to_paste(make_run, followed):
    found = answers.environment(followed(make_run("a b").run))
    assert found["commands"][0].startswith("disentune status '/")
    assert found["facts"]["folder"].endswith("demo/a b")
