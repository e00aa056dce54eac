"""The lines of the table: what the ledger has, sent once."""

import json
import math
from itertools import pairwise

import pytest

from conftest import RunMaker
from dashboard_client import Client
from disentune.dashboard import answers
from disentune.dashboard.feed import MOST_POINTS, Course, Feed
from disentune.files.storage import place
from disentune.results.tables import read, varying_keys
from disentune.results.watch import Watcher
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from run_examples import quick_trial, study


def table(found):
    """id -> {column: value} of a whole answer."""
    names = [*found["fixed"], *(one["key"] for one in found["keys"]), *(one["key"] for one in found["metrics"])]
    return {line[0]: dict(zip(names, line, strict=True)) for line in found["lines"]}


def test_lines_are_what_the_tables_have(make_run, followed):
    maker = make_run()
    study(maker, seeds=1)
    results = read(maker.run)
    found = answers.trials(followed(maker.run), 0, "")
    assert {one["key"] for one in found["keys"]} == set(varying_keys(results.trials))
    lines = table(found)
    assert len(lines) == len(results.trials) == 64
    for _, row in results.trials.iterrows():
        line = lines[row["trial_id"]]
        assert (line["arm"], line["seed"], line["state"], line["step"]) == (row["arm"], row["seed"], "done", 1500)
        for key in ("mig", "sap", "dci_disentanglement", "loss", "framework.beta"):
            assert line[key] == pytest.approx(row[key], rel=1e-6)
        assert line["dataset.name"] == row["dataset.name"]


def test_curves_are_coloured_by_arm_or_else_by_a_key_with_few_values(make_run, tmp_path, followed):
    several, swept = make_run(), RunMaker(tmp_path / "runs" / "swept" / "main")
    study(several, seeds=1)
    assert answers.trials(followed(several.run), 0, "")["colour"] == "arm"
    swept.sweep(seeds=9)
    for seed in range(9):
        values = {"framework__beta": float(seed % 2), "training__learning_rate": 0.1 + seed}
        quick_trial(swept, [{"step": 50, "mig": 0.1}], seed=seed, **values)
    assert answers.trials(followed(swept.run), 0, "")["colour"] == "framework.beta"


def test_states_are_those_of_status(make_run, followed):
    maker = make_run()
    for seed, state in enumerate(("done", "stopped", "running", "pending", "diverged", "failed")):
        cause = "scheduler.asha: rung 3" if state == "stopped" else ""
        quick_trial(maker, [{"step": 50, "mig": 0.1}], status=state, cause=cause, seed=seed)
    one = followed(maker.run)
    seen = {trial.id: trial.state for trial in Watcher(maker.run).look().trials}
    assert {id: line["state"] for id, line in table(answers.trials(one, 0, "")).items()} == seen
    assert sorted(seen.values()) == ["diverged", "done", "failed", "pending", "pending", "pending"]
    assert one.picture.states == answers.run(one)["states"]


def test_only_lines_that_are_newer_are_sent(make_run, followed):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.1 * seed}], status="running", seed=seed) for seed in range(5)]
    one = followed(maker.run)
    first = answers.trials(one, 0, "")
    again = answers.trials(one, first["version"], first["columns"])
    assert (again["lines"], again["more"], "reset" in again) == ([], False, False)
    maker.run.trial(ids[3]).append_row({"step": 60, "metrics": {"mig": 0.9}})
    one.look_at_rows()
    newer = answers.trials(one, first["version"], first["columns"])
    assert [(line[0], line[-1]) for line in newer["lines"]] == [(ids[3], 0.9)]
    assert newer["version"] > first["version"]


def test_many_lines_come_in_parts_and_each_once(make_run, followed):
    maker = make_run()
    ids = {quick_trial(maker, [{"step": 50, "mig": 0.5}], seed=seed) for seed in range(7)}
    one, since, mark, found = followed(maker.run), 0, "", []
    while True:
        part = answers.trials(one, since, mark, most=3)
        assert len(part["lines"]) <= 3
        found += [line[0] for line in part["lines"]]
        since, mark = part["version"], part["columns"]
        if not part["more"]:
            break
    assert len(found) == 7
    assert set(found) == ids


def test_a_new_column_sends_every_line_again(make_run, followed):
    maker = make_run()
    quick_trial(maker, [{"step": 50, "mig": 0.5}], seed=0)
    one = followed(maker.run)
    first = answers.trials(one, 0, "")
    quick_trial(maker, [{"step": 50, "mig": 0.5, "sap": 0.2}], seed=1, framework__beta=0.5)
    one.look_at_rows()
    found = answers.trials(one, first["version"], first["columns"])
    assert found["reset"]
    assert len(found["lines"]) == 2
    assert "framework.beta" in {key["key"] for key in found["keys"]}
    assert "sap" in {key["key"] for key in found["metrics"]}


