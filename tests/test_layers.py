"""How the Makefile deals the slow tests out to its workers."""

import re
from itertools import product
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
MARKS = ("ray", "cluster", "browser", "wandb", "fuzz", "long")
SLOW = [(needed, *also) for needed, also in product(("ray", "cluster", "browser"), ((), ("long",)))]


def dealt_out() -> list[tuple[str, str]]:
    """Commands of the Makefile that run tests on several workers, each with the marks that it selects."""
    lines = [line for line in MAKEFILE.read_text().splitlines() if "pytest" in line and " -n " in line]
    return [(line, re.search(r'-m pytest -m ("[^"]+"|\S+)', line)[1].strip('"')) for line in lines]


def selects(expression: str, marks: tuple[str, ...]) -> bool:
    return eval(expression, {mark: mark in marks for mark in MARKS})


@pytest.mark.parametrize("marks", SLOW, ids="-".join)
def test_slow_tests_of_one_file_stay_on_one_worker(marks):
    """They share what is slow to start, and those of the cluster build on each other."""
    lines = [line for line, expression in dealt_out() if selects(expression, marks)]
    assert lines
    assert [line for line in lines if "--dist loadfile" not in line] == []
