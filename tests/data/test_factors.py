"""The factor grid."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.data.factors import FactorGrid, FactorTable, factors_of, full_grid
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
    with pytest.raises(DataError, match=f"index must be 0 to 23, got {index}"):
        GRID.factors(np.array([0, index]))


@pytest.mark.parametrize("value", [-1, 3])
def test_a_factor_outside_is_refused_by_name(value):
    with pytest.raises(DataError, match=f"factor 'b' must be 0 to 2, got {value}"):
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


class Opened:
    """As much of a data set as its factors need."""

    def __init__(self, names=(), sizes=(), count=0, rows=None):
        self.factor_names, self.factor_sizes, self.count, self.factor_rows = names, sizes, count, rows

    def __len__(self):
        return self.count


def test_a_data_set_without_factors_has_a_table_without_columns():
    known = factors_of(Opened(count=7))
    assert len(known) == 7
    assert known.factors(np.array([0, 6])).shape == (2, 0)
    with pytest.raises(DataError, match="index must be 0 to 6, got 7"):
        known.factors(np.array([7]))
    with pytest.raises(
        DataError, match="this needs an image for each combination of factors, but the images have no kn"
    ):
        full_grid(known, "this")


def test_rows_take_the_place_of_a_grid():
    rows = np.array([[0, 1], [1, 1], [0, 1]])
    known = factors_of(Opened(("a", "b"), (2, 2), 3, rows))
    np.testing.assert_array_equal(known.factors(np.array([2, 1])), rows[[2, 1]])
    with pytest.raises(DataError, match="combinations are missing or repeated"):
        full_grid(known, "this")


def test_without_rows_factors_make_a_grid():
    known = factors_of(Opened(("a", "b"), (2, 3), 6))
    assert full_grid(known, "this") is known
    assert known == FactorGrid(("a", "b"), (2, 3))


def test_values_are_spread_evenly_between_minus_one_and_one():
    grid = FactorGrid(("a", "b", "c"), (3, 1, 5))
    found = grid.evenly(np.arange(len(grid)))
    assert found.dtype == np.float32
    expected = [[a, 0, c] for a in (-1, 0, 1) for c in (-1, -0.5, 0, 0.5, 1)]
    np.testing.assert_array_equal(found, expected)


def test_factors_of_a_table_are_spread_like_those_of_a_grid():
    grid = FactorGrid(("a", "b"), (3, 2))
    table = FactorTable(grid.names, grid.sizes, grid.factors(np.array([5, 0, 5, 2])))
    np.testing.assert_array_equal(table.evenly(np.arange(4)), grid.evenly(np.array([5, 0, 5, 2])))
