"""Pages that name the code name what is there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = ARCHITECTURE[ARCHITECTURE.index("## From a sweep file") : ARCHITECTURE.index("## Words")]
HOPS = sorted(set(re.findall(r"`([a-z]+\.[a-z_]+\.[A-Za-z_.]+)`", WALKS)))


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_step_of_the_walks_names_a_function():
    steps = re.findall(r"^[0-9]+\. .*", WALKS, re.MULTILINE)
    assert len(steps) > 20
    assert [step for step in steps if not any(f"`{hop}`" in step for hop in HOPS)] == []


@pytest.mark.parametrize("hop", HOPS)
def test_what_the_walks_name_exists(hop):
    package, module, *attributes = hop.split(".")
    found = importlib.import_module(f"disentune.{package}.{module}")
    for name in attributes:
        found = getattr(found, name)
    assert callable(found)


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_links_that_a_page_names_exist(page):
    text = page.read_text()
    named = re.findall(r"\b((?:src/disentune|tests|sweeps|benchmarks)/[\w/.-]+\.(?:py|yaml))\b", text)
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [name for name in linked if not (page.parent / name).exists()]
    assert sorted(set(missing) - EXAMPLES) == []


EXAMPLES = {
    "src/disentune/frameworks/free_bits_vae.py", "tests/frameworks/test_free_bits_vae.py",
    "sweeps/demo.yaml", "sweeps/x.yaml",
}  # fmt: skip
"""Files of the reader's own."""