def test_a_trial_that_was_removed_is_named(make_run, followed):
    maker = make_run()
    kept, removed = (quick_trial(maker, [{"step": 50, "mig": 0.5}], seed=seed) for seed in range(2))
    one = followed(maker.run)
    first = answers.trials(one, 0, "")
    for path in maker.run.trial(removed).path.iterdir():
        path.unlink()
    maker.run.trial(removed).path.rmdir()
    one.look_at_rows()
    assert answers.trials(one, first["version"], first["columns"])["gone"] == [removed]
    assert [line[0] for line in answers.trials(one, 0, "")["lines"]] == [kept]


def test_a_torn_line_waits_and_a_line_that_is_no_row_is_passed_over(make_run, followed):
    maker = make_run()
    id = quick_trial(maker, [{"step": 50, "mig": 0.5}], status="running")
    path = maker.run.trial(id).rows_path
    with open(path, "a") as file:
        file.write('null\n[1]\n{"step": "x", "metrics": {}}\n{"step": 55, "metrics": {"mig": NaN}}\n{"step": 60, "met')
    one = followed(maker.run)
    assert table(answers.trials(one, 0, ""))[id]["mig"] == 0.5
    with open(path, "a") as file:
        file.write('rics": {"mig": 0.7}}\n')
    one.look_at_rows()
    assert table(answers.trials(one, 0, ""))[id]["mig"] == 0.7


def test_rows_that_were_cut_off_are_forgotten(make_run, followed):
    maker = make_run()
    id = quick_trial(maker, [{"step": 50, "mig": 0.5}, {"step": 60, "mig": 0.9}], status="running")
    one = followed(maker.run)
    maker.run.trial(id).cut_rows(60)
    one.look_at_rows()
    assert table(answers.trials(one, 0, ""))[id]["mig"] == 0.5
    assert answers.curves(one, "mig", "", [id])["curves"][0]["steps"] == [50]


def test_an_ended_trial_that_trains_again_is_seen_in_its_turn(make_run):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.5}], seed=seed) for seed in range(3)]
    feed = Feed(maker.run)
    feed.look()
    version = feed.version
    maker.run.trial(ids[1]).set_status(Status("failed", 50, "a cause"))
    feed.look()
    assert [trial.id for trial in feed.newer(version, 10)] == [ids[1]]


def test_an_objective_at_its_best_step_counts_so_in_the_table(make_run, followed):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max", "at": "best"})
    id = quick_trial(maker, [{"step": step, "mig": value} for step, value in ((10, 0.2), (20, 0.8), (30, 0.4))])
    assert table(answers.trials(followed(maker.run), 0, ""))[id]["mig"] == 0.8


def test_a_long_curve_keeps_its_shape_and_few_points():
    course = Course()
    for step in range(10_000):
        course.add(step, math.sin(step / 1000))
    assert MOST_POINTS / 2 <= len(course.steps) <= MOST_POINTS
    assert list(course.values) == [math.sin(step / 1000) for step in course.steps]
    assert len({b - a for a, b in pairwise(course.steps)}) == 1


def test_answers_hold_no_number_that_json_cannot_write(make_run, followed):
    maker = make_run()
    quick_trial(maker, [{"step": 50, "mig": None, "loss": float("inf"), "sap": float("nan")}])
    one = followed(maker.run)
    for found in (answers.trials(one, 0, ""), answers.run(one), answers.curves(one, "loss", "arm", [])):
        json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_a_run_in_an_object_store_is_followed(object_store, make_run, dashboard):
    maker = make_run()
    ids = [quick_trial(maker, [{"step": 50, "mig": 0.1 * seed}], seed=seed) for seed in range(3)]
    for path in maker.run.path.rglob("*"):
        if path.is_file():
            place(f"s3://bucket/runs/demo/main/{path.relative_to(maker.run.path)}").write_bytes(path.read_bytes())
    client: Client = dashboard("s3://bucket/runs")
    assert client.get("runs")["runs"][0]["name"] == "demo/main"
    found = client.until("run", lambda found: found["read"] == 3 and found["picture"], run="demo/main")
    assert found["states"] == {"done": 3}
    assert set(table(client.get("trials", run="demo/main"))) == set(ids)
    remote = Run(place("s3://bucket/runs/demo/main"))
    remote.trial(ids[0]).append_row({"step": 60, "metrics": {"mig": 0.9}})
    feed = Feed(remote)
    feed.look()
    assert feed.lines[ids[0]].latest["mig"] == 0.9
