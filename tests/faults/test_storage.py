"""A sweep on Ray whose storage fails ends with the table of an undisturbed one; each case at one moment.

`python -m faults.matrix` has more moments.
"""

import pytest

from faults.cases import STORAGE


@pytest.mark.ray
@pytest.mark.parametrize("case", [case.param for case in STORAGE])
def test_a_sweep_whose_storage_fails_ends_as_an_undisturbed_one(case, survived):
    survived(case)
