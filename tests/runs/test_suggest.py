"""Optuna's suggestions: a fixed sequence of asks and tells that any death leaves as it was."""

import json
import os
import pickle
import time
from typing import get_args

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.files.storage import place
from disentune.runs.suggest import Suggestions, journal
from disentune.spec.settings import Objective, OptunaSearch
from disentune.spec.sweepfile import Domain

DOMAINS = {
    "framework.beta": Domain(log_uniform=[1e-4, 1.0]),
    "training.learning_rate": Domain(uniform=[1e-4, 1e-2]),
    "model.latents": Domain(int=[2, 9]),
    "framework.name": Domain(grid=["ada_gvae", "beta_vae"]),
}
SAMPLERS = get_args(OptunaSearch.model_fields["sampler"].annotation)
OBJECTIVE = Objective(metric="mig", mode="max")


def value(point):
    """A smooth objective with its best at beta = 0.01 and many latents."""
    import math

    return -abs(math.log10(point["framework.beta"]) + 2) + 0.01 * point["model.latents"]


def study(path, sampler="tpe", points=14, in_flight=3, arm="all"):
    search = OptunaSearch(name="optuna", points=points, sampler=sampler, in_flight=in_flight)
    return Suggestions(journal(path), arm, search, OBJECTIVE, DOMAINS)


def carry_on(suggestions, steps=None):
    """Takes the sequence `steps` asks and tells further, or to its end."""
    done = 0
    while steps is None or done < steps:
        number = suggestions.waits_for()
        if number is not None:
            suggestions.tell(value(suggestions.points[number]), 100, stopped=False)
        elif suggestions.complete:
            return
        else:
            suggestions.ask()
        done += 1


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_reopening_the_journal_at_every_step_changes_no_suggestion(tmp_path, sampler):
    whole = study(tmp_path / "whole", sampler)
    carry_on(whole)
    assert len(whole.points) == 14
    for _ in range(40):
        again = study(tmp_path / "again", sampler)
        carry_on(again, steps=1)
    assert again.points == whole.points


