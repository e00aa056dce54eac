"""Schedules at the steps where one can say by hand what they give."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from disentune.maths.ramps import Cyclic, Ramp


def values(schedule, steps, total=100):
    return [schedule.at(step, total) for step in steps]


def test_a_line_is_flat_before_begin_and_after_end():
    line = Ramp(schedule="linear", initial=1, final=5, begin=10, end=30)
    assert values(line, [0, 10, 15, 20, 30, 99]) == [1, 1, 2, 3, 5, 5]


def test_without_an_end_the_ramp_takes_the_whole_training():
    line = Ramp(schedule="linear", initial=0, final=1)
    assert values(line, [0, 25, 50, 100]) == [0, 0.25, 0.5, 1]
    assert line.at(100, 400) == 0.25


def test_half_a_cosine_wave_starts_and_ends_flat():
    """(1 - cos(pi t)) / 2 at t = 1/4 is (1 - sqrt(1/2)) / 2."""
    wave = Ramp(schedule="cosine", initial=2, final=4, end=100)
    assert values(wave, [0, 25, 50, 100]) == pytest.approx([2, 3 - math.sqrt(0.5), 3, 4])
    assert wave.at(1, 100) - 2 < 0.001


def test_a_cycle_rises_holds_and_begins_again():
    cycle = Cyclic(schedule="cyclic", initial=0, final=8, period=10, rise=0.5, begin=4)
    assert values(cycle, [0, 4, 5, 8, 9, 13, 14, 15]) == pytest.approx([0, 0, 1.6, 6.4, 8, 8, 0, 1.6])


def test_a_cycle_may_rise_like_a_cosine():
    cycle = Cyclic(schedule="cyclic", initial=0, final=1, period=8, rise=1, shape="cosine")
    assert values(cycle, [0, 2, 4, 6, 8]) == pytest.approx(
        [0, (1 - math.sqrt(0.5)) / 2, 0.5, (1 + math.sqrt(0.5)) / 2, 0]
    )


number = st.floats(-1e6, 1e6)


@given(
    number, number, st.integers(0, 50), st.integers(1, 50), st.integers(0, 10**6), st.sampled_from(["linear", "cosine"])
)
def test_values_stay_between_both_ends(initial, final, begin, length, step, shape):
    """So a parameter that is sound at both ends is sound at every step."""
    ramp = Ramp(schedule=shape, initial=initial, final=final, begin=begin, end=begin + length)
    cycle = Cyclic(schedule="cyclic", initial=initial, final=final, begin=begin, period=length, shape=shape)
    low, high = sorted([initial, final])
    slack = 1e-9 * max(1.0, abs(low), abs(high))  # the rounding of one multiplication and one addition
    for schedule in (ramp, cycle):
        assert low - slack <= schedule.at(step, 100) <= high + slack


def test_an_end_before_the_beginning_is_refused():
    with pytest.raises(ValidationError, match="must be after begin, 10, but is 10"):
        Ramp(schedule="linear", initial=0, final=1, begin=10, end=10)


def test_knots_are_where_a_value_turns():
    assert Ramp(schedule="linear", initial=0, final=1, begin=3).knots(10) == [3, 10]
    cycle = Cyclic(schedule="cyclic", initial=0, final=1, period=4, begin=1)
    assert cycle.knots(9) == [1, 3, 4, 5, 7, 8]
    assert len(cycle.knots(10**9)) == 300
