"""Runs that earlier versions left half-done are looked at, analysed and brought to their end by the present code."""

import json
from pathlib import Path

import pytest

from disentune.results import soundness
from disentune.runs.archive import unpack
from disentune.spec.space import check
from simulation.world import Case, World
from simulator import table

HERE = Path(__file__).parent
RUNS = sorted(path.name.removesuffix(".tar.zst") for path in HERE.glob("*.tar.zst"))


@pytest.fixture(params=RUNS)
def old(request, tmp_path):
    """The run, and the table of the same sweep as that version brought it to its end."""
    run = unpack(HERE / f"{request.param}.tar.zst", tmp_path / "runs").run
    return run, json.loads((HERE / f"{request.param}.json").read_text())


def as_plain(found):
    return json.loads(json.dumps(found))


def test_it_is_brought_to_the_end_that_its_version_gave_it(old, tmp_path):
    run, expected = old
    begun = {folder.id: len(folder.rows()) for folder in run.trials()}
    assert 0 < sum(begun.values()) < sum(len(rows) for _, _, rows in expected)
    world = World(Case(1, ("grid", "none"), "", ()), tmp_path, tmp_path / "runs")
    world.asked = check(run.sweep())
    world.live()
    assert as_plain(table(run)) == expected
    assert soundness.verify(run).damages == ()


def test_its_rows_are_those_of_its_version(old):
    run, expected = old
    kept = {trial: rows for trial, _, rows in expected}
    for folder in run.trials():
        rows = [[row["step"], row["metrics"]] for row in folder.rows()]
        wanted = [[step, metrics] for step, metrics, _ in kept[folder.id]][: len(rows)]
        for (step, found), (at, metrics) in zip(rows, wanted, strict=True):
            assert step == at
            assert found.items() <= metrics.items()  # the table also has running maxima


COMMANDS = [["status"], ["results", "--json"], ["results"], ["analyse", "--json"], ["verify"]]


@pytest.mark.parametrize("command", [*COMMANDS, pytest.param(["report"], marks=pytest.mark.slow)], ids=" ".join)
def test_every_command_that_looks_at_a_run_takes_it(old, disentune, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    _, expected = old
    code, out, err = disentune(command[0], "tiny", *command[1:])
    assert code == 0, out + err
    if command == ["results", "--json"]:
        assert {trial["trial_id"] for trial in json.loads(out)} <= {trial for trial, _, _ in expected}
