"""Lines of the grid against a search row by row."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.errors import DataError
from disentune.metrics.lines import complete_lines, line_keys, lines_drawn, triples, unit_range
from line_examples import factors_of_lines, full_grid


def by_search(factors, column):
    """For each combination of the others, the first row of every value, if all are there."""
    first = {}
    for row, point in enumerate(factors.tolist()):
        first.setdefault(tuple(point), row)
    found = set()
    for point in factors.tolist():
        line = [(*point[:column], value, *point[column + 1 :]) for value in range(factors[:, column].max() + 1)]
        if all(member in first for member in line):
            found.add(tuple(first[member] for member in line))
    return found


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), rows=st.integers(20, 90), column=st.integers(0, 2))
def test_lines_are_those_of_a_search(seed, rows, column):
    factors = np.random.default_rng(seed).integers(0, (3, 2, 4), size=(rows, 3))
    expected = by_search(factors, column)
    if expected:
        lines = complete_lines(factors, column)
        assert set(map(tuple, lines.tolist())) == expected
        assert len(lines) == len(expected)
    else:
        with pytest.raises(DataError, match=f"differ only in factor column {column} "):
            complete_lines(factors, column)


def test_a_grid_has_all_its_lines():
    grid = np.random.default_rng(0).permutation(full_grid((4, 3, 5)))
    assert [len(complete_lines(grid, column)) for column in range(3)] == [15, 20, 12]
    for column, size in enumerate((4, 3, 5)):
        lines = grid[complete_lines(grid, column)]
        np.testing.assert_array_equal(lines[..., column], np.broadcast_to(np.arange(size), lines.shape[:2]))
        assert (np.delete(lines, column, axis=2) == np.delete(lines, column, axis=2)[:, :1]).all()


def test_a_single_factor_is_one_line():
    assert complete_lines(np.array([[2], [0], [1], [0]]), 0).tolist() == [[1, 2, 0]]


def test_a_factor_that_no_two_images_show_alone_is_named():
    factors = np.array([[0, 0], [1, 0], [0, 1], [1, 2]])
    with pytest.raises(
        DataError, match=r"must have images that differ only in factor column 1 and have all of its 3 values"
    ):
        lines_drawn(factors, 8, np.random.default_rng(0))


def test_combinations_beyond_64_bits_stay_apart():
    """Nine factors of 256 values: a key of 72 bits that wraps round would forget the first of them."""
    others = np.tile(np.arange(256)[:, None], 9)
    others = np.vstack([others, [1, *[0] * 8]]).repeat(2, axis=0)
    factors = np.column_stack([others, np.tile([0, 1], 257)])
    lines = complete_lines(factors, 9)
    assert set(map(tuple, lines.tolist())) == {(row, row + 1) for row in range(0, 514, 2)}
    assert len(set(line_keys(factors, 9).tolist())) == 257


def test_equal_remainders_are_one_key_and_others_are_not():
    points = list(product(range(3), repeat=3))
    keys = line_keys(np.array(points), 1)
    assert all((keys[i] == keys[j]) == (p[::2] == q[::2]) for i, p in enumerate(points) for j, q in enumerate(points))


def test_lines_are_drawn_without_repeats_for_each_factor_that_varies():
    factors = np.insert(full_grid((4, 3, 5)), 1, 0, axis=1)
    drawn = lines_drawn(factors, 13, np.random.default_rng(0))
    assert [lines.shape for lines in drawn] == [(13, 4), (13, 3), (12, 5)]
    assert all(len(np.unique(lines, axis=0)) == len(lines) for lines in drawn)
    again, other = (lines_drawn(factors, 13, np.random.default_rng(seed)) for seed in (0, 1))
    assert all((a == b).all() for a, b in zip(drawn, again, strict=True))
    assert not (drawn[0] == other[0]).all()


def test_factors_of_one_value_have_no_lines():
    assert lines_drawn(np.zeros((5, 2), int), 8, np.random.default_rng(0)) == []


def test_scattered_lines_are_all_found():
    drawn = lines_drawn(factors_of_lines(64), 999, np.random.default_rng(0))
    assert [len(lines) >= 60 for lines in drawn] == [True] * 6


def test_triples_pair_an_anchor_with_two_others_of_its_group():
    groups = np.arange(20).reshape(4, 5) * 10
    pairs = triples(groups, 300, np.random.default_rng(0))
    first, second = pairs.rows()
    assert first.shape == second.shape == (2, 4, 300)
    np.testing.assert_array_equal(first[0], first[1])
    assert all(set(rows[:, g].ravel()) == set(groups[g]) for rows in (first, second) for g in range(4))
    assert (second[0] != second[1]).mean() == pytest.approx(0.8, abs=0.05)  # of 1200 draws, members may repeat
    assert (first != second).mean() == pytest.approx(0.8, abs=0.05)


def test_codes_are_divided_by_the_largest_of_all():
    np.testing.assert_allclose(unit_range(np.array([[1e-300, 0], [-4e-300, 2e-300]])), [[0.25, 0], [-1, 0.5]])
    assert not unit_range(np.zeros((2, 2))).any()
