"""The commands of the Makefile leave no test out, and long tests run only for those who ask."""

import itertools
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.mark.expression import Expression

from layers import deselect_long, wants_long

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
MARKERS = [line.partition(":")[0] for line in SETTINGS["markers"]]
INNER_LOOP = "not ray and not cluster and not fuzz"
QUICK, SLOW = "tests/test_example.py::test_quick", ["test_slow[1]", "test_slow[2]", "TestSlow::test_inside"]


def expressions(target):
    """What the recipe of a target gives to `-m`, one for each call of pytest."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [quoted or bare for quoted, bare in re.findall(r'pytest.* -m (?:"([^"]*)"|(\w+))', recipe[1])]


def selects(expression, markers):
    left_out = "long" in markers and not wants_long(expression)
    return not left_out and Expression.compile(expression).evaluate(lambda name, **_: name in markers)


def test_a_test_with_any_markers_runs_once_in_make_test_or_else_in_make_test_rest():
    first, rest = expressions("test"), expressions("test-rest")
    assert first
    assert rest
    for count in range(len(MARKERS) + 1):
        for markers in itertools.combinations(MARKERS, count):
            calls = sum(selects(expression, markers) for expression in first)
            assert calls == (0 if "long" in markers else 1), markers
            if calls == 0 or "fuzz" in markers:  # `make test` has a tenth of the fuzzing
                assert any(selects(expression, markers) for expression in rest), markers


def test_the_inner_loop_is_a_part_of_make_test():
    for count in range(len(MARKERS) + 1):
        for markers in itertools.combinations(MARKERS, count):
            if selects(INNER_LOOP, markers):
                assert any(selects(expression, markers) for expression in expressions("test")), markers


class Item:
    """What of a test is looked at."""

    def __init__(self, nodeid):
        self.nodeid, self.path = nodeid, ROOT / nodeid.partition("::")[0]

    def get_closest_marker(self, name):
        return name if name == "long" and self.nodeid != QUICK else None


@pytest.mark.parametrize(
    ("markers", "arguments", "left"),
    [
        ("", ["tests"], []),
        ("", ["tests/test_example.py"], []),
        (INNER_LOOP, ["tests"], []),
        ("longer", ["tests"], []),
        ("long", ["tests"], SLOW),
        ("not long and not ray", ["tests"], SLOW),  # which pytest itself then deselects
        ("", ["tests/test_example.py::test_slow"], SLOW[:2]),
        ("", ["tests", "tests/test_example.py::test_slow[2]"], SLOW[1:2]),
        ("", [f"{ROOT}/tests/test_example.py::TestSlow"], SLOW[2:]),
        ("not ray", ["tests/test_example.py::TestSlow::test_inside"], SLOW[2:]),
        ("", ["tests/test_other.py::test_slow"], []),
        ("", ["tests/test_example.py::test_sl"], []),
    ],
)
def test_long_tests_run_when_the_markers_or_a_node_id_ask_for_them(markers, arguments, left):
    ids = [QUICK, *(f"tests/test_example.py::{name}" for name in SLOW)]
    items, reported = [Item(id) for id in ids], []
    config = SimpleNamespace(
        option=SimpleNamespace(markexpr=markers),
        args=arguments,
        invocation_params=SimpleNamespace(dir=ROOT),
        hook=SimpleNamespace(pytest_deselected=lambda items: reported.extend(items)),
    )
    deselect_long(config, items)
    assert [item.nodeid for item in items] == [QUICK, *(f"tests/test_example.py::{name}" for name in left)]
    assert {item.nodeid for item in items + reported} == set(ids)
    assert len(items) + len(reported) == len(ids)


@pytest.mark.parametrize("needed", ["ray", "cluster", "browser"])
@pytest.mark.parametrize("also", [(), ("long",)])
def test_slow_tests_of_one_file_stay_on_one_worker(needed, also):
    """They share what is slow to start, and those of the cluster build on each other."""
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest" in line and " -n " in line]
    found = {line: re.search(r'-m pytest -m (?:"([^"]+)"|(\S+))', line) for line in lines}
    chosen = [line for line, expression in found.items() if selects(expression[1] or expression[2], (needed, *also))]
    assert chosen
    assert [line for line in chosen if "--dist loadfile" not in line] == []
