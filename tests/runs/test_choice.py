"""The trials that --only and --limit choose are a function of the points and the ledger alone."""

import pytest

from disentune.runs.choice import EVERY_TRIAL, Choice, choose, selected_by
from disentune.runs.trial_folder import Status
from disentune.spec import space
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
