"""No input that is fuzzed may start a trial."""

from typing import Any

import pytest

from disentune.learn.training import Training


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a trial was started")

    monkeypatch.setattr(Training, "_advance", refuse)
