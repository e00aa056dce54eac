"""The state of a run on a terminal and in a pipe."""

import io

import pytest
from rich.console import Console

from disentune.cli.display import plain
from disentune.cli.watching import MOST_LISTED, line, shares, show_status, view, watch
from disentune.results.watch import Seen, Snapshot, Watcher
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from disentune.spec.settings import Objective


def printed(show) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=120))
    return stream.getvalue()


def test_status_calls_a_dead_drivers_trial_pending_and_shows_the_first_line_of_a_cause(tmp_path, trial_with):
    folder = Run(tmp_path / "r").trial(trial_with().id)
    folder.create(trial_with(), ("all",))
    trials = [(folder, Status("running", 5), 10), (folder, Status("failed", 3, "ValueError: no\ntrace"), 10)]
    dead = printed(lambda console: show_status(console, "runs/x", False, trials, PICTURE))
    assert [line.split()[1] for line in dead.splitlines() if line.startswith(folder.id)] == ["pending", "failed"]
    assert "ValueError: no" in dead
    assert "trace" not in dead
    live = printed(lambda console: show_status(console, "runs/x", True, trials, PICTURE))
    assert [line.split()[1] for line in live.splitlines() if line.startswith(folder.id)] == ["running", "failed"]


def test_status_of_very_many_trials_lists_those_that_are_not_done_and_says_how_many_are_left_out(tmp_path, trial_with):
    folder = Run(tmp_path / "r").trial(trial_with().id)
    folder.create(trial_with(), ("all",))
    trials = [(folder, Status("done", 10), 10)] * (MOST_LISTED + 3) + [(folder, Status("failed", 3), 10)]
    text = printed(lambda console: show_status(console, "runs/x", False, trials, PICTURE))
    states = [line.split()[1] for line in text.splitlines() if line.startswith(folder.id)]
    assert states == ["failed", *["done"] * (MOST_LISTED - 1)]
    assert "and 4 more; list all with: disentune status runs/x --json\n" in text
    few = printed(lambda console: show_status(console, "runs/x", False, trials[4:], PICTURE))
    assert few.count(folder.id) == MOST_LISTED
    assert "more; list all" not in few


def test_status_names_the_arm_of_each_trial_only_where_there_are_several(tmp_path, trial_with):
    folder = Run(tmp_path / "r").trial(trial_with().id)
    folder.create(trial_with(), ("near",))
    trials = [(folder, Status("done", 10), 10)]
    for others, expected in (("near", 0), ("far", 1)):
        picture = pictured([seen(folder.id, arms=("near",)), seen("other", arms=(others,))])
        text = printed(lambda console, picture=picture: show_status(console, "runs/x", False, trials, picture))
        assert text.count("near") == expected


def test_status_shows_the_best_and_what_to_read_of_every_failure():
    trials = [seen("best", value=0.75), seen("bad", "failed", cause="ValueError: no\ntrace")]
    text = printed(lambda console: show_status(console, "my runs/x", False, [], pictured(trials, live=False)))
    assert "best mig (last value) 0.75  best  arm all, seed 0, beta=0.01\n" in text
    assert "failed bad at step 3: ValueError: no\n  'my runs/x/trials/bad/status.json'\n" in text


# ---- watching


def seen(id="abc", state="done", **changes):
    usual = {"arms": ("all",), "seed": 0, "step": 3, "steps": 12, "seconds": 70.0, "cause": "", "changed": 0.0}
    usual |= {"latest": None, "value": None, "speed": None, "point": {"framework.beta": 0.01}}
    return Seen(id=id, state=state, **(usual | changes))


def pictured(trials=(), **changes):
    """A picture of trials; the best is the first that has a value."""
    best = next((trial for trial in trials if trial.value is not None), None)
    usual = {"time": 0.0, "gone": False, "live": True, "stopping": False, "session_s": 200.0, "at_most": False}
    usual |= {"objective": Objective(metric="mig", mode="max"), "speed": None, "ended_an_hour": None, "left_s": None}
    usual |= {"share": 0.25}
    return Snapshot(**(usual | {"trials": tuple(trials), "expected": len(trials), "best": best, "notes": ()} | changes))


