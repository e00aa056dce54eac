"""Scores are kept with the checkpoint they are of, and are left out once it is another one."""

import json
import os
import time

import pytest
import torch

from disentune.errors import ConfigError
from disentune.results.tables import read
from disentune.runs.scores import current, keep, kept
from processes import PIPE_S, unblocked


@pytest.fixture
def maker(make_run):
    maker = make_run()
    for seed in range(3):
        trial_id = maker.trial([{"step": 300, "loss": 1.0, "mig": 0.1 * seed}], seed=seed)
        maker.run.trial(trial_id).checkpoints.save(300, {"step": 300, "model": {"w": torch.tensor([float(seed)])}})
    return maker


def entry(run, value=0.5, key="udr", groups=None):
    trials = {
        folder.id: {"step": 300, "checkpoint": folder.checkpoints.fingerprint(300), "numbers": {key: value}}
        for folder in run.trials()
    }
    return {"params": {}, "trials": trials, **({"groups": groups} if groups else {})}


def test_kept_scores_are_columns_of_the_tables(maker):
    before = read(maker.run)
    assert "udr" not in before.rows
    keep(maker.run, {"udr": entry(maker.run)})
    results = read(maker.run)
    assert results.trials["udr"].tolist() == [0.5] * 3
    assert results.rows["step"].tolist() == [300] * 3  # no row of its own
    assert results.notes == ()
    assert results.rows[before.rows.columns].equals(before.rows)


def test_a_metric_that_the_sweep_evaluates_keeps_its_column(maker):
    own = read(maker.run).trials["mig"].tolist()
    keep(maker.run, {"mig": entry(maker.run, 0.9, "mig")})
    trials = read(maker.run).trials
    assert trials["mig"].tolist() == own
    assert trials["mig_scored"].tolist() == [0.9] * 3


def test_scoring_a_metric_again_replaces_it_and_no_other(maker):
    keep(maker.run, {"udr": entry(maker.run, 0.5), "sap": entry(maker.run, 0.1, "sap")})
    keep(maker.run, {"udr": entry(maker.run, 0.7)})
    assert read(maker.run).trials[["udr", "sap"]].to_numpy().tolist() == [[0.7, 0.1]] * 3


@pytest.mark.parametrize("change", ["other", "later", "gone"])
def test_a_checkpoint_that_changed_leaves_its_scores_out_with_a_note(maker, change):
    keep(maker.run, {"sap": entry(maker.run, key="sap")})
    folder = maker.run.trials()[0]
    if change == "gone":
        folder.checkpoints.path(300).unlink()
    else:
        folder.checkpoints.save(300 if change == "other" else 600, {"model": {"w": torch.tensor([9.0])}})
    results = read(maker.run)
    assert results.trials.set_index("trial_id")["sap"].isna().to_dict() == {
        one.id: one.id == folder.id for one in maker.run.trials()
    }
    assert [note for note in results.notes if note.startswith("sap of 1 trial left out")]


def test_a_pipe_in_the_place_of_a_checkpoint_leaves_its_scores_out_and_is_not_waited_for(maker):
    keep(maker.run, {"sap": entry(maker.run, key="sap")})
    path = maker.run.trials()[0].checkpoints.path(300)
    path.unlink()
    os.mkfifo(path)
    with unblocked(path):
        began = time.monotonic()
        results = read(maker.run)
        assert time.monotonic() - began < PIPE_S
    assert [note for note in results.notes if note.startswith("sap of 1 trial left out")]


def test_a_score_that_compares_trials_is_left_out_for_the_whole_group(maker):
    first, second, third = [folder.id for folder in maker.run.trials()]
    keep(maker.run, {"udr": entry(maker.run, groups=[[first, second], [third]])})
    maker.run.trial(first).checkpoints.save(300, {"model": {"w": torch.tensor([9.0])}})
    found, notes = current(maker.run, maker.run.trials())
    assert set(found) == {third}
    assert notes[0].startswith("udr of 2 trials left out")


def test_a_run_without_scores_has_none(maker):
    assert kept(maker.run) == {}
    assert current(maker.run, maker.run.trials()) == ({}, [])


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content["metrics"]["udr"]["trials"].popitem(),
        lambda content: content.pop("metrics"),
        lambda content: content["metrics"]["udr"].update(trials=5),
        lambda content: content.update(metrics=[]),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(maker, damage):
    keep(maker.run, {"udr": entry(maker.run)})
    content = json.loads(maker.run.scores_path.read_text())
    damage(content)
    maker.run.scores_path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"scores.json is damaged .*; remove it and score the run again"):
        kept(maker.run)
