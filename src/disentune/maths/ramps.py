"""Schedules: a number of a framework that changes with the step, written as a mapping instead of a number.

    framework.beta: {schedule: linear, initial: 0, final: 4, end: 10000}

A value depends only on the step, so there is nothing to save, and it is between `initial` and `final`, so a parameter
that is valid at both is valid at every step. Constraints between two parameters are checked at the knots: the steps
where one of their schedules changes direction.
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

    schedule: Literal["constant"] = Field(description="which schedule")
    value: float = Field(description="the number itself")

    @property
    def initial(self) -> float:
        return self.value

    @property
    def final(self) -> float:
        return self.value


class Ramp(Frozen):
    """`initial` up to step `begin`, `final` from step `end` on, a straight line or half a cosine wave in between.

    A step counts completed updates: the first update has step 0. Without `end`, the ramp ends with training.
    """

    schedule: Literal["linear", "cosine"] = Field(description="which schedule")
    initial: float = Field(description="value at the beginning")
    final: float = Field(description="value at the end")
    begin: Count = Field(0, ge=0, description="step at which the value starts to change")
    end: Count | None = Field(None, ge=1, description="step at which it stops changing; null: the end of training")

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
        """Steps at which the value starts or stops changing."""
        return [self.begin, steps if self.end is None else self.end]


class Cyclic(Frozen):
    """Fu et al., NAACL 2019: in each period, a rise from `initial` to `final` during the share `rise`, then `final`."""

    schedule: Literal["cyclic"] = Field(description="which schedule")
    initial: float = Field(description="value at the beginning")
    final: float = Field(description="value at the end")
    period: Count = Field(ge=1, description="steps of one cycle")
    rise: float = Field(0.5, gt=0, le=1, description="share of each period during which the value rises")
    shape: Literal["linear", "cosine"] = Field("linear", description="shape of the rise")
    begin: Count = Field(0, ge=0, description="step at which the value starts to change")

    def at(self, step: int, steps: int) -> float:
        place = (max(step - self.begin, 0) % self.period) / self.period
        share = min(place / self.rise, 1.0)
        return self.initial + (self.final - self.initial) * SHAPES[self.shape](share)

    def knots(self, steps: int) -> list[int]:
        """First step, end of the rise and last step of each period, up to MOST_PERIODS periods."""
        starts = range(self.begin, max(steps, self.begin + 1), self.period)[:MOST_PERIODS]
        return [start + place for start in starts for place in (0, math.ceil(self.rise * self.period), self.period - 1)]


Moving = Annotated[Ramp | Cyclic, Field(discriminator="schedule")]
"""A schedule by name, other than a constant."""


class Scheduled(Frozen):
    """A mapping instead of a number."""

    value: Annotated[Constant | Ramp | Cyclic, Field(discriminator="schedule")] = Field(description="a schedule")
