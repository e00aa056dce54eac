"""Statistics of procedural images, from how many pixels are lit instead of from the images; exact."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from disentune.plugin import Statistics


class Moments(NamedTuple):
    """Of one channel, in [0, 1]: the means over all images of their mean and unbiased standard deviation."""

    mean: float
    std: float


def of_binary(pixels: int, lit: np.ndarray, images: np.ndarray | None = None) -> Moments:
    """Of binary images of so many pixels: how many are lit (m,), and in how many images (m,) or in one each."""
    share = lit / pixels
    deviation = np.sqrt(share * (1 - share) * pixels / max(pixels - 1, 1))
    return Moments(*(float(np.average(values, weights=images)) for values in (share, deviation)))


def statistics(channels: Iterable[Moments]) -> Statistics:
    """A channel that never changes has standard deviation 1, so that standardising leaves it finite."""
    means, deviations = zip(*channels, strict=True)
    return Statistics(means, tuple(deviation or 1.0 for deviation in deviations))
