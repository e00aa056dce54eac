"""Sparse parts: our own: grey images that show a few of 9 round spots, each of any brightness; without known factors.

A drawn stand-in for photographs in experiments on sparsity (Mathieu et al., ICML 2019, section 6.3): what an image
shows is sparse, and no label says so. The spots lie on a grid and overlap a little. Which of them an image
has, and how bright they are, follows from its index alone.
"""

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.factors import checked_indices
from disentune.data.noise import fractions
from disentune.data.prepared.measuring import Measuring
from disentune.plugin import Count, Dataset, Frozen, Shape

DARKEST = 0.3
"""Brightness of a spot is uniform from here to 1."""
WIDTH = 0.4
"""Standard deviation of a spot, in distances between neighbours."""
SALT = 0x5BA7
"""Between the keys of these images and those of other data sets."""
AT_ONCE = 4096


class Params(Frozen):
    image_size: Count = Field(12, ge=4, le=128, description="pixels along a side")
    along: Count = Field(3, ge=2, le=16, description="spots along a side")
    share: float = Field(0.2, gt=0, le=1, description="chance that an image shows a spot")
    count: Count = Field(5000, ge=1, le=1_000_000, description="how many images there are")

    @field_validator("along")
    @classmethod
    def _has_room(cls, along: int, others: ValidationInfo) -> int:
        size = others.data.get("image_size", along)
        if along > size:
            raise ValueError(f"must be at most {size}, the pixels along a side, but is {along}")
        return along


def shape(params: Params) -> Shape:
    return 1, params.image_size, params.image_size


def spots(size: int, along: int) -> np.ndarray:
    """Each spot at full brightness, float64 (along**2, size, size)."""
    cell = size / along
    pixels, centres = np.arange(size) + 0.5, (np.arange(along) + 0.5) * cell
    bumps = np.exp(-((pixels - centres[:, None]) ** 2) / (2 * (WIDTH * cell) ** 2))
    return (bumps[:, None, :, None] * bumps[None, :, None, :]).reshape(-1, size, size)


class SparseParts:
    noisy = False
    factor_names: tuple[str, ...] = ()
    factor_sizes: tuple[int, ...] = ()
    categorical: tuple[str, ...] = ()

    def __init__(self, params: Params):
        self.params, self.shape = params, shape(params)
        self._spots = spots(params.image_size, params.along).reshape(params.along**2, -1)
        measuring = Measuring()
        for start in range(0, params.count, AT_ONCE):
            measuring.add(self.images(np.arange(start, min(start + AT_ONCE, params.count))))
        self.mean, self.std = measuring.statistics()

    def __reduce__(self) -> tuple[type["SparseParts"], tuple[Params]]:
        return SparseParts, (self.params,)

    def __len__(self) -> int:
        return self.params.count

    def brightness(self, indices: np.ndarray) -> np.ndarray:
        """The brightness of each spot in each image, float64 (n, along**2); 0 where the spot is absent."""
        drawn = fractions(checked_indices(indices, len(self)) * 2**16 + SALT, 2 * len(self._spots))
        present, level = np.split(drawn, 2, axis=1)
        present = present < self.params.share
        return np.where(present, DARKEST + (1 - DARKEST) * level, 0.0)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, 1, h, w): spots are added one by one, so that an image is the same in any company."""
        brightness = self.brightness(indices)
        light = np.zeros((len(brightness), self._spots.shape[1]))
        for own, spot in zip(brightness.T, self._spots, strict=True):
            light += own[:, None] * spot
        found: np.ndarray = np.rint(255 * np.minimum(light, 1)).astype(np.uint8)
        return found.reshape(-1, *self.shape)


DATASET = Dataset(
    name="sparse_parts",
    params=Params,
    shape=shape,
    factor_sizes=lambda params: (),
    open=SparseParts,
    count=lambda params: params.count,
)
