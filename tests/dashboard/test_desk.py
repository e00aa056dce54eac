"""How often the server looks at its runs, and what it keeps of one that has vanished."""

from disentune.dashboard.desk import pause
from run_examples import quick_trial


def test_quick_looks_keep_their_rhythm_and_slow_ones_leave_time_for_others():
    assert pause(0.7, 0.01) == 0.7
    assert pause(0.7, 0.5) == 2.0
    assert pause(2.0, 1.0) == 4.0


def test_one_slow_look_does_not_delay_the_next_for_long():
    assert pause(0.7, 60.0) == 8 * 0.7


def test_a_run_that_somebody_just_opened_is_read_before_the_list(make_run, tmp_path, dashboard):
    for name in ("main", "other"):
        make_run(name).trial([{"step": 1, "mig": 0.5}])
    client = dashboard(tmp_path / "runs")
    client.get("runs")
    client.until("run", lambda found: found["read"] == 1, run="demo/other")
    client.until("runs", lambda found: all("states" in run for run in found["runs"]))


def test_a_run_that_vanishes_keeps_its_trials_and_is_marked_as_gone(make_run, tmp_path, followed):
    maker = make_run()
    quick_trial(maker, [{"step": 50, "mig": 0.5}])
    found = followed(maker.run)
    (tmp_path / "runs").rename(tmp_path / "away")
    found.look_at_state()
    assert (found.picture.states, found.picture.gone) == ({"done": 1}, True)
    (tmp_path / "away").rename(tmp_path / "runs")
    found.look_at_state()
    assert (found.picture.states, found.picture.gone) == ({"done": 1}, False)
