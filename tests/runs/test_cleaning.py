"""What a policy removes from a run, and what it never touches."""

import pytest

from disentune.results import tables
from disentune.runs.cleaning import found_waste, remove


@pytest.fixture
def maker(make_run):
    """One trial of each kind: ended with its best in the middle, and interrupted; each has five checkpoints."""
    made = make_run()
    made.sweep(objective={"metric": "mig", "mode": "max"})
    for seed, state in enumerate(("done", "running", "failed")):
        rows = [{"step": step, "mig": 0.9 if step == 600 else 0.1} for step in range(300, 1501, 300)]
        folder = made.run.trial(made.trial(rows, status=state, seed=seed))
        for step in range(300, 1501, 300):
            folder.checkpoints.save(step, {"step": step})
            folder.write_pictures(step, b"pictures")
    return made


def trial(maker, state):
    return next(one for one in maker.run.trials() if one.status().state == state)


def cleaned(maker, checkpoints=None, pictures=False):
    found = found_waste(maker.run, checkpoints, pictures)
    remove(found)
    return found


def test_the_best_and_the_last_checkpoint_of_each_trial_are_kept(maker):
    before = sum(path.stat().st_size for path in maker.run.path.rglob("*.ckpt"))
    found = cleaned(maker, "best-and-last")
    assert [one.checkpoints.steps() for one in maker.run.trials()] == [[600, 1500]] * 3
    assert found.size() == before - sum(path.stat().st_size for path in maker.run.path.rglob("*.ckpt")) > 0


def test_a_damaged_last_checkpoint_does_not_cost_the_one_before(maker):
    folder = trial(maker, "running")
    folder.checkpoints.path(1500).write_bytes(b"damaged")
    cleaned(maker, "best-and-last")
    assert folder.checkpoints.steps() == [600, 1200]


def test_without_checkpoints_only_trials_that_may_continue_keep_one(maker):
    found = cleaned(maker, "none")
    left = {state: trial(maker, state).checkpoints.steps() for state in ("done", "running", "failed")}
    assert left == {"done": [], "running": [1500], "failed": [1500]}
    assert found.unfinished == 2


def test_pictures_are_removed_only_when_named(maker):
    cleaned(maker, "best-and-last")
    assert all(len(one.picture_steps()) == 5 for one in maker.run.trials())
    found = cleaned(maker, None, pictures=True)
    assert not any(one.picture_steps() for one in maker.run.trials())
    assert (found.count("pictures"), found.size("pictures"), found.count("checkpoint")) == (15, 15 * 8, 0)


def test_rows_configs_and_statuses_stay_and_give_the_same_tables(maker):
    def rest():
        files = (path for path in maker.run.path.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if path.suffix not in (".ckpt", ".npz")}

    before, table = rest(), tables.as_json(tables.read(maker.run))
    cleaned(maker, "none", pictures=True)
    assert rest() == before
    assert tables.as_json(tables.read(maker.run)) == table
