"""The factor grid."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.data.factors import FactorGrid
from disentune.errors import DataError

GRID = FactorGrid(("a", "b", "c"), (2, 3, 4))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_indices_and_factors_are_one_to_one(sizes):
    grid = FactorGrid(tuple(f"f{i}" for i in range(len(sizes))), tuple(sizes))
    indices = np.arange(len(grid))
    factors = grid.factors(indices)
    assert len(grid) == math.prod(sizes) == len(np.unique(factors, axis=0))
    assert (factors < sizes).all()
    assert (factors >= 0).all()
    np.testing.assert_array_equal(grid.index(factors), indices)


def test_the_last_factor_is_fastest():
    assert GRID.factors(np.array([0, 1, 4, 23])).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 2, 3]]
    assert GRID.index(np.array([[1, 2, 3], [1, 0, 0]])).tolist() == [23, 12]


@pytest.mark.parametrize("index", [-1, 24])
def test_an_index_outside_is_refused(index):
    with pytest.raises(DataError, match=f"index must be 0 to 23, but {index} came"):
        GRID.factors(np.array([0, index]))


@pytest.mark.parametrize("value", [-1, 3])
def test_a_factor_outside_is_refused_by_name(value):
    with pytest.raises(DataError, match=f"factor 'b' must be 0 to 2, but {value} came"):
        GRID.index(np.array([[0, value, 0]]))


def test_wrong_types_and_shapes_are_refused():
    with pytest.raises(DataError, match="whole numbers"):
        GRID.factors(np.array([0.5]))
    with pytest.raises(DataError, match=r"indices must be \(n,\)"):
        GRID.factors(np.array([[0]]))
    with pytest.raises(DataError, match=r"factors must be \(n, 3\)"):
        GRID.index(np.array([[0, 0]]))


def test_no_indices_give_no_factors():
    assert GRID.factors(np.array([])).shape == (0, 3)


@pytest.mark.parametrize(("names", "sizes"), [(("a",), (2, 3)), (("a",), (0,)), ((), ()), (("a", "b"), (2**32, 2**31))])
def test_a_grid_that_cannot_be_indexed_is_refused(names, sizes):
    with pytest.raises(DataError):
        FactorGrid(names, sizes)
