"""What every data set of the catalogue must do."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.data import DATASETS, load
from disentune.data.factors import FactorGrid
from disentune.errors import DataError

pytestmark = pytest.mark.parametrize("name", DATASETS.names())


def sample_of(data, size=32):
    return np.random.default_rng(0).integers(len(data), size=size)


def test_images_have_the_promised_shape_and_type(name):
    data = load(name)
    images = data.images(sample_of(data))
    assert images.shape == (32, *data.shape)
    assert images.dtype == np.uint8
    assert DATASETS[name].shape(DATASETS[name].params()) == data.shape


def test_factors_span_the_grid(name):
    data = load(name)
    assert len(data.factor_names) == len(set(data.factor_names)) == len(data.factor_sizes)
    assert len(data) == np.prod(data.factor_sizes)


def test_images_come_in_the_order_asked_for(name):
    data = load(name)
    indices = sample_of(data)
    one_by_one = np.concatenate([data.images(indices[i : i + 1]) for i in range(len(indices))])
    np.testing.assert_array_equal(data.images(indices), one_by_one)


def test_two_openings_give_the_same_images(name):
    first, second = load(name), load(name)
    np.testing.assert_array_equal(first.images(sample_of(first)), second.images(sample_of(first)))


def test_writing_into_images_leaves_the_data_alone(name):
    data = load(name)
    before = data.images(np.array([0])).copy()
    data.images(np.array([0]))[:] = 7
    np.testing.assert_array_equal(data.images(np.array([0])), before)


def test_a_pickle_is_small_and_gives_the_same_images(name):
    data = load(name)
    pickled = pickle.dumps(data)
    assert len(pickled) < 10_000
    np.testing.assert_array_equal(pickle.loads(pickled).images(sample_of(data)), data.images(sample_of(data)))


def test_statistics_describe_a_sample(name):
    data = load(name)
    images = data.images(sample_of(data, 500)) / 255.0
    assert len(data.mean) == len(data.std) == data.shape[0]
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)), data.mean, rtol=0.1)  # of 500 images
    np.testing.assert_allclose(images.std(axis=(2, 3), ddof=1).mean(axis=0), data.std, rtol=0.1)


@pytest.mark.parametrize("outside", [-1, "len"])
def test_an_index_outside_is_refused(name, outside):
    data = load(name)
    with pytest.raises(DataError, match="index must be"):
        data.images(np.array([0, len(data) if outside == "len" else outside]))


def test_neighbours_along_a_factor_differ(name):
    data = load(name)
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    origin = np.zeros((1, len(data.factor_sizes)), int)
    moved = origin + np.diag(np.array(data.factor_sizes) > 1).astype(int)
    images = data.images(grid.index(np.concatenate([origin, moved])))
    assert len(np.unique(images, axis=0)) == len(images)


@settings(deadline=None, max_examples=30)
@given(draw=st.data())
def test_indices_and_factors_are_one_to_one(name, draw):
    data = load(name)
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    index = np.array([draw.draw(st.integers(0, len(data) - 1))])
    assert grid.index(grid.factors(index)) == index
