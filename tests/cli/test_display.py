"""What people read: short numbers, honest times and tables."""

import io

import pandas as pd
import pytest
from rich.console import Console

from disentune.cli.display import clock, duration, frame_table, number, score_lines, size


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_are_in_units_that_people_use(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (200, "3:20"), (7505, "2:05:05")])
def test_a_clock_is_short(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(12, "12 B"), (1500, "1.5 kB"), (3.2e9, "3.2 GB"), (5e13, "50.0 TB")])
def test_sizes_are_in_units_that_people_use(count, text):
    assert size(count) == text


def test_numbers_are_short_and_nothing_is_blank():
    assert [number(value) for value in (0.123456, 3, "x", None, float("nan"), pd.NA)] == [
        "0.1235",
        "3",
        "x",
        "",
        "",
        "",
    ]


def printed(show) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=120))
    return stream.getvalue()


def test_a_table_shows_at_most_so_many_rows_and_takes_no_markup_from_data():
    frame = pd.DataFrame({"arm": ["[red]a", "b", "c"], "mean": [0.1, 0.2, 0.3]})
    text = printed(lambda console: console.print(frame_table(frame, ["arm", "mean"], 2)))
    assert "[red]a" in text
    assert "0.2" in text
    assert "0.3" not in text


def test_each_number_has_a_line_and_the_time_is_shown_once():
    text = score_lines("dci", {"dci": 0.5, "dci_more": 0.25}, "", 1.234, (5, 8))
    assert text.splitlines() == ["dci    dci              0.5     1.23 s", "       dci_more        0.25"]
    assert score_lines("dci", {}, "needs factors", 0.0, (5, 8)) == "dci    needs factors"