PICTURE = pictured()


def drawn(picture, width=80, height=24, where="runs/x"):
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, highlight=False, soft_wrap=True)
    console.print(view(picture, where, console))
    return stream.getvalue()


def lines_of(picture, **options):
    return [line.rstrip() for line in drawn(picture, **options).splitlines()]


def test_a_picture_has_a_bar_counts_pace_best_running_trials_and_errors():
    trials = [seen("good", value=0.7, latest=0.7), seen("now", "running", latest=0.25, step=6, seconds=75.0),
              seen("bad", "failed", cause="ValueError: no\ntrace")]  # fmt: skip
    picture = pictured(trials, expected=8, speed=1234.0, ended_an_hour=95.4, left_s=130.0)
    assert lines_of(picture) == [
        "runs/x: running for 3 min 20 s",
        "█" * 6 + "▒" * 6 + "·" * 37 + "x" * 6 + "  2/8 ended, 25% of steps",
        "█ 1 done   ▒ 1 running   · 5 pending   x 1 failed",
        "1,234 steps/s, 95.4 trials/h, about 2 min 10 s left",
        "best mig (last value) 0.7  good  arm all, seed 0, beta=0.01",
        "",
        "running  step  time   mig  arm  seed  point",
        "now      6/12  1:15  0.25  all     0  beta=0.01",
        "",
        "failed bad at step 3: ValueError: no",
        "  runs/x/trials/bad/status.json",
    ]


@pytest.mark.parametrize(("speed", "text"), [(1234.5, "1,234 steps/s"), (12.3, "12 steps/s"), (0.123, "0.12 steps/s")])
def test_a_slow_pace_keeps_its_digits(speed, text):
    assert text in drawn(pictured([seen()], speed=speed))


def test_an_empty_run_says_that_its_driver_starts():
    assert lines_of(PICTURE) == ["runs/x: running for 3 min 20 s; no trials yet, the driver is starting"]
    assert lines_of(pictured(expected=4))[1].endswith("  0/4 ended, 25% of steps")


def test_the_end_of_a_run_says_what_comes_next():
    finished = lines_of(pictured([seen()], live=False))
    assert finished[-2:] == ["the only trial has ended", "next: disentune results runs/x"]
    unfinished = lines_of(pictured([seen()], live=False, expected=2), where="my runs/x")
    assert unfinished[-1] == "not running; continue with: disentune resume 'my runs/x'"
    searched = drawn(pictured([seen()], live=False, expected=3, at_most=True))
    assert "1/at most 3 ended" in searched
    assert "the search may suggest up to 2 more: disentune resume runs/x" in searched.replace("\n", "")
    assert lines_of(pictured(live=False, gone=True)) == ["runs/x: was deleted"]
    assert lines_of(pictured([seen("a", "running")], stopping=True))[0].startswith("runs/x: stopping, trials write")


def test_a_hundred_per_cent_is_shown_only_at_the_end():
    trials = [seen(str(number)) for number in range(999)]
    assert "999/1000 ended, 99% of steps" in drawn(pictured([*trials, seen("last", "running")], share=0.9999))
    assert "999/999 ended, 100% of steps" in drawn(pictured(trials, share=1.0))


@pytest.mark.parametrize("width", [20, 80, 120])
@pytest.mark.parametrize("height", [5, 24, 60])
def test_a_live_picture_fits_its_terminal(width, height):
    running = [seen(f"r{number}", "running", point={"framework.name": "x" * 50}) for number in range(100)]
    picture = pictured([*running, seen("bad", "failed", cause="a long story " * 30)], notes=("n",))
    found = lines_of(picture, width=width, height=height)
    assert max(map(len, found)) <= width
    if width >= 80:
        rows = [line for line in found if line.startswith("r") and line[1].isdigit()]
        assert len(rows) >= 3
        assert f"and {100 - len(rows)} more running" in found
        assert len(found) <= max(height, 16)
    if height == 60 and width >= 80:
        assert len(found) >= height - 3  # what room there is, is used


