"""Which tests a call of pytest leaves out although `-m` does not say so: those that take long."""

import re
from pathlib import Path

import pytest


def wants_long(expression: str) -> bool:
    """Whether an expression of `-m` says anything about long tests: then it decides, as for every other marker."""
    return re.search(r"\blong\b", expression) is not None


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the command line has the node id of the test, or of the function or class that it belongs to."""
    own = item.nodeid.partition("::")[2]
    for path, _, name in (argument.partition("::") for argument in config.args):
        here = name and Path(config.invocation_params.dir, path).resolve() == item.path.resolve()
        if here and (own == name or own.startswith((f"{name}[", f"{name}::"))):
            return True
    return False


def deselect_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wants_long(config.option.markexpr):
        return
    left_out = [item for item in items if item.get_closest_marker("long") and not is_named(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
