"""What a table must be."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from disentune.errors import DataError
from disentune.metrics.table import first_components, rows_drawn, split, table_of

CODES, FACTORS = np.zeros((4, 2)), np.zeros((4, 3), int)


@pytest.mark.parametrize(
    ("codes", "factors", "message"),
    [
        (CODES[0], FACTORS, r"codes must have at least one row and one column, but its shape is \(2,\)"),
        (CODES[:, :0], FACTORS, "codes must have at least one row"),
        (CODES[:0], FACTORS[:0], "codes must have at least one row"),
        (CODES, FACTORS[..., None], "factors must have at least one row"),
        (CODES, FACTORS[:3], "the same number of rows, but have 4 and 3"),
        (CODES, FACTORS * 1.0, "factors must be whole numbers, one label per value, but are float64; cast labels"),
        (CODES.astype(str), FACTORS, "codes must be numbers"),
        (CODES * 1j, FACTORS, "codes must be numbers"),
        (np.array([[0, 1], [2, np.nan], [0, 0], [0, 0]]), FACTORS, "codes must be finite, but row 1, column 1 is nan"),
        (np.array([[0, 1], [-np.inf, 0], [0, 0], [0, 0]]), FACTORS, "row 1, column 0 is -inf"),
        (CODES + 1e39, FACTORS, "codes must be finite"),
    ],
)
def test_a_wrong_table_is_refused_by_name(codes, factors, message):
    with pytest.raises(DataError, match=message):
        table_of(codes, factors)


def test_codes_become_float64_and_labels_count_from_zero_in_order():
    table = table_of(np.ones((4, 1), np.float32), np.array([[7, 0], [-2, 1], [7, 1], [9, 0]]))
    assert table.codes.dtype == np.float64
    assert table.factors.T.tolist() == [[1, 0, 1, 2], [0, 1, 1, 0]]


def test_factors_may_be_unknown():
    assert table_of(CODES).factors.shape == (4, 0)


@pytest.mark.parametrize(
    ("logvars", "images", "message"),
    [
        (np.zeros((4, 3)), None, r"logvars must have the shape of codes, \(4, 2\), but have \(4, 3\)"),
        (np.full((4, 2), np.nan), None, "logvars must be finite, but row 0, column 0 is nan"),
        (None, np.zeros((3, 8)), "codes and images must have the same number of rows, but have 4 and 3"),
    ],
)
def test_what_is_beside_the_codes_is_checked_too(logvars, images, message):
    with pytest.raises(DataError, match=message):
        table_of(CODES, FACTORS, logvars, images)


def test_images_are_as_far_apart_as_their_mean_squared_difference():
    images = np.array([[[0, 255]], [[255, 255]], [[0, 0]], [[3, 4]]], np.uint8)
    table = table_of(CODES, images=images)
    assert table.distance(np.array([0, 2]), np.array([1, 3])).tolist() == [255**2 / 2, 12.5]


# ---- codes of vectors


def vectors(rows=200, codes=3, size=5):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, codes, size)) @ rng.normal(size=(size, size)) + rng.normal(size=size)


def test_a_code_of_vectors_is_its_first_principal_component_as_in_scikit_learn():
    expected = np.hstack([PCA(n_components=1).fit_transform(code) for code in vectors().transpose(1, 0, 2)])
    found = table_of(vectors()).codes
    assert found.shape == (200, 3)
    for ours, theirs in zip(found.T, expected.T, strict=True):
        assert min(np.abs(ours - theirs).max(), np.abs(ours + theirs).max()) < 1e-12


def test_the_largest_entry_of_a_component_is_positive():
    """So the sign depends on no library."""
    line = np.arange(5.0)[:, None, None] * np.array([1.0, -3.0])
    np.testing.assert_allclose(first_components(line)[:, 0], np.sqrt(10) * np.arange(2.0, -3.0, -1))
    np.testing.assert_allclose(first_components(-line), -first_components(line))


def test_vectors_of_one_number_are_that_number_about_its_mean():
    codes = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_allclose(first_components(codes[:, :, None]), codes - codes.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e30])
def test_the_scale_of_vectors_is_kept(scale):
    np.testing.assert_allclose(first_components(scale * vectors()), scale * first_components(vectors()))


def test_constant_vectors_become_nothing():
    assert (first_components(np.ones((4, 2, 3))) == 0).all()


@pytest.mark.parametrize(
    ("codes", "logvars", "message"),
    [
        (np.zeros((4, 2, 0)), None, r"codes must have no empty axis, but their shape is \(4, 2, 0\)"),
        (np.zeros((4, 2, 2, 2)), None, r"its shape is \(4, 2, 2, 2\)"),
        (np.where(np.arange(16).reshape(4, 2, 2) == 7, np.nan, 0), None, "row 1, column 1, 1 is nan"),
        (np.zeros((4, 2, 2)), np.zeros((4, 2)), r"logvars need codes of numbers \(n, d\), but .* \(4, 2, 2\)"),
    ],
)
def test_wrong_vectors_are_refused(codes, logvars, message):
    with pytest.raises(DataError, match=message):
        table_of(codes, FACTORS, logvars)


def test_drawn_rows_are_distinct_and_no_more_than_there_are():
    rng = np.random.default_rng(0)
    assert sorted(rows_drawn(5, 10, rng)) == [0, 1, 2, 3, 4]
    drawn = rows_drawn(1000, 300, rng)
    assert len(drawn) == len(set(drawn)) == 300
    assert max(drawn) > 900


@pytest.mark.parametrize(("rows", "train", "test"), [(15, 10, 5), (100, 10, 5), (14, 9, 5), (12, 8, 4), (3, 2, 1)])
def test_rows_to_fit_and_to_test_are_disjoint_and_as_many_as_asked(rows, train, test):
    parts = split(rows, 10, 5, np.random.default_rng(0))
    assert [len(part) for part in parts] == [train, test]
    drawn = np.concatenate(parts)
    assert len(set(drawn)) == len(drawn)
    assert drawn.max() < rows


def test_rows_are_drawn_at_random():
    train, _ = split(1000, 10, 5, np.random.default_rng(0))
    assert train.max() > 100


def test_a_table_too_small_to_split_is_refused():
    with pytest.raises(DataError, match="at least 3 rows, but it has 2"):
        split(2, 10, 5, np.random.default_rng(0))
