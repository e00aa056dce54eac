"""`disentune quickstart` runs or copies the examples that come with the package."""

import json
from pathlib import Path

import pytest

from disentune.cli import quickstart, sweeps

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runs_asked(monkeypatch):
    """The sweeps that would have been run, and where their runs would be kept."""
    asked = []
    monkeypatch.setattr(sweeps, "run", lambda sweep, storage: asked.append((sweep, storage)))
    return asked


def test_it_runs_the_sweep_of_the_repository(disentune, runs_asked):
    assert disentune("quickstart", "--storage", "elsewhere")[0] == 0
    assert runs_asked == [(ROOT / "sweeps" / "quickstart.yaml", "elsewhere")]


def test_an_installed_package_has_its_own_copy(disentune, runs_asked, monkeypatch, tmp_path):
    own = tmp_path / "disentune" / "examples" / "sweeps"
    own.mkdir(parents=True)
    (own / "quickstart.yaml").touch()
    monkeypatch.setattr(quickstart, "PACKAGE", tmp_path / "disentune")
    disentune("quickstart")
    assert runs_asked == [(own / "quickstart.yaml", "runs")]


def test_an_installation_without_examples_is_explained(disentune, monkeypatch, tmp_path):
    monkeypatch.setattr(quickstart, "PACKAGE", tmp_path / "lib" / "disentune")
    code, _, err = disentune("quickstart")
    assert code == 2
    assert "has no example sweeps; install disentune from its wheel" in err


def test_a_copy_has_every_sweep_and_plans_with_its_own_search_spaces(disentune, runs_asked, tmp_path):
    code, out, _ = disentune("quickstart", "--copy", "my project")
    assert code == 0
    assert "disentune run 'my project/sweeps/quickstart.yaml'" in out
    copied = {path.relative_to(tmp_path / "my project") for path in tmp_path.rglob("*.yaml")}
    assert copied == {
        path.relative_to(ROOT) for part in ("sweeps", "search_spaces") for path in (ROOT / part).rglob("*.yaml")
    }
    assert (tmp_path / "my project" / "schemas" / "sweep.schema.json").is_file()
    planned = json.loads(disentune("plan", "my project/sweeps/small/spacing.yaml", "--json")[1])
    assert (planned["trials"], planned["problems"]) == (72, [])
    assert runs_asked == []


def test_a_copy_overwrites_nothing(disentune, tmp_path):
    mine = tmp_path / "sweeps" / "quickstart.yaml"
    mine.parent.mkdir()
    mine.write_text("mine")
    code, _, err = disentune("quickstart", "--copy", ".")
    assert (code, err) == (2, "sweeps/quickstart.yaml already exists; nothing was copied. Choose another folder\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"