def test_ended_trials_are_shown_in_full_and_running_ones_in_a_line_each():
    trial = seen("bad", "failed", cause="a long story " * 30)
    assert drawn(pictured([trial])).count("story") < 8
    assert drawn(pictured([trial], live=False)).count("story") == 30


def test_more_causes_than_there_is_room_for_are_counted():
    trials = [seen(f"t{number}", "failed", cause=f"cause {number}") for number in range(8)]
    text = drawn(pictured([*trials, seen("t9", "failed", cause="cause 0")]))
    assert text.count("status.json") == 5
    assert "and 3 other causes" in text
    assert "failed t0 and 1 more at step 3: cause 0" in text


def test_names_and_causes_are_neither_markup_nor_terminal_commands():
    cause = "[red]boom[/] \x1b[31mred\x1b[0m \x07\x08\x1b]end"
    trials = [seen("a", "running", arms=("[b]arm",), point={"model.name": "[i]x"}), seen("b", "failed", cause=cause)]
    best = seen("c", value=0.5, arms=("[u]arm",), point={"model.name": "[/]y"})
    text = drawn(pictured([*trials, best], notes=("[link]",)), width=120, where="runs/[blink]")
    for part in ("[b]arm", "[i]x", "[red]boom[/] red end", "[u]arm", "[/]y", "[link]", "runs/[blink]"):
        assert part in text
    assert "\x1b" not in text
    assert plain(cause) == "[red]boom[/] red end"


@pytest.mark.parametrize(
    "counts",
    [
        {"done": 999, "failed": 1},
        {"done": 1, "running": 1, "pending": 1},
        {"done": 7},
        {"done": 1, "running": 1, "pending": 9995, "diverged": 2, "failed": 1},
    ],
)
def test_a_bar_has_its_width_and_shows_every_state(counts):
    cells = shares(counts, 40)
    assert sum(cells.values()) == 40
    assert all(cells[state] >= 1 for state in counts)
    assert max(cells, key=cells.get) == max(counts, key=counts.get)


def test_a_terminal_without_unicode_gets_a_bar_of_letters():
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80)
    console.print(view(pictured([seen(), seen("b", "running")]), "runs/x", console))
    console.file.flush()
    assert b"#" * 28 + b"=" * 27 in raw.getvalue().replace(b" ", b"")


def test_a_pipe_gets_a_line_for_each_look_new_failures_and_the_last_picture_whole():
    old, new = seen("old", "failed", cause="before"), seen("new", "failed", cause="just now")
    steps = [pictured([old], expected=4, speed=20.0, left_s=60.0), pictured([old, new], expected=4),
             pictured([old, new, seen("best", value=0.5)], expected=4, live=False)]  # fmt: skip
    text = printed(lambda console: watch(console, steps, "runs/x"))
    assert text.splitlines()[:4] == [
        "1/4 trials ended; 3 pending, 1 failed; 20 steps/s, about 1 min 00 s left",
        "failed new at step 3: just now",
        "  runs/x/trials/new/status.json",
        "2/4 trials ended; 2 pending, 2 failed",
    ]
    assert text.endswith("not running; continue with: disentune resume runs/x\n")
    assert line(steps[2]).plain == "3/4 trials ended; 1 done, 1 pending, 2 failed; best mig 0.5"


def test_a_terminal_gets_each_picture_in_the_place_of_the_one_before():
    stream = io.StringIO()
    console = Console(file=stream, width=80, height=24, force_terminal=True, _environ={"TERM": "xterm"})
    first, last = pictured([seen("a", "running")]), pictured([seen("a")], live=False)
    watch(console, [first, last], "runs/x")
    text = stream.getvalue()
    assert "\x1b[1A" in text  # up again
    assert "the only trial has ended" in text.split("\x1b[1A")[-1]


def test_the_view_of_a_real_run_names_its_trials(tmp_path, make_run):
    maker = make_run()
    id = maker.trial([{"step": 1500, "mig": 0.25}])
    assert f"best mig (last value) 0.25  {id}" in drawn(Watcher(maker.run).look())
