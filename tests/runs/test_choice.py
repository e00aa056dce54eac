"""The trials that --only and --limit choose are a function of the points and the ledger alone."""

import json
from dataclasses import asdict

import pytest

from disentune.runs.choice import EVERY_TRIAL, Choice, choose, parsed_selection, selected_by, selection_of
from disentune.runs.trial_folder import Status
from disentune.spec import space
from disentune.spec.settings import Settings, Stop
from simulator import sweep_file


@pytest.fixture
def asked(tmp_path):
    return space.read(sweep_file(tmp_path))


def chosen(asked, statuses=None, only=None, limit=None):
    """Places of the chosen points in the sweep."""
    choice = choose(asked.points, statuses or {}, selected_by(asked.sweep, only), limit)
    return [place for place, point in enumerate(asked.points) if choice.has(point.config.id)]


def test_without_a_filter_every_trial_is_chosen(asked):
    assert choose(asked.points, {}) is EVERY_TRIAL
    assert chosen(asked) == list(range(12))


def test_an_expression_chooses_the_points_that_it_selects(asked):
    assert chosen(asked, only="arm == 'far'") == [3, 4, 5, 9, 10, 11]
    assert chosen(asked, only="seed == 99") == []


def test_a_limit_chooses_the_first_trials_that_are_not_finished(asked):
    ids = [point.config.id for point in asked.points]
    statuses = {
        ids[0]: Status("done"),
        ids[1]: Status("pending", 3),
        ids[2]: Status("failed"),
        ids[4]: Status("diverged"),
    }
    assert chosen(asked, statuses, limit=3) == [1, 3, 5]
    assert chosen(asked, statuses, only="arm == 'far'", limit=1) == [3]


def test_a_choice_does_not_depend_on_what_was_asked_before(asked):
    first = choose(asked.points, {}, None, 2)
    assert [first.has(asked.points[place].config.id) for place in (5, 1, 0, 1)] == [False, True, True, True]
    assert choose(asked.points, {}, None, 2) == first


def test_a_choice_by_number_has_every_id():
    assert Choice(most=2).has("0123456789ab")


def test_a_limit_takes_trials_that_stop_steps_ended_when_the_sweep_allows_more(tmp_path):
    points = space.read(sweep_file(tmp_path, extra="stop: {steps: 9}")).points
    first, *others = [point.config.id for point in points]
    statuses = {first: Status("done", 6, "stop.steps: 6")} | {other: Status("done", 12) for other in others[1:]}
    more = Settings(stop=Stop(steps=9))
    assert choose(points, statuses, limit=5, settings=more).ids == {first, others[0]}
    assert choose(points, statuses, limit=5, settings=Settings(stop=Stop(steps=6))).ids == {others[0]}


def test_a_selection_comes_back_as_it_was_recorded(asked):
    points = asked.points
    chosen = Choice(frozenset(point.config.id for point in points[:2]), flags="--limit 2")
    for selection in (selection_of(chosen, points, 3), selection_of(Choice(most=2, flags="--limit 2"), points, 3)):
        assert parsed_selection(json.loads(json.dumps(asdict(selection)))) == selection
    assert selection_of(chosen, points, 3).steps == {point.config.id: 12 for point in points[:2]}
    assert selection_of(Choice(most=2), points, 3).most == 5
    assert selection_of(EVERY_TRIAL, points, 3) is None
    for damaged in ({}, {"flags": 5}, {"flags": "", "steps": {"a": "b"}}, {"flags": "", "most": None}):
        assert parsed_selection(damaged) is None
