"""Writes the parts of the documentation that come from the code: `make docs`. Exit code 1 if one of them was stale."""

import argparse
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "src" / "disentune"
REGION = re.compile(r"(<!-- layers -->\n).*?(<!-- end of layers -->)", re.DOTALL)


def layers() -> str:
    """The table of packages, from docs/layers.toml and the files that are there."""
    rows = [row(**layer) for layer in tomllib.loads((HERE / "layers.toml").read_text())["layer"]]
    return "\n".join(["", "| package | modules | what it holds |", "|---|---|---|", *rows, "", ""])


def row(packages: list[str], holds: str) -> str:
    return f"| {' '.join(map(name, packages))} | {', '.join(map(modules, packages))} | {holds} |"


def name(package: str) -> str:
    return f"`{package}/`" if (PACKAGES / package).is_dir() else f"`{package}.py`"


def modules(package: str) -> str:
    files = (PACKAGES / package).rglob("*.py")
    return str(sum(file.stem != "__init__" for file in files) or 1)


def architecture(text: str) -> str:
    return REGION.sub(lambda found: found[1] + layers() + found[2], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    page = HERE / "architecture.md"
    before = page.read_text()
    after = architecture(before)
    if before == after:
        return 0
    if not check:
        page.write_text(after)
    sys.stderr.write(f"docs/architecture.md was stale: {'run `make docs`' if check else 'commit the new one'}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
