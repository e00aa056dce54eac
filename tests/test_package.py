"""The wheel has all that `disentune quickstart` needs outside the repository; the sdist builds the same wheel."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from disentune.files import documents
from processes import commands_in, patience_s, rows_on_disk, wait_until

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
          "constraints.txt", "src", "sweeps", "search_spaces", "schemas")  # fmt: skip
EXAMPLES = ("sweeps", "search_spaces", "schemas")


def run(*command, cwd, **settings):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=patience_s(600), **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(names, folder):
    """Part of the repository: building leaves files beside the sources."""
    for name in names:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copyfile(ROOT / name, folder / name)


def wheel_of(source, folder):
    """Built from a folder or an sdist with the packages that are installed here."""
    build = ["wheel", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    run(sys.executable, "-m", "pip", *build, str(source), cwd=folder.parent)
    return next(folder.glob("*.whl"))


def contents(wheel):
    """The hash of each file, without the list of hashes."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "repository").mkdir()
    copied(NEEDED, folder / "repository")
    return wheel_of(folder / "repository", folder / "dist")


@pytest.mark.long
def test_the_wheel_has_every_module_example_and_schema(wheel):
    sources = [path.relative_to(ROOT / "src") for path in (ROOT / "src" / "disentune").rglob("*") if path.is_file()]
    examples = [Path("disentune/examples", path.relative_to(ROOT))
                for part in EXAMPLES for path in (ROOT / part).rglob("*.*")]  # fmt: skip
    wanted = {str(path) for path in [*sources, *examples] if "__pycache__" not in path.parts}
    assert {name for name in contents(wheel) if ".dist-info/" not in name} == wanted
    assert "disentune/examples/sweeps/quickstart.yaml" in wanted


@pytest.mark.long
def test_the_metadata_of_the_wheel_names_licence_authors_and_versions_of_python(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = message_from_string(archive.read(name).decode())
    assert (found["License-Expression"], found["License-File"]) == ("MIT", "LICENSE")
    assert found["Author"] == "disentune contributors"
    assert set(found["Requires-Python"].split(",")) == {">=3.11", "<3.14"}


@pytest.mark.long
def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    copied(NEEDED, tmp_path)
    build = "from setuptools import build_meta; build_meta.build_sdist('out')"
    (tmp_path / "out").mkdir()
    run(sys.executable, "-c", build, cwd=tmp_path)
    sdist = next((tmp_path / "out").glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"LICENSE", "CITATION.cff", "sweeps/quickstart.yaml"} <= set(names)
    assert contents(wheel_of(sdist, tmp_path / "dist")) == contents(wheel)


@pytest.mark.long
def test_what_a_cluster_receives_can_be_installed(tmp_path):
    """`file_mounts` of the cluster files send neither setup.py nor the licence."""
    (tmp_path / "repository").mkdir()
    copied(("pyproject.toml", "README.md", "src"), tmp_path / "repository")
    assert "disentune/cli/app.py" in contents(wheel_of(tmp_path / "repository", tmp_path / "dist"))


@pytest.mark.long
def test_the_packaged_quick_start_plans_outside_the_repository(wheel, tmp_path):
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    outside = {**os.environ, "PYTHONPATH": str(site)}

    def disentune(*arguments):
        return run(sys.executable, "-m", "disentune.cli", *arguments, cwd=here, env=outside)

    where = run(sys.executable, "-c", "import disentune; print(disentune.__file__)", cwd=here, env=outside)
    assert Path(where.strip()) == site / "disentune" / "__init__.py"
    packaged = site / "disentune" / "examples" / "sweeps"
    assert json.loads(disentune("plan", str(packaged / "quickstart.yaml"), "--json"))["trials"] == 18
    assert json.loads(disentune("plan", str(packaged / "small" / "spacing.yaml"), "--json"))["trials"] == 72
    disentune("quickstart", "--copy", ".")
    assert json.loads(disentune("plan", "sweeps/quickstart.yaml", "--json"))["trials"] == 18


@pytest.fixture
def installed(wheel, tmp_path):
    """The script of the wheel, installed by pip into a new environment that borrows every other package."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", str(environment), cwd=tmp_path)
    python, script = environment / "bin" / "python", environment / "bin" / "disentune"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index",
        "--disable-pip-version-check", str(wheel), cwd=tmp_path)  # fmt: skip
    site = next(environment.glob("lib/python*/site-packages"))
    borrowed = [folder for folder in sys.path if folder.endswith("site-packages")]
    (site / "borrowed.pth").write_text("".join(f"{folder}\n" for folder in borrowed))
    where = run(str(python), "-c", "import disentune; print(disentune.__file__)", cwd=tmp_path)
    assert Path(where.strip()) == site / "disentune" / "__init__.py"
    return script


@pytest.mark.ray
@pytest.mark.long
def test_the_installed_wheel_starts_stops_and_resumes_the_quick_start_outside_the_repository(installed, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    with commands_in(here, installed) as commands:
        started = commands.start("quickstart")
        wait_until(lambda: rows_on_disk(here / "runs" / "quickstart" / "main"), "a first row")
        started.send_signal(signal.SIGINT)
        output, _ = started.communicate(timeout=patience_s())
        assert started.returncode == 130, output
        assert "quickstart: 18 trials in runs/quickstart/main" in output
        before = rows_on_disk(here / "runs" / "quickstart" / "main")
        code, output = commands.run("resume", "quickstart", "--limit", "1")
        assert code == 0, output
        assert rows_on_disk(here / "runs" / "quickstart" / "main") > before


def test_the_citation_has_the_version_and_the_licence_of_the_package():
    citation = documents.read(ROOT / "CITATION.cff").value
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    families = [paper["authors"][0]["family-names"] for paper in citation["references"]]
    assert families == ["Michlo", "Locatello", "Zietlow", "Mathieu"]
