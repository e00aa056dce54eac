"""Shared by the three data sets that draw dSprites in a new colour or on a new background each time."""

from collections.abc import Callable
from typing import Any

import numpy as np

from disentune.data.factors import in_a_line
from disentune.data.noise import noise_keys
from disentune.data.prepared.stored import StoredImages
from disentune.maths.randomness import stream
from disentune.plugin import Frozen, Shape, Statistics

SHAPE: Shape = (3, 64, 64)
SAMPLE = 2880
"""Size of the sample of sprites for statistics that need the images: 4 per shape, scale and orientation."""

Paint = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(sprites uint8 (n, 1, 64, 64) that are 0 or 255, keys (n,) of the noise) -> uint8 (n, 3, 64, 64)."""


class RedrawnSprites:
    """Painted sprites. A pickle has no images, only how to open the data set again."""

    noisy = True
    shape = SHAPE

    def __init__(
        self,
        sprites: StoredImages,
        paint: Paint,
        statistics: Statistics,
        opened_by: tuple[Callable[[Any], "RedrawnSprites"], Frozen],
    ):
        self._sprites, self._paint, self._opened_by = sprites, paint, opened_by
        self.factor_names, self.factor_sizes = sprites.factor_names, sprites.factor_sizes
        self.categorical = sprites.categorical
        self.mean, self.std = statistics

    def __reduce__(self) -> tuple[Callable[..., "RedrawnSprites"], tuple[Any, ...]]:
        open_again, params = self._opened_by
        return open_again, (params,)

    def __len__(self) -> int:
        return len(self._sprites)

    def __repr__(self) -> str:
        return in_a_line(self)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, 3, 64, 64)"""
        return self._paint(self._sprites.images(indices), noise_keys(indices, rng))


def shape(params: Frozen) -> Shape:
    return SHAPE


def spread(total: int) -> np.ndarray:
    """Indices of all images, or of a fixed sample: one from each of SAMPLE equal parts."""
    if total <= SAMPLE:
        return np.arange(total)
    parts = np.arange(SAMPLE)
    return ((parts + stream(0, "data/spread").random(SAMPLE)) * (total / SAMPLE)).astype(np.int64)
