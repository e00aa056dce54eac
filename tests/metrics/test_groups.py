"""Rows that share a factor's value: which may be drawn, and how often."""

import numpy as np
import pytest
from scipy.stats import chisquare

from disentune.errors import DataError
from disentune.metrics import groups as module
from disentune.metrics.groups import caution, drawable, groups, halves, is_complete, pairs, sharing
from line_examples import full_grid
from metric_examples import factors_of

UNEVEN = np.array([[2, 0], [0, 0], [1, 1], [0, 1], [2, 1], [0, 1], [3, 1]])
"""First factor: value 0 three times, 2 twice, 1 and 3 once."""


def whole(factors):
    """All rows, none of them put aside."""
    return sharing(factors, np.arange(len(factors)), drawable(factors))


def divided(factors, rng):
    return halves(factors, drawable(factors), rng)


def drawn(draw, factors, count, members, seed=0):
    chunks = list(draw(whole(factors), count, members, np.random.default_rng(seed)))
    return [np.concatenate(arrays) for arrays in zip(*chunks, strict=True)]


def test_members_of_a_group_share_the_value_of_its_factor():
    factors = factors_of(1)
    fixed, rows = drawn(groups, factors, 500, 9)
    values = factors[rows, fixed[:, None]]
    assert rows.shape == (500, 9)
    assert (values == values[:, :1]).all()


def test_each_pair_shares_a_value_of_its_own():
    factors = factors_of(1)
    fixed, rows, partners = drawn(pairs, factors, 500, 9)
    values = factors[rows, fixed[:, None]]
    assert rows.shape == partners.shape == (500, 9)
    assert (values == factors[partners, fixed[:, None]]).all()
    assert np.mean(np.ptp(values, axis=1) > 0) > 0.95  # nine values of 3 to 5 are equal in 1 of 6561 groups or fewer


def test_all_rows_that_share_a_value_are_drawn_equally_often():
    _, rows = drawn(groups, UNEVEN[:, :1], 4000, 4)
    counts = np.bincount(rows.ravel(), minlength=7)
    assert counts[[2, 6]].tolist() == [0, 0]
    for alike in ([1, 3, 5], [0, 4]):
        assert chisquare(counts[alike]).pvalue > 0.001


def test_values_are_drawn_as_often_as_rows_have_them():
    _, rows = drawn(groups, UNEVEN[:, :1], 5000, 2)
    shares = np.bincount(UNEVEN[rows[:, 0], 0], minlength=4)[[0, 2]]
    assert chisquare(shares, np.array([3, 2]) / 5 * 5000).pvalue > 0.001


def test_members_are_drawn_with_replacement():
    _, rows = drawn(groups, UNEVEN[:, :1], 4000, 2)
    of_three = rows[np.isin(rows[:, 0], [1, 3, 5])]
    assert np.mean(of_three[:, 0] == of_three[:, 1]) == pytest.approx(1 / 3, abs=0.04)  # four standard errors


def test_rows_of_pairs_are_uniform_and_their_partners_are_uniform_among_the_others():
    _, rows, partners = drawn(pairs, UNEVEN[:, :1], 4000, 3)
    counts = np.zeros((7, 7))
    np.add.at(counts, (rows.ravel(), partners.ravel()), 1)
    expected = np.zeros((7, 7))
    for alike in ([1, 3, 5], [0, 4]):
        expected[np.ix_(alike, alike)] = 1 / 5 / (len(alike) - 1)
    np.fill_diagonal(expected, 0)
    assert (counts[expected == 0] == 0).all()
    assert chisquare(counts[expected > 0], expected[expected > 0] * 12_000).pvalue > 0.001


def test_no_row_is_its_own_partner():
    _, rows, partners = drawn(pairs, np.random.default_rng(0).integers(0, (3, 30), size=(100, 2)), 2000, 8)
    assert (rows != partners).all()


