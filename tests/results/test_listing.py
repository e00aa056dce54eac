"""What a list says about each run of a storage."""

import os

import pytest

from disentune.errors import ConfigError
from disentune.files.storage import place
from disentune.results.listing import assert_storage, runs_below, size_of, told


@pytest.fixture
def maker(make_run):
    made = make_run()
    made.sweep(objective={"metric": "mig", "mode": "max"}, seeds=2)
    return made


def test_a_run_is_told_with_its_best_score_and_how_many_trials_have_ended(maker):
    for seed, mig in enumerate((0.25, 0.75)):
        maker.trial([{"step": 1500, "mig": mig}], seed=seed)
    found = told("demo/main", maker.run)
    assert (found["sweep"], found["run"], found["state"]) == ("demo", "main", "finished")
    assert (found["done"], found["trials"], found["metric"], found["best"]) == (2, 2, "mig", 0.75)
    assert 0 <= found["age_s"] < 3600


def test_the_size_is_that_of_every_file_and_follows_no_link(maker, tmp_path):
    maker.trial([{"step": 1500, "mig": 0.5}])
    files = [path for path in maker.run.path.rglob("*") if path.is_file()]
    expected = sum(path.stat().st_size for path in files)
    (tmp_path / "large").write_bytes(b"x" * 10_000)
    (maker.run.trials_folder / "link").symlink_to(tmp_path / "large")
    assert size_of(maker.run) == expected


def test_a_run_is_interrupted_while_trials_are_left_and_running_while_a_driver_holds_it(maker):
    maker.trial([{"step": 300, "mig": 0.5}], status="running")
    assert told("demo/main", maker.run)["state"] == "interrupted"
    with maker.run.locked():
        assert told("demo/main", maker.run)["state"] == "running"
        maker.run.ask_to_stop("disentune stop")
        assert told("demo/main", maker.run)["state"] == "stopping"


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(maker, tmp_path):
    os.symlink(tmp_path, maker.run.path / "elsewhere")
    found = told("demo/main", maker.run)
    assert (found["state"], found["best"], found["trials"]) == ("unreadable", None, None)
    assert "is a link" in found["problem"]


def test_the_runs_of_a_bucket_are_found(object_store):
    for name in ("main", "other"):
        (place("s3://bucket/runs") / "demo" / name / "sweep.yaml").write_bytes(b"trial: {}\n")
    assert list(runs_below(place("s3://bucket/runs"))) == ["demo/main", "demo/other"]


def test_a_missing_storage_is_refused_with_the_command_to_repeat(tmp_path):
    with pytest.raises(ConfigError, match="name a storage: disentune runs STORAGE"):
        assert_storage(tmp_path / "nowhere", "disentune runs")
