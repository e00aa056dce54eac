"""Cases of a disturbed sweep on Ray."""

from collections.abc import Callable
from pathlib import Path

import pytest

from faults.harness import Calms, Case, can_mount, survive


@pytest.fixture(scope="session")
def calms(tmp_path_factory: pytest.TempPathFactory) -> Calms:
    return Calms(tmp_path_factory.mktemp("calm"))


@pytest.fixture
def survived(calms: Calms, tmp_path: Path) -> Callable[[Case], None]:
    def through(case: Case) -> None:
        if case.mounts and not can_mount():
            pytest.skip("needs root, to mount a disk")
        survive(case, seed=0, calms=calms, folder=tmp_path)

    return through
