"""`disentune new` writes a sweep that plans as it is, and whose optional settings are valid."""

import json
import re

import pytest

from disentune.cli.new import TEMPLATE
from disentune.spec import space
from disentune.spec.sweepfile import SWEEP_KEYS

OPTIONAL = re.findall(r"^# ([a-z]+: .*)", TEMPLATE.read_text(), re.MULTILINE)
"""The settings that are comments."""


def test_the_written_sweep_plans_cleanly_and_the_next_commands_name_it(disentune, tmp_path):
    code, out, _ = disentune("new", "my_study")
    assert code == 0
    assert out == ("wrote my_study.yaml\n\nnext:\n  disentune plan my_study.yaml\n  disentune run my_study.yaml\n")
    assert (tmp_path / "my_study.yaml").read_text().startswith("# my_study: ")
    code, out, _ = disentune("plan", "my_study.yaml", "--json")
    planned = json.loads(out)
    assert code == 0
    assert (planned["sweep"], planned["trials"], planned["problems"]) == ("my_study", 18, [])


def test_it_goes_to_the_folder_of_sweeps_where_there_is_one(disentune, tmp_path):
    (tmp_path / "sweeps").mkdir()
    _, out, _ = disentune("new", "my_study.yaml")
    assert (tmp_path / "sweeps" / "my_study.yaml").is_file()
    assert "disentune run sweeps/my_study.yaml" in out


def test_nothing_is_overwritten(disentune, tmp_path):
    (tmp_path / "mine.yaml").write_text("question: mine")
    code, _, err = disentune("new", "mine")
    assert (code, err) == (2, "mine.yaml already exists; choose another name or delete the file\n")
    assert (tmp_path / "mine.yaml").read_text() == "question: mine"


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "two words"])
def test_a_name_that_is_not_a_file_name_is_refused(disentune, tmp_path, name):
    code, _, err = disentune("new", name)
    assert code == 2
    assert "a name may have only letters, digits" in err
    assert list(tmp_path.iterdir()) == []


def test_optional_settings_are_found():
    assert len(OPTIONAL) == 11


def test_every_key_of_a_sweep_is_in_the_template():
    found = {line.partition(":")[0].removeprefix("# ") for line in TEMPLATE.read_text().splitlines()}
    assert set(SWEEP_KEYS) <= found


@pytest.mark.parametrize("setting", OPTIONAL, ids=lambda setting: setting.partition(":")[0])
def test_each_optional_setting_is_valid_without_its_comment_sign(tmp_path, setting):
    text = TEMPLATE.read_text()
    (tmp_path / "sweep.yaml").write_text(text.replace(f"\n# {setting}\n", f"\n{setting}\n"))
    (tmp_path / "as_written.yaml").write_text(text)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "donors.yaml").write_text(text)
    changed, written = (space.read(tmp_path / name).sweep for name in ("sweep.yaml", "as_written.yaml"))
    assert (changed.name, changed.settings, changed.needs) != ("sweep", written.settings, {})
