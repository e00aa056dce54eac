"""XYObjectShaded: Michlo et al., IJCAI 2023, their code: the images of XYObject, with brightness as a factor.

Images are in the same order; the last factor of XYObject is split into intensity, darkest first, and colour.
"""

import numpy as np

from disentune.data import xy_object
from disentune.data.drawn import DrawnImages
from disentune.data.xy_object import Params
from disentune.plugin import Dataset, Statistics

FACTORS: tuple[str, ...] = ("x", "y", "scale", "intensity", "colour")


def opened(params: Params) -> DrawnImages:
    unsplit = xy_object.opened(params)
    sizes = factor_sizes(params)

    def draw(factors: np.ndarray) -> np.ndarray:
        return unsplit.images(np.ravel_multi_index(tuple(factors.T), sizes))

    factors, measured = dict(zip(FACTORS, sizes, strict=True)), Statistics(unsplit.mean, unsplit.std)
    return DrawnImages((opened, params), factors, unsplit.shape, measured, draw, categorical=("colour",))


def factor_sizes(params: Params) -> tuple[int, ...]:
    *rest, shades = xy_object.factor_sizes(params)
    return (*rest, params.levels, shades // params.levels)


DATASET = Dataset(
    name="xy_object_shaded",
    params=Params,
    shape=xy_object.shape,
    factor_sizes=factor_sizes,
    open=opened,
    published=xy_object.published,
)
