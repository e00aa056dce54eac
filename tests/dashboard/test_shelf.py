"""Runs by name: what a listing finds, and nothing else."""

import os

import pytest

from conftest import RunMaker
from disentune.dashboard.shelf import Forbidden, Unknown, opened
from disentune.errors import ConfigError


def test_a_storage_a_sweep_and_a_run_can_be_opened(make_run, tmp_path):
    make_run("main")
    make_run("other")
    assert opened(tmp_path / "runs").names() == ["demo/main", "demo/other"]
    assert opened(tmp_path / "runs" / "demo").names() == ["main", "other"]
    assert opened(tmp_path / "runs" / "demo" / "main").names() == ["main"]


def test_a_missing_storage_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist; run a sweep first, or name a storage"):
        opened(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name", ["..", "../secret", "demo/../../secret", "/etc", "demo/./main", ".", "a\0b", "demo/main/.."]
)
def test_names_that_leave_the_storage_are_forbidden(make_run, tmp_path, dashboard, name):
    make_run()
    RunMaker(tmp_path / "secret").sweep()
    with pytest.raises(Forbidden, match="is outside the storage"):
        opened(tmp_path / "runs").run(name)
    assert dashboard(tmp_path / "runs").refused("run", run=name)[0] == 403


def test_an_unknown_run_is_a_404_that_names_a_similar_one(make_run, tmp_path, dashboard):
    make_run()
    client = dashboard(tmp_path / "runs")
    for name in ("demo/mein", "", "demo", "demo/main/trials"):
        with pytest.raises(Unknown):
            opened(tmp_path / "runs").run(name)
    status, sentence = client.refused("run", run="demo/mein")
    assert status == 404
    assert "no run 'demo/mein'" in sentence
    assert "Did you mean 'demo/main'?" in sentence


@pytest.mark.parametrize("trial", ["0" * 16, "../../x", "..", "nothing", "", "A" * 16])
def test_an_unknown_trial_is_refused_with_a_sentence(make_run, tmp_path, dashboard, trial):
    make_run()
    status, sentence = dashboard(tmp_path / "runs").refused("trial", run="demo/main", id=trial)
    assert status == (403 if ".." in trial else 404)
    assert sentence


def test_a_link_inside_a_run_is_not_followed(make_run, tmp_path, dashboard):
    maker = make_run()
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    trial = maker.trial([])
    os.symlink(secret, maker.run.trial(trial).errors_path)
    client = dashboard(tmp_path / "runs")
    for name in ("run", "trials", "trial"):
        status, sentence = client.refused(name, run="demo/main", id=trial)
        assert status == 403
        assert "is a link" in sentence


def test_a_run_that_appears_later_is_found(make_run, tmp_path, dashboard):
    make_run()
    client = dashboard(tmp_path / "runs")
    assert len(client.get("runs")["runs"]) == 1
    make_run("later")
    assert client.get("run", run="demo/later")["name"] == "demo/later"
