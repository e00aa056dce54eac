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
