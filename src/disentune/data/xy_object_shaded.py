"""XYObjectShaded: Michlo et al., IJCAI 2023, their code: the images of XYObject, with brightness as a factor.

Images come in the same order; the last factor of XYObject is split into intensity, darkest first, and colour.
"""

import numpy as np

from disentune.data import xy_object
from disentune.data.xy_object import Params, XYObject
from disentune.plugin import Dataset

FACTORS: tuple[str, ...] = ("x", "y", "scale", "intensity", "colour")


class XYObjectShaded:
    noisy = False

    def __init__(self, params: Params):
        self.params, self._unsplit = params, XYObject(params)
        self.factor_names, self.factor_sizes = FACTORS, factor_sizes(params)
        self.categorical: tuple[str, ...] = ("colour",)
        self.shape, self.mean, self.std = self._unsplit.shape, self._unsplit.mean, self._unsplit.std

    def __reduce__(self):
        return XYObjectShaded, (self.params,)

    def __len__(self) -> int:
        return len(self._unsplit)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, 3, h, w)"""
        return self._unsplit.images(indices, rng)


def factor_sizes(params: Params) -> tuple[int, ...]:
    *rest, shades = xy_object.factor_sizes(params)
    return (*rest, params.levels, shades // params.levels)


DATASET = Dataset(
    name="xy_object_shaded",
    params=Params,
    shape=xy_object.shape,
    factor_sizes=factor_sizes,
    open=XYObjectShaded,
    published=xy_object.published,
)
