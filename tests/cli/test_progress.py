"""Progress where there is no terminal, and where there is one."""

import io

from rich.console import Console

from disentune.cli import progress as progress_module
from disentune.cli.progress import LiveProgress, followed
from disentune.cli.watching import line
from disentune.results.watch import Watcher
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.trial_folder import Status
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from simulator import sweep_file


def test_progress_without_a_terminal_is_a_line_with_counts_and_names_what_went_wrong(tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    stream = io.StringIO()
    with run.locked() as session, LiveProgress(Console(file=stream, width=120), run) as progress:
        asked = check(read_sweep(sweep_file(tmp_path)))
        run.record(asked.sweep)
        planner = Planner(run, asked, session)
        first, second = planner.next(), planner.next()
        run.trial(first.trial_id).set_status(Status("running", attempts=1))
        progress(planner, first.trial_id, {"at_step": 3, "rows": []})
        message = planner.lost(second.trial_id, "the node burnt")
        progress(planner, second.trial_id, {"lost": message})
    text = stream.getvalue()
    assert "0/12 trials ended; 1 running, 11 pending" in text  # the second waits for a slot
    assert "lost its worker at step 0" in text


def test_a_session_and_its_watchers_show_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("disentune.results.watch.time.time", lambda: 2e9)  # both look at the same moment
    run, stream = Run(tmp_path / "runs" / "tiny" / "main"), io.StringIO()
    asked = check(read_sweep(sweep_file(tmp_path)))
    with run.locked() as session, LiveProgress(Console(file=stream, width=200), run) as progress:
        run.record(asked.sweep)
        planner = Planner(run, asked, session)
        trials = [planner.next().trial_id for _ in range(2)]
        run.trial(trials[0]).set_status(Status("done", 12, seconds=6.0))
        run.trial(trials[1]).set_status(Status("running", 3, seconds=1.5))
        progress(planner, trials[0], {})
        assert stream.getvalue() == f"{line(Watcher(run).look()).plain}\n"
    assert "2 steps/s" in stream.getvalue()
    assert "left" in stream.getvalue()


def test_a_terminal_is_drawn_without_news_and_says_how_to_stop_at_once(tmp_path):
    run, stream = Run(tmp_path / "runs" / "tiny" / "main"), io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True)
    with run.locked(), LiveProgress(console, run) as progress:
        run.record(read_sweep(sweep_file(tmp_path)))
        assert not progress.is_drawn()
        progress.beat()
        assert progress.is_drawn()
        assert "running for" in stream.getvalue()
        assert "Ctrl-C" not in stream.getvalue()
        run.ask_to_stop("SIGINT")
        progress.due = 0.0
        progress.beat()
        assert "press Ctrl-C again to stop immediately" in stream.getvalue()
    assert not progress.is_drawn()


def test_looking_takes_a_small_share_of_the_drivers_time(tmp_path, monkeypatch):
    looks, clock = [], [0.0]

    def look(self):
        looks.append(clock[0])
        clock[0] += 2.0
        return real(self)

    real = Watcher.look
    monkeypatch.setattr(Watcher, "look", look)
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    run = Run(tmp_path / "runs" / "tiny" / "main")
    with LiveProgress(Console(file=io.StringIO()), run) as progress:
        for now in (0.0, 10.0, 41.0, 43.0):
            clock[0] = max(clock[0], now)
            progress(None, "trial", {})
    assert looks == [0.0, 43.0]


def test_progress_is_printed_every_few_seconds_without_a_terminal(monkeypatch):
    clock = iter([0.0, 4.0, 11.0, 11.0, 15.0])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=100)
    assert list(followed(console, ["a", "b", "c"], "scoring trials")) == ["a", "b", "c"]
    assert console.file.getvalue() == "scoring trials: 1 of 3 done\n"


def test_progress_on_a_terminal_leaves_no_trace_in_what_is_given():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    assert list(followed(console, ["a", "b"], "scoring trials")) == ["a", "b"]
