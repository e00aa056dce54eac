"""Whatever happens to a sweep on Ray, it ends with the table of an undisturbed one; each case at one moment.

`python -m faults.matrix` has more moments. Every pair of search and scheduler is killed in
tests/runs/test_planner.py, without Ray.
"""

import pytest

from faults.cases import CASES
from faults.harness import Calms, can_mount, survive


@pytest.fixture(scope="session")
def calms(tmp_path_factory):
    return Calms(tmp_path_factory.mktemp("calm"))


EVERY_TIME = "SIGKILL of the driver"
"""The one case that `make test` has, too."""


def marked(case):
    marks = [] if case.name == EVERY_TIME else [pytest.mark.long]
    return pytest.param(case, id=case.name.replace(" ", "-"), marks=marks)


@pytest.mark.ray
@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_a_disturbed_sweep_ends_as_an_undisturbed_one(case, calms, tmp_path):
    if case.mounts and not can_mount():
        pytest.skip("needs root, to mount a disk")
    survive(case, seed=0, calms=calms, folder=tmp_path)