def test_the_lock_of_a_dead_driver_does_not_hold_the_next_one_up(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    carry_on(study(path), steps=3)
    (tmp_path / "journal.lock").symlink_to(path)  # as Optuna's lock is, while a driver writes
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    carry_on(study(path), steps=3)
    assert sum(waited) < 15, "Optuna waits 30 s for a lock that nobody releases"


def test_a_driver_makes_no_link_and_clears_those_of_earlier_versions(tmp_path, monkeypatch):
    path, victim = tmp_path / "study.journal", tmp_path / "victim"
    victim.write_text("mine")
    for name in ("study.journal.lock", "study.journal.lock1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed.rename"):
        (tmp_path / name).symlink_to(victim)

    def refuse(*arguments, **named):
        raise AssertionError("a link was made, which would stay behind if the driver were killed now")

    monkeypatch.setattr(os, "symlink", refuse)
    carry_on(study(path), steps=6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["study.journal", "victim"]
    assert victim.read_text() == "mine"


def test_suggestions_stay_within_their_domains_and_keep_their_types(tmp_path):
    suggestions = study(tmp_path / "journal")
    carry_on(suggestions)
    for point in suggestions.points:
        assert 1e-4 <= point["framework.beta"] <= 1
        assert isinstance(point["model.latents"], int)
        assert 2 <= point["model.latents"] <= 9
        assert point["framework.name"] in ("ada_gvae", "beta_vae")


def test_a_point_is_suggested_knowing_only_those_that_left_the_window(tmp_path):
    """With in_flight 3, point 4 is asked for after point 1 is told and before point 2 is."""
    suggestions = study(tmp_path / "journal", in_flight=3)
    told_before_asking = []
    while not suggestions.complete:
        number = suggestions.waits_for()
        if number is None:
            told_before_asking.append(sum(trial.state.is_finished() for trial in suggestions.trials))
            suggestions.ask()
        else:
            suggestions.tell(0.0, 1, stopped=False)
    assert told_before_asking == [0, 0, 0, *range(1, 12)]


def test_other_results_give_other_suggestions(tmp_path):
    one, other = study(tmp_path / "one", points=20), study(tmp_path / "other", points=20)
    carry_on(one)
    while not other.complete:
        other.tell(0.0, 1, stopped=False) if other.waits_for() is not None else other.ask()
    assert one.points[:3] == other.points[:3]
    assert one.points != other.points


def test_the_search_learns(tmp_path):
    suggestions = study(tmp_path / "journal", points=40, in_flight=1)
    carry_on(suggestions)
    values = [value(point) for point in suggestions.points]
    assert sum(values[-10:]) / 10 > sum(values[:10]) / 10


def test_arms_have_studies_of_their_own_in_one_journal(tmp_path):
    storage = journal(tmp_path / "journal")
    search = OptunaSearch(name="optuna", points=2)
    one, two = (Suggestions(storage, arm, search, OBJECTIVE, DOMAINS) for arm in ("one", "two"))
    one.ask(), two.ask()
    assert len(one.points) == len(two.points) == 1
    assert one.points != two.points


def test_failed_and_stopped_points_are_reported_as_such(tmp_path):
    suggestions = study(tmp_path / "journal", in_flight=2)
    suggestions.ask(), suggestions.ask()
    suggestions.tell(None, 0, stopped=False)
    suggestions.ask()
    suggestions.tell(0.3, 40, stopped=True)
    states = [trial.state.name for trial in suggestions.trials]
    assert states == ["FAIL", "PRUNED", "RUNNING"]
    assert suggestions.trials[1].intermediate_values == {40: 0.3}


def test_a_driver_that_dies_between_a_value_and_the_end_of_its_point_reports_it_once(tmp_path, monkeypatch):
    """Optuna warns of a value that it has already, and tests fail at warnings."""
    suggestions = study(tmp_path / "journal", in_flight=2)
    suggestions.ask()
    suggestions.ask()
    with monkeypatch.context() as patch:
        patch.setattr(suggestions.study, "tell", lambda *arguments, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            suggestions.tell(0.3, 40, stopped=True)
    again = study(tmp_path / "journal", in_flight=2)
    again.tell(0.3, 40, stopped=True)
    assert again.trials[0].state.name == "PRUNED"
    assert again.trials[0].intermediate_values == {40: 0.3}


# ---- damage


def flipped(data, bit):
    """The same with one bit the other way."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def outcome(path, points=6):
    """What a search that continues from this journal suggests, or the line that refuses it."""
    try:
        again = study(path, points=points)
        carry_on(again)
    except ConfigError as error:
        is_clear = "\n" not in str(error) and str(path) in str(error) and "remove it" in str(error)
        return "refused" if is_clear else str(error)
    return again.points


@pytest.mark.parametrize("steps", [4, 9])
def test_a_flipped_bit_is_refused_in_a_line_or_changes_no_suggestion(tmp_path, steps):
    whole, path = study(tmp_path / "whole", points=6), tmp_path / "study.journal"
    carry_on(whole)
    carry_on(study(path, points=6), steps=steps)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    last = [8 * len(data) - 8 + bit for bit in range(8)]  # of the newline that says that the last entry is whole
    found = []
    for bit in [*rng.integers(8 * len(data), size=150).tolist(), *last]:
        path.write_bytes(flipped(data, bit))
        found.append(outcome(path))
        assert found[-1] in ("refused", whole.points), f"bit {bit} changes the search"
    assert found.count("refused") > 100


@pytest.mark.parametrize("change", ["removed", "repeated", "swapped"])
def test_a_line_that_is_removed_repeated_or_elsewhere_is_noticed(tmp_path, change):
    path = tmp_path / "study.journal"
    carry_on(study(path, points=6), steps=9)
    lines = path.read_bytes().splitlines(keepends=True)
    middle = {"removed": [], "repeated": [lines[9], lines[9]], "swapped": [lines[10], lines[9]]}[change]
    path.write_bytes(b"".join([*lines[:9], *middle, *lines[11 if change == "swapped" else 10 :]]))
    assert outcome(path) == "refused"


@pytest.mark.parametrize("keep", [0, 1, 7, 12])
def test_a_search_repeats_itself_from_any_beginning_of_its_journal(tmp_path, keep):
    whole, path = study(tmp_path / "whole", points=6), tmp_path / "study.journal"
    carry_on(whole)
    carry_on(study(path, points=6))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    assert outcome(path) == whole.points


def unsealed(data):
    """As an earlier version wrote it."""
    entries = [{key: value for key, value in json.loads(line).items() if key != "sum"} for line in data.splitlines()]
    return b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)


def test_a_journal_without_checksums_is_continued_and_has_them_from_then_on(tmp_path):
    whole, path = study(tmp_path / "whole", points=6), tmp_path / "study.journal"
    carry_on(whole)
    carry_on(study(path, points=6), steps=6)
    path.write_bytes(unsealed(path.read_bytes()))
    old = len(path.read_bytes())
    assert outcome(path) == whole.points
    path.write_bytes(flipped(path.read_bytes(), 8 * (old // 2)))
    assert outcome(path) == "refused"


def test_damage_to_a_journal_without_checksums_ends_in_a_line_too(tmp_path):
    path = tmp_path / "study.journal"
    carry_on(study(path, points=6), steps=9)
    data, rng = unsealed(path.read_bytes()), np.random.default_rng(1)
    for bit in rng.integers(8 * len(data), size=150).tolist():
        path.write_bytes(flipped(data, bit))
        found = outcome(path)
        assert isinstance(found, list) or found == "refused" or found.startswith("study.journal")


# ---- in an object store


def test_a_damaged_journal_in_a_store_is_refused(object_store):
    path = place("s3://bucket/run/study.journal")
    carry_on(study(path, points=6), steps=5)
    path.write_bytes(flipped(path.read_bytes(), 8 * 300))
    assert outcome(path) == "refused"


@pytest.mark.slow
def test_a_journal_in_a_store_holds_the_same_suggestions_through_every_death(tmp_path, object_store):
    whole = study(tmp_path / "whole", points=6)
    carry_on(whole)
    path = place("s3://bucket/run/study.journal")
    for _ in range(16):
        again = study(path, points=6)
        carry_on(again, steps=1)
    assert again.points == whole.points


def test_a_suggestion_that_a_dead_driver_left_half_put_is_taken_back(object_store):
    path = place("s3://bucket/run/study.journal")
    whole = study(path, points=6)
    carry_on(whole, steps=2)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    again = study(path, points=6)
    assert len(again.points) == 1
    carry_on(again, steps=1)
    assert again.points == whole.points


class Touch:
    """Whoever unpickles it runs a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("content", ["pickle", "ff", "no hex", ""])
def test_a_state_of_cma_es_that_was_made_up_runs_nothing_and_is_refused(tmp_path, content):
    mark = tmp_path / "run"
    text = pickle.dumps(Touch(mark)).hex() if content == "pickle" else content
    made = study(tmp_path / "study.journal", "cmaes")
    made.ask()
    made.study._storage.set_trial_system_attr(made.trials[0]._trial_id, "cma:optimizer:0", text)
    for _ in range(made.search.in_flight - 1):
        made.ask()
    made.tell(0.5, 1, stopped=False)
    with pytest.raises(ConfigError, match="a sampler state in it is damaged"):
        made.ask()
    assert not mark.exists()
