"""Noisy-dSprites: white sprites, uniform noise around them, and its statistics against many draws."""

import pickle

import numpy as np
import pytest

from disentune.data import noisy_dsprites, redrawn
from sprite_files import shrunk_dsprites, sprites


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    dataset = noisy_dsprites.DATASET
    return dataset.open(dataset.params(**shrunk_dsprites(tmp_path, monkeypatch)))


def around(images, indices):
    """The pixels (m, 3) outside the sprites."""
    return np.concatenate([image[:, sprites()[i] == 0].T for image, i in zip(images, indices, strict=True)])


def test_sprites_are_white_in_every_channel(data):
    images = data.images(np.arange(288))
    assert images.dtype == np.uint8
    lit = np.repeat(sprites()[:, None], 3, axis=1) == 1
    assert (images[lit] == 255).all()
    assert (images[~lit] == 255).mean() < 0.01


def test_noise_is_uniform_and_independent_in_every_channel_and_pixel(data):
    indices = np.arange(100)
    noise = around(data.images(indices, np.random.default_rng(0)), indices)
    counts = np.stack([np.bincount(channel, minlength=256) for channel in noise.T])
    assert np.abs(counts / len(noise) * 256 - 1).max() < 0.15  # 6 deviations of 1600 a level
    np.testing.assert_allclose(np.corrcoef(noise.T), np.eye(3), atol=0.01)
    assert abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.01


def test_an_image_keeps_its_noise_until_it_is_drawn_again(data):
    once, twice = (data.images(np.array([5, 5, 9])) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    np.testing.assert_array_equal(once[0], once[1])
    redrawn = data.images(np.array([5, 5]), np.random.default_rng(0))
    assert len({image.tobytes() for image in [once[0], *redrawn]}) == 3
    np.testing.assert_array_equal(redrawn, data.images(np.array([5, 5]), np.random.default_rng(0)))


def measured(data, draws):
    rng = np.random.default_rng(1)
    images = [data.images(np.arange(288), rng).astype(np.float32) / 255 for _ in range(draws)]
    means = np.mean([batch.mean(axis=(0, 2, 3), dtype=float) for batch in images], axis=0)
    return means, np.mean([batch.std(axis=(2, 3), ddof=1).mean(axis=0, dtype=float) for batch in images], axis=0)


def test_statistics_are_the_expected_ones(data):
    means, deviations = measured(data, draws=10)
    np.testing.assert_allclose(data.mean, means, rtol=7e-4)  # 4 deviations: 0.29 / (64 sqrt(2880)) of 0.51
    np.testing.assert_allclose(data.std, deviations, rtol=6e-4)  # 4 deviations of 0.7 % / sqrt(2880)
    assert len(set(data.mean)) == len(set(data.std)) == 1


@pytest.mark.parametrize("lit", [0, 1, 40, 2000, 4095])
def test_the_deviation_is_that_of_so_many_white_pixels(lit):
    noise = np.random.default_rng(0).integers(256, size=(1000, 4096)).astype(np.float32) / 255
    noise[:, :lit] = 1
    (expected,) = noisy_dsprites._deviation(np.array([lit / 4096]))
    root = np.sqrt(noise.var(axis=1, ddof=1, dtype=float).mean())
    assert expected == pytest.approx(root, rel=1.2e-3 if lit < 4095 else 0.2)  # one pixel of noise has a large error


def test_the_deviation_of_pure_noise_and_of_one_noisy_pixel_is_exact():
    """Noise alone has its own variance; one value that is d away from 4095 equal ones gives d**2 / 4096."""
    levels = np.arange(256) / 255
    pure, one = noisy_dsprites._deviation(np.array([0, 4095 / 4096])) ** 2
    assert pure == pytest.approx(levels.var(), rel=1e-12)
    assert one == pytest.approx(((1 - levels) ** 2).mean() / 4096, rel=1e-9)


def test_statistics_of_many_sprites_need_a_sample_only(data, monkeypatch):
    monkeypatch.setattr(redrawn, "SAMPLE", 7)
    fewer = noisy_dsprites.DATASET.open(noisy_dsprites.Params())
    assert fewer.mean == data.mean
    assert fewer.std != data.std
    assert fewer.std == pytest.approx(data.std, rel=0.01)


@pytest.mark.parametrize("total", [1, 2879, 2880, 2881, 5000, 737_280])
def test_the_sample_is_spread_evenly_and_always_the_same(total):
    indices = redrawn.spread(total)
    np.testing.assert_array_equal(indices, redrawn.spread(total))
    assert len(indices) == min(total, 2880)
    assert indices.dtype == np.int64
    edges = np.linspace(0, total, len(indices) + 1)
    assert (indices >= np.floor(edges[:-1])).all()
    assert (indices < edges[1:]).all()


def test_it_describes_itself_as_noisy_sprites(data):
    assert data.noisy
    assert data.shape == noisy_dsprites.DATASET.shape(noisy_dsprites.Params()) == (3, 64, 64)
    assert noisy_dsprites.DATASET.factor_sizes(noisy_dsprites.Params()) == data.factor_sizes == (3, 2, 4, 3, 4)
    assert [source.key for source in noisy_dsprites.DATASET.sources(noisy_dsprites.Params())] == ["dsprites"]


def test_a_pickle_opens_the_same_data_set(data):
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(pickle.loads(pickled).images(np.arange(9)), data.images(np.arange(9)))
