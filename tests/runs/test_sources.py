"""Which code made a row: every file that a plug-in is made of counts, and no other."""

import sys
import textwrap

import pytest

from disentune.environment import own_source
from disentune.runs.sources import plugin_sources


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """`folder(**{"my/vae.py": "..."})` writes files into the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(text))

    return write


def test_our_own_hash_changes_with_any_of_our_files_or_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr("disentune.environment.OWN", tmp_path)
    seen = [own_source()]
    for change in (
        lambda: (tmp_path / "a.py").write_text("1"), lambda: (tmp_path / "a.py").write_text("2"),
        lambda: (tmp_path / "a.py").rename(tmp_path / "b.py"),
        lambda: ((tmp_path / "deep").mkdir(), (tmp_path / "deep" / "c.py").write_text("")),
    ):  # fmt: skip
        change()
        seen.append(own_source())
    assert len(set(seen)) == len(seen)
    (tmp_path / "notes.txt").write_text("not code")
    assert own_source() == seen[-1]


def test_a_plug_in_of_one_file_is_that_file(folder):
    folder(**{"my_vae.py": "import torch\nimport os\n", "other.py": ""})
    assert plugin_sources(["my_vae:FRAMEWORK", "my_vae:METRIC"]).keys() == {"my_vae"}
    assert plugin_sources([]) == {}


def test_what_it_imports_from_beside_it_belongs_to_it_however_it_is_imported(folder):
    folder(
        **{
            "my_vae.py": "import maths.sums\nfrom lab import tools, NUMBER\ndef loss():\n    import late as l\n",
            "maths/__init__.py": "", "maths/sums.py": "", "maths/unused.py": "",
            "lab/__init__.py": "from . import constants\nfrom .constants import NUMBER\n", "lab/constants.py": "",
            "lab/tools.py": "from .deep.inner import x\nfrom ..outside import y\n",
            "lab/deep/inner.py": "from .. import constants\nfrom ...nowhere import z\nimport my_vae\n",
            "late.py": "import missing\n", "unused.py": "",
        }
    )  # fmt: skip
    assert list(plugin_sources(["my_vae:FRAMEWORK"])) == [
        "lab", "lab.constants", "lab.deep.inner", "lab.tools", "late", "maths", "maths.sums", "my_vae",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["my_vae", "lab", "lab.tools"])
def test_only_the_hash_of_the_changed_module_changes(folder, tmp_path, name):
    folder(**{"my_vae.py": "import lab.tools\n", "lab/__init__.py": "", "lab/tools.py": ""})
    before = plugin_sources(["my_vae:FRAMEWORK"])
    file = {"my_vae": "my_vae.py", "lab": "lab/__init__.py", "lab.tools": "lab/tools.py"}[name]
    (tmp_path / file).write_text((tmp_path / file).read_text() + "x = 1\n")
    after = plugin_sources(["my_vae:FRAMEWORK"])
    assert [key for key in before if before[key] != after[key]] == [name]


def test_the_packages_around_a_plug_in_belong_to_it(folder):
    folder(**{"lab/__init__.py": "", "lab/deep/__init__.py": "", "lab/deep/vae.py": "", "lab/deep/other.py": ""})
    assert list(plugin_sources(["lab.deep.vae:FRAMEWORK"])) == ["lab", "lab.deep", "lab.deep.vae"]


def test_of_an_installed_plug_in_only_its_own_package_counts(tmp_path, monkeypatch, folder):
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    folder(
        **{
            "site-packages/theirs/__init__.py": "",
            "site-packages/theirs/vae.py": "import huge\nfrom . import sums\n",
            "site-packages/theirs/sums.py": "", "site-packages/huge.py": "",
        }
    )  # fmt: skip
    assert list(plugin_sources(["theirs.vae:FRAMEWORK"])) == ["theirs", "theirs.sums", "theirs.vae"]


def test_our_own_modules_are_not_plug_ins(folder):
    folder(**{"my_vae.py": "from disentune.plugin import Framework\n", "disentune/plugin.py": ""})
    assert list(plugin_sources(["my_vae:FRAMEWORK", "disentune.recon.mse:RECON"])) == ["my_vae"]


@pytest.mark.parametrize("text", ["def (", "\0"])
def test_a_file_that_is_not_python_any_more_is_still_another_one(folder, text):
    folder(**{"my_vae.py": ""})
    before = plugin_sources(["my_vae:FRAMEWORK"])
    folder(**{"my_vae.py": text})
    assert plugin_sources(["my_vae:FRAMEWORK"])["my_vae"] != before["my_vae"]


def test_a_module_that_is_gone_has_no_hash(folder):
    assert plugin_sources(["my_vae_that_is_gone:FRAMEWORK"]) == {}


def test_nothing_is_imported(folder):
    folder(**{"my_vae_unread.py": "1 / 0\n"})
    assert list(plugin_sources(["my_vae_unread:FRAMEWORK"])) == ["my_vae_unread"]
    assert "my_vae_unread" not in sys.modules
