"""`needs:` finds its files, keeps their lines, and resolves to one mapping without files."""

import pytest

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.spec.sweepfile import read_sweep
from stage_examples import DONORS, STUDY, write_study


def test_a_needed_file_is_found_beside_the_study_or_in_a_folder_above_or_from_the_working_folder(tmp_path, monkeypatch):
    study = tmp_path / "repository" / "sweeps" / "mine" / "study.yaml"
    study.parent.mkdir(parents=True)
    study.write_text(STUDY.replace("donors.yaml", "sweeps/donors.yaml"))
    (tmp_path / "other" / "sweeps").mkdir(parents=True)
    (tmp_path / "other" / "sweeps" / "donors.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 1"))
    monkeypatch.chdir(tmp_path / "other")
    assert len(read_sweep(study).needs["donors"].seeds) == 1
    (tmp_path / "repository" / "sweeps" / "donors.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 2"))
    assert len(read_sweep(study).needs["donors"].seeds) == 2
    (study.parent / "sweeps").mkdir()
    (study.parent / "sweeps" / "donors.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 3"))
    assert len(read_sweep(study).needs["donors"].seeds) == 3


def test_a_study_resolves_to_one_file_that_means_the_same(tmp_path):
    sweep = read_sweep(write_study(tmp_path))
    (tmp_path / "alone").mkdir()
    with open(tmp_path / "alone" / "whole.yaml", "w") as file:
        documents.dump(sweep.resolved(), file)
    whole = read_sweep(tmp_path / "alone" / "whole.yaml")
    assert whole.resolved() == sweep.resolved()
    assert whole.needs["donors"].where["seeds"].startswith(f"{tmp_path / 'alone' / 'whole.yaml'}:")


def test_a_part_of_a_document_knows_its_lines():
    document = documents.parse("needs:\n  donors:\n    seeds: 3\n    name: x\n", "file.yaml")
    part = document.part(("needs", "donors"))
    assert part.value == {"seeds": 3, "name": "x"}
    assert [part.where((key,)) for key in ("seeds", "name")] == ["file.yaml:3", "file.yaml:4"]


def test_another_file_can_be_named_on_the_command_line(tmp_path):
    path = write_study(tmp_path)
    (tmp_path / "more.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 7"))
    assert len(read_sweep(path, ["needs.donors=more.yaml"]).needs["donors"].seeds) == 7
    with pytest.raises(ConfigError, match=r"--set needs.donors .* there is no file no.yaml"):
        read_sweep(path, ["needs.donors=no.yaml"])


def test_sweeps_may_not_need_one_another_without_end(tmp_path):
    for number in range(12):
        (tmp_path / f"s{number}.yaml").write_text(f"name: s{number}\nneeds: {{next: s{number + 1}.yaml}}\n")
    (tmp_path / "s12.yaml").write_text(DONORS)
    with pytest.raises(ConfigError, match="more than 8 sweeps need one another"):
        read_sweep(tmp_path / "s0.yaml")
