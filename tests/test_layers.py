"""The Makefile leaves no test out, slow tests stay out of the inner loop, and long ones run only on request."""

import itertools
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.mark.expression import Expression

from layers import LONGEST_FIRST, TOGETHER, SlowTests, deselect, left_out, rank

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
MARKERS = [line.partition(":")[0] for line in SETTINGS["markers"]]
INNER_LOOP = "not ray and not cluster and not fuzz"
QUICK, SLOW = "tests/test_example.py::test_quick", "tests/test_example.py::test_slow"
LONG = ["test_long[1]", "test_long[2]", "TestLong::test_inside"]


def expressions(target):
    """What the recipe of a target gives to `-m`, one for each call of pytest."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return [quoted or bare for quoted, bare in re.findall(r'pytest.* -m (?:"([^"]*)"|(\w+))', recipe[1])]


def selects(expression, markers):
    return left_out(expression).isdisjoint(markers) and Expression.compile(expression).evaluate(
        lambda name, **_: name in markers
    )


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
        own = {QUICK: None, SLOW: "slow"}.get(self.nodeid, "long")
        return name if name == own else None


@pytest.mark.parametrize(
    ("markers", "arguments", "slow", "long"),
    [
        ("", ["tests"], True, []),
        ("", ["tests/test_example.py"], True, []),
        (INNER_LOOP, ["tests"], False, []),
        ("longer or slower", ["tests"], False, []),
        ("not ray and slow", ["tests"], True, []),
        ("long", ["tests"], True, LONG),
        ("not long and not ray", ["tests"], True, LONG),  # which pytest itself then deselects
        ("", ["tests/test_example.py::test_long"], True, LONG[:2]),
        ("", ["tests", "tests/test_example.py::test_long[2]"], True, LONG[1:2]),
        ("", [f"{ROOT}/tests/test_example.py::TestLong"], True, LONG[2:]),
        ("not ray", ["tests/test_example.py::TestLong::test_inside"], False, LONG[2:]),
        ("not ray", ["tests/test_example.py::test_slow"], True, []),
        ("", ["tests/test_other.py::test_long"], True, []),
        ("", ["tests/test_example.py::test_lo"], True, []),
    ],
)
def test_long_and_slow_tests_run_when_the_markers_or_a_node_id_ask_for_them(markers, arguments, slow, long):
    ids = [QUICK, SLOW, *(f"tests/test_example.py::{name}" for name in LONG)]
    items, reported = [Item(id) for id in ids], []
    config = SimpleNamespace(
        option=SimpleNamespace(markexpr=markers),
        args=arguments,
        invocation_params=SimpleNamespace(dir=ROOT),
        hook=SimpleNamespace(pytest_deselected=lambda items: reported.extend(items)),
    )
    deselect(config, items)
    assert [item.nodeid for item in items] == [
        QUICK,
        *([SLOW] if slow else []),
        *(f"tests/test_example.py::{name}" for name in long),
    ]
    assert {item.nodeid for item in items + reported} == set(ids)
    assert len(items) + len(reported) == len(ids)


@pytest.mark.parametrize("needed", ["ray", "cluster", "browser"])
@pytest.mark.parametrize("also", [(), ("long",)])
def test_slow_tests_are_dealt_by_our_own_rule(needed, also):
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest" in line and " -n " in line]
    found = {line: re.search(r'-m pytest -m (?:"([^"]+)"|(\S+))', line) for line in lines}
    chosen = [line for line, expression in found.items() if selects(expression[1] or expression[2], (needed, *also))]
    assert chosen
    assert [line for line in chosen if "--dist loadgroup" not in line] == []


def test_files_whose_tests_share_a_ray_a_cluster_or_a_browser_are_kept_together():
    needs = re.compile(r"pytest\.mark\.(ray|cluster|browser)")
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.glob("tests/**/test_*.py")}
    sharing = {name for name, text in texts.items() if needs.search(text) and 'scope="module"' in text}
    assert sharing
    assert sharing <= set(TOGETHER)


def test_every_name_in_the_order_of_slow_tests_exists():
    assert [name for name in LONGEST_FIRST if not (ROOT / name).exists()] == []


class Worker:
    """A worker of xdist that takes down which tests it is sent."""

    def __init__(self):
        self.sent, self.shutting_down, self.gateway = [], False, SimpleNamespace(id="a")

    def send_runtest_some(self, indices):
        self.sent.append(indices)

    def shutdown(self):
        self.shutting_down = True


def test_the_longest_come_first_and_those_that_share_stay_on_one_worker():
    quick, slow, *shared = (
        "tests/a.py::test[1]",
        "tests/faults/test_b.py::test",
        *(f"{TOGETHER[0]}::test_{i}" for i in "abc"),
    )
    ids = sorted([quick, slow, shared[2], "tests/a.py::test[2]", *shared[:2]], key=rank)
    assert ids == [shared[2], *shared[:2], slow, quick, "tests/a.py::test[2]"]
    config = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=True), getvalue=lambda name: ["2*popen"], rootpath=ROOT
    )
    scheduler, workers = SlowTests(config, None), [Worker(), Worker()]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, ids)
    scheduler.schedule()
    assert [worker.sent for worker in workers] == [[[0, 1, 2]], [[3], [4]]]
    scheduler.mark_test_complete(workers[1], 3)
    assert workers[1].sent == [[3], [4], [5]]
    assert not workers[0].shutting_down
