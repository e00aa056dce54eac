"""XYSingleSquare: Michlo et al., IJCAI 2023, their code: one grey square, placed as those of XYSquares."""

import numpy as np

from disentune.data.drawn import DrawnImages
from disentune.data.moments import of_binary, statistics
from disentune.data.positions import Placement, placed
from disentune.plugin import Dataset, Shape

FACTORS: tuple[str, ...] = ("x", "y")


class Params(Placement):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many positions as fit."""


def opened(params: Params) -> DrawnImages:
    size, corners, table = params.image_size, params.corners, placed(params, params.square_size)

    def draw(factors: np.ndarray) -> np.ndarray:
        x, y = corners[factors].T
        found: np.ndarray = table[y * size + x].reshape(-1, 1, size, size)
        return found

    measured = statistics([of_binary(size**2, np.array([params.square_size**2]))])
    return DrawnImages((opened, params), dict.fromkeys(FACTORS, params.places), shape(params), measured, draw)


def shape(params: Params) -> Shape:
    return (1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places,) * 2


DATASET = Dataset(name="xy_single_square", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened)
