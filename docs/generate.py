"""Writes the pages and parts of pages that come from the code. Exit code 1 if one of them was stale.

`make docs` runs it, then checks links and commands (check.py) and builds the site.
"""

import argparse
import re
import sys
import tomllib
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from tools import commands, plugins, sweep  # noqa: E402

PACKAGES = HERE.parent / "src" / "disentune"
REGION = re.compile(r"(<!-- layers -->\n).*?(<!-- end of layers -->)", re.DOTALL)
HEADER = "<!-- Written by docs/generate.py from the code. Do not edit: run `make docs`. -->\n\n"


# ---- the table of packages in architecture.md


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


# ---- all pages


def pages() -> dict[Path, str]:
    """What each generated page must contain."""
    written = {
        "reference/commands.md": commands.page(),
        "reference/sweep.md": sweep.page(),
        "reference/search_space.md": sweep.search_space(),
        **plugins.pages(),
    }
    found = {HERE / page: HEADER + text.rstrip() + "\n" for page, text in written.items()}
    overview = HERE / "architecture.md"
    return found | {overview: architecture(overview.read_text())}


def first_difference(before: str, after: str) -> int:
    """Number of the first line that differs."""
    lines = zip_longest(before.splitlines(), after.splitlines())
    return next((number for number, (one, other) in enumerate(lines, 1) if one != other), 1)


def stale(found: dict[Path, str]) -> dict[Path, int]:
    """The pages that differ from what is on disk, with the first line that does."""
    on_disk = {page: page.read_text() if page.exists() else "" for page in found}
    return {page: first_difference(on_disk[page], text) for page, text in found.items() if on_disk[page] != text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    found = pages()
    for page, line in (old := stale(found)).items():
        what = "run `make docs`" if check else "rewritten; commit it"
        sys.stderr.write(f"{page.relative_to(HERE.parent)}:{line}: was stale: {what}\n")
        if not check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(found[page])
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
