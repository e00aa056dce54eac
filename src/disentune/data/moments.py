"""Exact statistics of procedural images, computed from the number of lit pixels instead of the images."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from disentune.plugin import Statistics


class Moments(NamedTuple):
    """One channel in [0, 1]: the means over all images of their mean and unbiased standard deviation."""

    mean: float
    std: float


def of_binary(pixels: int, lit: np.ndarray, images: np.ndarray | None = None) -> Moments:
    """Moments of binary images with `pixels` pixels, from numbers of lit pixels (m,) and how many images have each
    (m,)."""
    share = lit / pixels
    deviation = np.sqrt(share * (1 - share) * pixels / max(pixels - 1, 1))
    return Moments(*(float(np.average(values, weights=images)) for values in (share, deviation)))


def statistics(channels: Iterable[Moments]) -> Statistics:
    """A constant channel gets standard deviation 1, so that standardising it gives finite values."""
    means, deviations = zip(*channels, strict=True)
    return Statistics(means, tuple(deviation or 1.0 for deviation in deviations))
