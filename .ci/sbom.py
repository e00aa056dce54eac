"""Writes the bill of materials of a wheel, as CycloneDX 1.6 in JSON: python .ci/sbom.py WHEEL constraints.txt

What a wheel needs is in its own metadata and, from there on, in that of the installed packages; versions are the pins.
Equal wheels, pins and packages give equal bytes: the bill has no date, and its serial number is a hash of its content.
"""

import hashlib
import json
import sys
import uuid
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

Needs = dict[str, set[str]]
"""Names of packages, each with the names of those that it needs."""


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def pinned(constraints: Path) -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in constraints.read_text().splitlines())
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def needed(lines: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """The requirements that hold on this machine."""
    worlds = [{"extra": extra} for extra in ("", *extras)]
    found = map(Requirement, lines)
    return [one for one in found if one.marker is None or any(map(one.marker.evaluate, worlds))]


def closure(wheel: Message) -> Needs:
    """The wheel and all packages that it needs, directly or not, without its extras."""
    root = canonicalize_name(wheel["Name"])
    needs: Needs = {}
    asked: dict[str, set[str]] = {}
    waiting = [(root, wheel.get_all("Requires-Dist") or [], frozenset[str]())]
    while waiting:
        name, lines, extras = waiting.pop()
        for one in needed(lines, extras):
            other = canonicalize_name(one.name)
            needs.setdefault(name, set()).add(other)
            if other not in asked or not one.extras <= asked[other]:
                asked[other] = asked.get(other, set()) | one.extras
                waiting.append((other, installed(other).get_all("Requires-Dist") or [], frozenset(asked[other])))
        needs.setdefault(name, set())
    return needs


@cache
def installed(name: str) -> Message:
    try:
        return metadata(name)  # type: ignore[return-value]
    except PackageNotFoundError:
        raise SystemExit(f"{name} is needed but not installed; run this with the Python of: make setup") from None


def component(about: Message, version: str) -> dict[str, Any]:
    name = canonicalize_name(about["Name"])
    address = f"pkg:pypi/{name}@{version}"
    found = {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}
    expression = about["License-Expression"]
    return found | ({"licenses": [{"expression": expression}]} if expression else {})


def bill(wheel: Path, constraints: Path) -> dict[str, Any]:
    about, pins = metadata_of(wheel), pinned(constraints)
    needs, root = closure(about), canonicalize_name(about["Name"])
    names = sorted(needs.keys() - {root})
    for name in names:
        if name not in pins or Version(installed(name)["Version"]).public != pins[name]:
            raise SystemExit(
                f"{constraints} has {name} {pins.get(name)}, but {installed(name)['Version']} is installed"
            )
    own = component(about, about["Version"])
    own["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    others = {name: component(installed(name), pins[name]) for name in names}
    known = {root: own} | others
    content = {
        "metadata": {"component": own},
        "components": [others[name] for name in names],
        "dependencies": [
            {"ref": known[name]["bom-ref"], "dependsOn": [known[other]["bom-ref"] for other in sorted(needs[name])]}
            for name in (root, *names)
        ],
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": uuid.UUID(bytes=digest[:16], version=4).urn}
    return {**head, "version": 1, **content}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(*map(Path, sys.argv[1:])), indent=1) + "\n")
