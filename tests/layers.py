"""Which tests a call of pytest leaves out although `-m` does not say so, and how the slow ones are dealt to workers."""

import re
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/integration/test_cluster.py",
    "tests/driver/test_trainable.py",
    "tests/cluster/test_submission.py",
    "tests/integration/test_browser.py",
    "tests/integration/test_dashboard.py",
    "tests/integration/test_site.py",
    "tests/runs/test_planner.py",
    "tests/data/test_every_dataset.py",
    "tests/fuzz/test_command_line.py",
    "tests/cli/test_stages.py",
    "tests/test_package.py",
)
"""Files whose slow tests share what is slow to start or to make, or build on each other: each runs on one worker."""
LONGEST_FIRST = (
    *TOGETHER,
    "tests/test_docs.py",
    "tests/integration/test_reproduction.py",
    "tests/integration/test_elastic.py",
    "tests/integration/test_wandb.py",
    "tests/test_notebooks.py",
    "tests/faults",
    "tests/integration",
    "tests/driver",
)
"""What takes minutes comes first, so that no worker begins with it when the others are at their last test."""


def left_out(expression: str) -> set[str]:
    """The markers whose tests an expression of `-m` leaves out without naming them.

    Long tests run only where `-m` says something about them. Slow ones also run without any `-m`, as when one file
    is tested."""
    if re.search(r"\blong\b", expression):
        return set()
    quick = expression and not re.search(r"\bslow\b", expression)
    return {"long", "slow"} if quick else {"long"}


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the command line has the node id of the test, or of the function or class that it belongs to."""
    own = item.nodeid.partition("::")[2]
    for path, _, name in (argument.partition("::") for argument in config.args):
        here = name and Path(config.invocation_params.dir, path).resolve() == item.path.resolve()
        if here and (own == name or own.startswith((f"{name}[", f"{name}::"))):
            return True
    return False


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the long and slow tests out of `items` that neither `-m` nor a node id asks for."""
    markers = left_out(config.option.markexpr)
    gone = {item for item in items if any(map(item.get_closest_marker, markers)) and not is_named(item, config)}
    if gone:
        config.hook.pytest_deselected(items=[item for item in items if item in gone])
        items[:] = [item for item in items if item not in gone]


def rank(nodeid: str) -> int:
    """The place of a test in LONGEST_FIRST; tests of equal rank keep their order."""
    found = (place for place, path in enumerate(LONGEST_FIRST) if nodeid.startswith(path))
    return next(found, len(LONGEST_FIRST))


class SlowTests(LoadScopeScheduling):
    """`--dist loadgroup` as the Makefile means it: tests one by one in their order, except for the files of TOGETHER.

    The groups of pytest-xdist itself have no effect with pytest 9.2 (its issue 1386)."""

    def __init__(self, config: pytest.Config, log: object):
        super().__init__(config, log)  # type: ignore[arg-type]
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path in TOGETHER else nodeid
