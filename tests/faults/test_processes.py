"""A sweep on Ray whose processes die ends with the table of an undisturbed one; each case at one moment.

`python -m faults.matrix` has more moments. Every pair of search and scheduler is killed in
tests/runs/test_planner.py, where Ray has no part.
"""

import pytest

from faults.cases import PROCESSES


@pytest.mark.ray
@pytest.mark.parametrize("case", [case.param for case in PROCESSES])
def test_a_sweep_whose_processes_die_ends_as_an_undisturbed_one(case, survived):
    survived(case)
