"""XYBlocks against a slow drawing and the published numbers."""

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data.factors import FactorGrid
from disentune.data.xy_blocks import DATASET, Params

PAINTS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


def opened(**params):
    return DATASET.open(Params(**params))


def drawn(factors, image_size):
    """One image, block by block, pixel by pixel, as the thesis' code paints them."""
    image = np.zeros((image_size, image_size, 3), np.uint8)
    for block, cells in enumerate((2, 4, 8)):
        side = image_size // cells
        paint, x, y = PAINTS[factors[block]], factors[3 + block] * side, factors[6 + block] * side
        first = tuple(image[y, x].tolist())
        image[y : y + side, x : x + side] = (0, 0, 0) if first == paint else paint
    return image.transpose(2, 0, 1)


@pytest.mark.parametrize("image_size", [64, 16, 8])
def test_images_are_those_of_a_slow_drawing_in_the_requested_order(image_size):
    data = opened(image_size=image_size)
    indices = np.random.default_rng(0).integers(len(data), size=400)
    images = data.images(indices)
    factors = FactorGrid(data.factor_names, data.factor_sizes).factors(indices)
    assert images.dtype == np.uint8
    assert images.shape == (400, *DATASET.shape(data.params))
    np.testing.assert_array_equal(images, [drawn(row, image_size) for row in factors])


def test_factors_are_those_of_the_thesis():
    data = opened()
    names = ("colour_2", "colour_4", "colour_8", "x_2", "x_4", "x_8", "y_2", "y_4", "y_8")
    assert data.factor_names == names
    assert data.factor_sizes == DATASET.factor_sizes(Params()) == (3, 3, 3, 2, 4, 8, 2, 4, 8)
    assert data.categorical == names[:3]
    assert len(data) == 110_592


def test_statistics_are_the_published_ones():
    data, published = opened(), DATASET.published(Params())
    assert data.mean == pytest.approx((0.10040509259259259,) * 3, abs=1e-9)
    assert data.std == pytest.approx((0.21689087652106678,) * 3, abs=1e-9)
    assert published.mean == pytest.approx(data.mean, abs=1e-9)
    assert published.std == pytest.approx(data.std, abs=1e-9)
    assert DATASET.published(Params(image_size=32)) is None


def test_statistics_are_means_over_all_images():
    data = opened(image_size=8)
    lit = data.images(np.arange(len(data))).reshape(len(data), 3, 64) == 255
    share = lit.mean(axis=2)
    assert data.mean == pytest.approx(share.mean(axis=0), rel=1e-12)
    assert data.std == pytest.approx(np.sqrt(share * (1 - share) * 64 / 63).mean(axis=0), rel=1e-12)


def test_a_block_inside_one_of_its_colour_leaves_a_hole():
    data = opened()
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    same, other, apart = data.images(
        grid.index(np.array([[1, 1, 0, 0, 1, 7, 0, 1, 7], [1, 2, 0, 0, 1, 7, 0, 1, 7], [1, 1, 0, 0, 2, 7, 0, 1, 7]]))
    )
    assert (same[1] == 255).sum() == 32**2 - 16**2
    assert not same[:, 16:32, 16:32].any()
    assert (other[2, 16:32, 16:32] == 255).all()
    assert (apart[1] == 255).sum() == 32**2 + 16**2


def test_neighbours_along_a_factor_differ():
    data = opened(image_size=8)
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    corner = np.array([0, 1, 2, 0, 1, 3, 1, 2, 5])
    moved = (corner + np.eye(9, dtype=int)) % data.factor_sizes
    images = data.images(grid.index(np.concatenate([corner[None], moved])))
    assert len(np.unique(images, axis=0)) == 10


@pytest.mark.parametrize(
    ("image_size", "message"),
    [(20, "must be a multiple of 8, the cells along a side, but is 20"), (0, "greater than or equal to 8")],
)
def test_an_image_without_whole_cells_is_refused(image_size, message):
    with pytest.raises(ValidationError, match=message):
        Params(image_size=image_size)
