"""A sweep on Ray whose trials go wrong ends with the table of an undisturbed one; each case at one moment.

`python -m faults.matrix` has more moments.
"""

import pytest

from faults.cases import TRIALS


@pytest.mark.ray
@pytest.mark.parametrize("case", [case.param for case in TRIALS])
def test_a_sweep_whose_trials_go_wrong_ends_as_an_undisturbed_one(case, survived):
    survived(case)
