"""Statistics of stored images, chunk by chunk."""

import math

import numpy as np

from disentune.plugin import Statistics

CACHED = 16
"""Images measured at a time, so that they fit in the processor's cache."""


class Measuring:
    """Per channel, the mean over images of mean and unbiased standard deviation; exact, because sums are of
    integers."""

    def __init__(self) -> None:
        self.means: list[np.ndarray] = []
        self.deviations: list[np.ndarray] = []

    def add(self, chunk: np.ndarray) -> None:
        count, channels, *sides = chunk.shape
        pixels = math.prod(sides)
        for images in np.array_split(chunk, count // CACHED + 1):
            flat = images.reshape(len(images), channels, pixels).astype(np.float64)  # whole numbers, sums below 2**53
            sums, squares = ((flat @ np.ones(pixels)).astype(np.int64), np.vecdot(flat, flat).astype(np.int64))
            variances = (pixels * squares - sums**2) / (pixels * max(pixels - 1, 1))
            self.means.append(sums / (pixels * 255))
            self.deviations.append(np.sqrt(variances) / 255)

    def statistics(self) -> Statistics:
        """A constant channel gets standard deviation 1, so that standardising it gives finite values."""
        means, deviations = (np.concatenate(parts).T for parts in (self.means, self.deviations))
        return Statistics(
            tuple(math.fsum(channel) / len(channel) for channel in means),
            tuple(math.fsum(channel) / len(channel) or 1.0 for channel in deviations),
        )
