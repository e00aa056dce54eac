"""What people read: short numbers, honest times, and progress where there is no terminal."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from disentune.display import LiveProgress, duration, frame_table, number, show_status, size
from disentune.ledger import Run, Status
from disentune.planner import Planner
from disentune.sweepfile import read_sweep
from simulator import sweep_file


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_are_in_units_that_people_use(seconds, text):
    assert duration(seconds) == text


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


def test_status_calls_a_dead_drivers_trial_pending_and_shows_the_first_line_of_a_cause(tmp_path, trial_with):
    folder = Run(tmp_path / "r").trial(trial_with().id)
    folder.create(trial_with(), ("all",))
    trials = [(folder, Status("running", 5), 10), (folder, Status("failed", 3, "ValueError: no\ntrace"), 10)]
    dead = printed(lambda console: show_status(console, "runs/x", False, trials))
    assert "not running; 1 failed, 1 pending" in dead
    assert "ValueError: no" in dead
    assert "trace" not in dead
    assert "1 running" in printed(lambda console: show_status(console, "runs/x", True, trials))


def test_progress_without_a_terminal_is_a_line_with_counts_and_names_what_went_wrong(tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    stream = io.StringIO()
    with run.locked() as session, LiveProgress(Console(file=stream, width=120), "mig", 12) as progress:
        planner = Planner(run, read_sweep(sweep_file(tmp_path)), session)
        segment = planner.next()
        row = {"step": 3, "metrics": {"mig": np.float64(0.25)}}
        progress(planner, segment.trial_id, {"at_step": 3, "rows": [row]})
        message = planner.lost(segment.trial_id, "the node burnt")
        progress(planner, segment.trial_id, {"lost": message})
    text = stream.getvalue()
    assert "0/12 trials done, 1 running or queued" in text
    assert "lost its worker at step 0 and goes on from there" in text
    assert progress.latest[segment.trial_id] == 0.25
