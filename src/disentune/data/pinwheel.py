"""Pinwheel: Mathieu et al., ICML 2019: points in the plane on curved arms, instead of images.

Each arm is a Gaussian cloud around (1, 0), rotated clockwise by the angle of its arm plus rate * exp(first coordinate),
which bends it. A point is an image of one pixel: its channels are the coordinates. Factors are arm and point, and
neither has an order. With one pixel there is no deviation within an image, so here `mean` and `std` are the mean and
the unbiased standard deviation of each coordinate over all points. The paper uses the points as they are:
`dataset.transform: unit`.
"""

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.drawn import DrawnImages
from disentune.maths.randomness import stream
from disentune.plugin import Count, Dataset, Frozen, Shape, Statistics

FACTORS: tuple[str, ...] = ("arm", "point")
MOST = 1_000_000
"""Maximum number of points, because they are all created at once."""


class Params(Frozen):
    """Standard deviations along and across an arm; `draw` is the number of an independent draw, to train or to test
    on."""

    arms: Count = Field(4, ge=1, description="arms of the pinwheel")
    points: Count = Field(100, ge=1, description="points on each arm")
    radial_std: float = Field(0.3, ge=0, le=10, description="standard deviation along an arm")
    tangential_std: float = Field(0.1, ge=0, le=10, description="standard deviation across an arm")
    rate: float = Field(0.25, ge=-10, le=10, description="how strongly the arms bend; 0: straight arms")
    draw: Count = Field(0, ge=0, description="number of an independent draw: one to train on, another to test on")

    @field_validator("points")
    @classmethod
    def _few_enough(cls, points: int, others: ValidationInfo) -> int:
        arms = others.data.get("arms", 1)
        if arms * points > MOST:
            raise ValueError(f"must be at most {MOST:,} on all arms together, but {arms} arms have {points} each")
        return points


def opened(params: Params) -> DrawnImages:
    points = _points(params)
    table = points.reshape(params.arms, params.points, 2, 1, 1)
    factors = dict(zip(FACTORS, factor_sizes(params), strict=True))
    return DrawnImages(
        (opened, params), factors, shape(params), _measured(points), lambda factors: table[tuple(factors.T)], FACTORS
    )


def shape(params: Params) -> Shape:
    return (2, 1, 1)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.arms, params.points)


def _points(params: Params) -> np.ndarray:
    """float32 (arms * points, 2)"""
    normal = stream(params.draw, "data/pinwheel").standard_normal((params.arms, params.points, 2))
    along, across = 1 + params.radial_std * normal[..., 0], params.tangential_std * normal[..., 1]
    arms = 2 * np.pi * np.arange(params.arms)[:, None] / params.arms
    clockwise = np.exp(-1j * (arms + params.rate * np.exp(along)))
    turned = ((along + 1j * across) * clockwise).ravel()
    return np.stack([turned.real, turned.imag], axis=1).astype(np.float32)


def _measured(points: np.ndarray) -> Statistics:
    """A constant coordinate gets standard deviation 1, so that standardising it gives finite values."""
    points = points.astype(np.float64)
    deviations = points.std(axis=0, ddof=1) if len(points) > 1 else np.zeros(2)
    return Statistics(tuple(points.mean(axis=0).tolist()), tuple(value or 1.0 for value in deviations.tolist()))


DATASET = Dataset(name="pinwheel", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened, points=True)
