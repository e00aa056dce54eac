"""Areas of unions against drawing every picture."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from disentune.data.union_areas import union_areas


def drawn(squares, side, step, places):
    areas = Counter()
    for corners in product(range(places), repeat=2 * squares):
        picture = np.zeros((side + step * places,) * 2, bool)
        for x, y in zip(corners[::2], corners[1::2], strict=True):
            picture[step * y : step * y + side, step * x : step * x + side] = True
        areas[int(picture.sum())] += 1
    return areas


@pytest.mark.parametrize(
    ("squares", "side", "step", "places"),
    [(1, 3, 1, 4), (2, 3, 1, 4), (2, 3, 2, 3), (3, 2, 1, 3), (3, 3, 2, 3), (3, 2, 2, 3), (3, 2, 1, 1)],
)
def test_areas_are_those_of_all_pictures(squares, side, step, places):
    areas = Counter()
    for area, pictures in zip(*union_areas(squares, side, step, places), strict=True):
        areas[int(area)] += int(pictures)
    assert +areas == drawn(squares, side, step, places)
