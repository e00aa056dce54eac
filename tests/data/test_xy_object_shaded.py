"""XYObjectShaded against XYObject."""

import numpy as np
import pytest

from disentune.data import xy_object
from disentune.data.factors import FactorGrid
from disentune.data.xy_object_shaded import DATASET

WORLDS = [
    {},
    {"image_size": 9, "square_size": 5, "scales": 2, "palette": "colors_2"},
    {"image_size": 9, "square_size": 5, "scales": 2, "palette": "greys_4"},
    {"image_size": 12, "square_size": 5, "scales": 2, "spacing": 4, "centred": False},
]


def opened(**params):
    return DATASET.open(DATASET.params(**params))


@pytest.mark.parametrize("world", WORLDS)
def test_images_are_those_of_xy_object_at_the_same_indices(world):
    data, unsplit = opened(**world), xy_object.DATASET.open(xy_object.Params(**world))
    assert (len(data), data.shape, data.mean, data.std) == (len(unsplit), unsplit.shape, unsplit.mean, unsplit.std)
    indices = np.random.default_rng(0).integers(len(data), size=300)
    images = data.images(indices)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, unsplit.images(indices))


@pytest.mark.parametrize(
    ("palette", "split"), [("rainbow_4", (4, 6)), ("colors_2", (2, 7)), ("greys_4", (4, 1)), ("rgb_1", (1, 3))]
)
def test_the_last_factor_is_split_into_intensity_and_colour(palette, split):
    data = opened(palette=palette)
    assert data.factor_names == ("x", "y", "scale", "intensity", "colour")
    assert data.factor_sizes == DATASET.factor_sizes(data.params) == (25, 25, 5, *split)
    assert data.categorical == ("colour",)


def test_intensity_makes_a_colour_brighter_and_changes_nothing_else():
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    images = data.images(grid.index(np.array([[3, 4, 2, intensity, 1] for intensity in range(4)])))  # yellow
    lit = images[:, :, 4 * 2 + 7, 3 * 2 + 7]
    assert lit.tolist() == [[63, 63, 0], [127, 127, 0], [191, 191, 0], [255, 255, 0]]
    assert len({(image > 0).tobytes() for image in images}) == 1


def test_the_published_statistics_are_those_of_xy_object():
    published = DATASET.published(DATASET.params())
    assert published.mean == (0.009818761549013288,) * 3
    assert published.std == (0.05263236372524584,) * 3
    assert DATASET.published(DATASET.params(scales=3)) is None
