"""Schedules: a framework's number that changes with the step, written in its place as a mapping.

    framework.beta: {schedule: linear, initial: 0, final: 4, end: 10000}

A value is a function of the step alone, so there is nothing to save, and it lies between `initial` and `final`, so a
parameter that is sound by itself at both is sound at every step. What ties two parameters together is checked at the
knots: the steps where one of their schedules turns.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from disentune.plugin import Count, Frozen


def _linear(share: float) -> float:
    return share


def _cosine(share: float) -> float:
    return (1 - math.cos(math.pi * share)) / 2


SHAPES: dict[str, Callable[[float], float]] = {"linear": _linear, "cosine": _cosine}


MOST_PERIODS = 100


class Constant(Frozen):
    """The same as writing the number itself."""

    schedule: Literal["constant"]
    value: float

    @property
    def initial(self) -> float:
        return self.value

    @property
    def final(self) -> float:
        return self.value


class Ramp(Frozen):
    """`initial` up to step `begin`, `final` from step `end` on, a straight line or half a cosine wave between.

    A step counts the updates already made: the first update sees step 0. Without `end`, the ramp ends with training.
    """

    schedule: Literal["linear", "cosine"]
    initial: float
    final: float
    begin: Count = Field(0, ge=0)
    end: Count | None = Field(None, ge=1)

    @field_validator("end")
    @classmethod
    def _after_begin(cls, end: int | None, others: ValidationInfo) -> int | None:
        begin = others.data.get("begin", 0)
        if end is not None and end <= begin:
            raise ValueError(f"must be after begin, {begin}, but is {end}")
        return end

    def at(self, step: int, steps: int) -> float:
        length = max((steps if self.end is None else self.end) - self.begin, 1)
        share = min(max((step - self.begin) / length, 0.0), 1.0)
        return self.initial + (self.final - self.initial) * SHAPES[self.schedule](share)

    def knots(self, steps: int) -> list[int]:
        """Steps at which the value begins or ends to change."""
        return [self.begin, steps if self.end is None else self.end]


class Cyclic(Frozen):
    """Fu et al., NAACL 2019: in each period a rise from `initial` to `final` over the share `rise`, then `final`."""

    schedule: Literal["cyclic"]
    initial: float
    final: float
    period: Count = Field(ge=1, description="steps of one cycle")
    rise: float = Field(0.5, gt=0, le=1)
    shape: Literal["linear", "cosine"] = "linear"
    begin: Count = Field(0, ge=0)

    def at(self, step: int, steps: int) -> float:
        place = (max(step - self.begin, 0) % self.period) / self.period
        share = min(place / self.rise, 1.0)
        return self.initial + (self.final - self.initial) * SHAPES[self.shape](share)

    def knots(self, steps: int) -> list[int]:
        """Beginning, top and last step of each period; of more than MOST_PERIODS, of the first ones."""
        starts = range(self.begin, max(steps, self.begin + 1), self.period)[:MOST_PERIODS]
        return [start + place for start in starts for place in (0, math.ceil(self.rise * self.period), self.period - 1)]


class Scheduled(Frozen):
    """A mapping in a number's place."""

    value: Annotated[Constant | Ramp | Cyclic, Field(discriminator="schedule")]
