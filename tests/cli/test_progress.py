"""Progress where there is no terminal, and where there is one."""

import io

import numpy as np
from rich.console import Console

from disentune.cli import progress as progress_module
from disentune.cli.progress import LiveProgress, followed
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from simulator import sweep_file


def test_progress_without_a_terminal_is_a_line_with_counts_and_names_what_went_wrong(tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    stream = io.StringIO()
    with run.locked() as session, LiveProgress(Console(file=stream, width=120), "mig", 12) as progress:
        planner = Planner(run, check(read_sweep(sweep_file(tmp_path))), session)
        segment = planner.next()
        row = {"step": 3, "metrics": {"mig": np.float64(0.25)}}
        progress(planner, segment.trial_id, {"at_step": 3, "rows": [row]})
        message = planner.lost(segment.trial_id, "the node burnt")
        progress(planner, segment.trial_id, {"lost": message})
    text = stream.getvalue()
    assert "0/12 trials ended, 1 running or queued" in text
    assert "lost its worker at step 0 and goes on from there" in text
    assert progress.latest[segment.trial_id] == 0.25


def test_progress_is_said_every_few_seconds_where_there_is_no_terminal(monkeypatch):
    clock = iter([0.0, 4.0, 11.0, 11.0, 15.0])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=100)
    assert list(followed(console, ["a", "b", "c"], "scoring trials")) == ["a", "b", "c"]
    assert console.file.getvalue() == "scoring trials: 1 of 3 done\n"


def test_progress_on_a_terminal_leaves_no_trace_in_what_is_given():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    assert list(followed(console, ["a", "b"], "scoring trials")) == ["a", "b"]
