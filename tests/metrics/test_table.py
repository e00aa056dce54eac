"""What a table must be."""

import numpy as np
import pytest

from disentune.errors import DataError
from disentune.metrics.table import checked, rows_drawn

CODES, FACTORS = np.zeros((4, 2)), np.zeros((4, 3), int)


@pytest.mark.parametrize(
    ("codes", "factors", "message"),
    [
        (CODES[0], FACTORS, r"codes must be a table of rows and columns, but its shape is \(2,\)"),
        (CODES[:, :0], FACTORS, "codes must be a table"),
        (CODES[:0], FACTORS[:0], "codes must be a table"),
        (CODES, FACTORS[..., None], "factors must be a table"),
        (CODES, FACTORS[:3], "equal rows, but have 4 and 3"),
        (CODES, FACTORS * 1.0, "factors must be whole numbers, but are float64"),
        (CODES, FACTORS > 0, "factors must be whole numbers, but are bool"),
        (CODES.astype(str), FACTORS, "codes must be numbers"),
        (CODES * 1j, FACTORS, "codes must be numbers"),
        (np.array([[0, 1], [2, np.nan], [0, 0], [0, 0]]), FACTORS, "codes must be finite, but row 1, column 1 is nan"),
        (np.array([[0, 1], [-np.inf, 0], [0, 0], [0, 0]]), FACTORS, "row 1, column 0 is -inf"),
        (CODES + 1e39, FACTORS, "codes must be finite"),
    ],
)
def test_a_wrong_table_is_refused_by_name(codes, factors, message):
    with pytest.raises(DataError, match=message):
        checked(codes, factors)


def test_codes_become_float64_and_labels_count_from_zero_in_order():
    codes, labels = checked(np.ones((4, 1), np.float32), np.array([[7, 0], [-2, 1], [7, 1], [9, 0]]))
    assert codes.dtype == np.float64
    assert labels.T.tolist() == [[1, 0, 1, 2], [0, 1, 1, 0]]


def test_drawn_rows_are_distinct_and_no_more_than_there_are():
    rng = np.random.default_rng(0)
    assert sorted(rows_drawn(5, 10, rng)) == [0, 1, 2, 3, 4]
    drawn = rows_drawn(1000, 300, rng)
    assert len(drawn) == len(set(drawn)) == 300
    assert max(drawn) > 900