@pytest.mark.parametrize("draw", [groups, pairs])
def test_factors_are_drawn_equally_often_but_for_those_that_cannot_be(draw):
    alone, constant = np.arange(7), np.zeros(7, int)
    fixed = drawn(draw, np.column_stack([alone, UNEVEN, constant]), 4000, 3)[0]
    counts = np.bincount(fixed, minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert chisquare(counts[[1, 2]]).pvalue > 0.001


def test_the_order_of_the_table_does_not_matter():
    factors, order = factors_of(1), np.random.default_rng(3).permutation(60)
    for fixed, rows in (drawn(groups, table, 3000, 5) for table in (factors, factors[order])):
        assert chisquare(np.bincount(rows.ravel(), minlength=60)).pvalue > 1e-6  # members of a group are alike
        assert chisquare(np.bincount(fixed)).pvalue > 0.001


@pytest.mark.parametrize("draw", [groups, pairs])
@pytest.mark.parametrize(("count", "members"), [(10, 4), (9, 4), (1, 4), (3, 30)])
def test_chunks_add_up(draw, count, members, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 12)
    chunks = list(draw(whole(UNEVEN), count, members, np.random.default_rng(0)))
    assert sum(len(chunk[0]) for chunk in chunks) == count
    assert all(array.shape == (len(chunk[0]), members) for chunk in chunks for array in chunk[1:])
    assert all(len(chunk[0]) * members <= max(12, members) for chunk in chunks)


@pytest.mark.parametrize("factors", [np.zeros((5, 2), int), np.arange(5)[:, None], np.zeros((1, 1), int)])
def test_a_table_that_shares_nothing_is_refused(factors):
    with pytest.raises(DataError, match=rf"two or more values.*\(factors: {factors.shape[1]}, rows: {len(factors)}\)"):
        drawable(factors)


# ---- rows to fit on and rows to test on


@pytest.mark.parametrize("draw", [groups, pairs])
def test_no_row_is_both_fitted_on_and_tested_on(draw):
    seen = []
    for half in divided(factors_of(3), np.random.default_rng(1)):
        chunks = list(draw(half, 3000, 4, np.random.default_rng(0)))
        seen.append({row for chunk in chunks for rows in chunk[1:] for row in rows.ravel().tolist()})
    assert [len(rows) for rows in seen] == [90, 90]
    assert not seen[0] & seen[1]


def test_pairs_of_each_half_share_a_value():
    factors = factors_of(3)
    for half in divided(factors, np.random.default_rng(1)):
        for fixed, rows, partners in pairs(half, 500, 4, np.random.default_rng(0)):
            assert (factors[rows, fixed[:, None]] == factors[partners, fixed[:, None]]).all()
            assert set(fixed.tolist()) == {0, 1, 2}


def test_the_division_is_random():
    rows = [set(divided(factors_of(3), np.random.default_rng(seed))[1].order.ravel()) for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3), (2, 3), (2, 2, 2), (2, 3, 4)])
def test_groups_of_both_halves_of_a_tiny_grid_fix_one_factor_and_no_other(sizes):
    """Else no code could tell which of two factors is fixed."""
    grid = full_grid(sizes)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for half in divided(grid, rng):
            fixed, rows = next(groups(half, 50, 64, rng))
            still = np.ptp(grid[rows], axis=1) == 0
            assert (still.sum(axis=1) == 1).all()
            assert still[np.arange(50), fixed].all()
            assert set(fixed.tolist()) == set(range(len(sizes)))


@pytest.mark.parametrize("sizes", [(2, 2), (2, 1, 2)])
def test_a_grid_that_cannot_be_divided_is_refused(sizes):
    with pytest.raises(DataError, match=f"{np.prod(sizes)} rows are too few to split"):
        divided(full_grid(sizes), np.random.default_rng(0))


def test_a_small_sample_is_refused_with_the_size_that_is_needed_and_a_whole_grid_comes_with_a_caution():
    grid = full_grid((5, 6, 7))
    assert caution(grid, 210) == caution(grid[1:], 209) == ""
    with pytest.raises(
        DataError, match=r"fewer than 1,211 rows noise may .* the table has 209; score a table of 1,211"
    ):
        caution(grid[1:], 1211)
    assert caution(grid, 1211).startswith("with fewer than 1,211 rows noise may score more than 0.03 above chance")


def test_a_grid_is_complete_when_it_has_every_combination_once():
    grid = full_grid((2, 3))
    assert is_complete(grid)
    assert is_complete(grid[[3, 1, 0, 2, 5, 4]])
    for other in (grid[1:], np.tile(grid, (2, 1)), grid[[0, 1, 2, 3, 4, 4]]):
        assert not is_complete(other)
