"""The bill of materials names the wheel and every package that it needs, at the version that was tested."""

import importlib.util
import json
import re
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def script():
    spec = importlib.util.spec_from_file_location("sbom", ROOT / ".ci" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SBOM = script()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Nothing but the metadata, as it is in a wheel of this version."""
    path = tmp_path_factory.mktemp("wheel") / f"disentune-{PROJECT['version']}-py3-none-any.whl"
    lines = [f"Name: disentune\nVersion: {PROJECT['version']}\nLicense-Expression: MIT"]
    lines += [f"Requires-Dist: {line}" for line in PROJECT["dependencies"]]
    lines += [f'Requires-Dist: {line}; extra == "dev"' for line in PROJECT["optional-dependencies"]["dev"]]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"disentune-{PROJECT['version']}.dist-info/METADATA", "\n".join(lines))
    return path


@pytest.fixture(scope="module")
def bill(wheel):
    return SBOM.bill(wheel, CONSTRAINTS)


def names(bill):
    return {one["name"] for one in bill["components"]}


def test_it_has_what_the_wheel_needs_directly_or_not_and_no_tool_of_its_developers(bill):
    direct = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert direct <= names(bill)
    for name in sorted(names(bill)):  # by the installed packages' own lists: nothing that they need is missing
        lines = map(Requirement, distribution(name).requires or ())
        held = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
        assert {canonicalize_name(line.name) for line in held} <= names(bill), name
    assert names(bill) & {"pytest", "ruff", "mypy", "mkdocs-material", "onnx", "disentune"} == set()


def test_every_version_is_the_pinned_one(bill):
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    assert {one["name"]: one["version"] for one in bill["components"]} == {name: pins[name] for name in names(bill)}


def test_every_dependency_leads_to_a_component_and_every_component_is_reached(bill):
    own = bill["metadata"]["component"]["bom-ref"]
    edges = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert edges.keys() == {own, *(one["bom-ref"] for one in bill["components"])}
    assert len(edges) == len(bill["dependencies"])
    reached, waiting = set(), [own]
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += edges[one]
    assert reached == edges.keys()


def test_equal_wheels_give_equal_bytes_and_others_another_serial_number(wheel, bill, tmp_path):
    assert json.dumps(SBOM.bill(wheel, CONSTRAINTS)) == json.dumps(bill)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    changed = tmp_path / wheel.name
    changed.write_bytes(wheel.read_bytes())
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("disentune/more.py", "")
    assert SBOM.bill(changed, CONSTRAINTS)["serialNumber"] != bill["serialNumber"]


def test_another_version_than_the_pinned_one_is_refused(wheel, tmp_path):
    other = tmp_path / "constraints.txt"
    other.write_text(re.sub(r"^numpy==.*$", "numpy==1.0.0", CONSTRAINTS.read_text(), flags=re.MULTILINE))
    with pytest.raises(SystemExit, match=r"has numpy 1\.0\.0, but .* is installed"):
        SBOM.bill(wheel, other)


def test_the_wheel_itself_is_named_with_its_hash_and_licence(bill):
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"], own["licenses"]) == ("disentune", PROJECT["version"], [{"expression": "MIT"}])
    assert own["purl"] == f"pkg:pypi/disentune@{PROJECT['version']}"
    assert len(own["hashes"][0]["content"]) == 64
