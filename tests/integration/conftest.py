"""Real commands in real processes, with a Ray of their own that leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import chromium
from processes import Commands, commands_in


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with commands_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened
