"""Color-dSprites against colours drawn one by one, and its statistics against many draws."""

import pickle

import numpy as np
import pytest

from disentune.data import color_dsprites
from disentune.data.noise import fractions, noise_keys
from disentune.errors import DataError
from sprite_files import shrunk_dsprites, sprites


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    dataset = color_dsprites.DATASET
    return dataset.open(dataset.params(**shrunk_dsprites(tmp_path, monkeypatch)))


def test_a_sprite_has_one_colour_that_is_half_bright_at_least(data):
    images = data.images(np.arange(288))
    colours = images.max(axis=(2, 3))
    expected = sprites()[:, None] * colours[:, :, None, None]
    np.testing.assert_array_equal(images, expected, strict=True)
    assert colours.min() >= 128
    assert len(np.unique(colours[:, 0])) > 90  # of 128
    assert all(len(set(colour)) > 1 for colour in colours.tolist())


def test_colours_are_the_nearest_bytes(data):
    colours = data.images(np.arange(20)).max(axis=(2, 3))
    shares = fractions(noise_keys(np.arange(20), None), 3)
    expected = [[round(255 * (0.5 + share / 2)) for share in row] for row in shares]
    np.testing.assert_array_equal(colours, expected)


@pytest.mark.slow
def test_colours_are_uniform_and_independent(data):
    colours = data.images(np.zeros(20_000, int), np.random.default_rng(0)).max(axis=(2, 3)) / 255
    np.testing.assert_allclose(
        np.quantile(colours, [0.25, 0.5, 0.75], axis=0).T, [[5 / 8, 6 / 8, 7 / 8]] * 3, atol=0.01
    )
    np.testing.assert_allclose(np.corrcoef(colours.T), np.eye(3), atol=0.03)  # 4 deviations of 20000 draws


def test_an_image_keeps_its_colour_until_it_is_drawn_again(data):
    once, twice = (data.images(np.array([5, 5, 9])) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    np.testing.assert_array_equal(once[0], once[1])
    redrawn = data.images(np.array([5, 5, 9]), np.random.default_rng(0))
    assert len({image.tobytes() for image in [*once[:2], *redrawn[:2]]}) == 3
    np.testing.assert_array_equal(redrawn, data.images(np.array([5, 5, 9]), np.random.default_rng(0)))


def test_statistics_are_the_expected_ones(data):
    rng = np.random.default_rng(1)
    images = np.concatenate([data.images(np.arange(288), rng) for _ in range(8)]) / np.float32(255)
    # 2304 colours of deviation 0.19 of their mean: 4 deviations are 1.6 %
    np.testing.assert_allclose(data.mean, images.mean(axis=(0, 2, 3), dtype=float), rtol=0.016)
    np.testing.assert_allclose(data.std, images.std(axis=(2, 3), ddof=1).mean(axis=0), rtol=0.016)


def test_statistics_of_one_brightness_are_those_of_the_sprites_times_it(data):
    images = sprites() * np.float64(color_dsprites.BRIGHTNESS)
    assert data.mean == pytest.approx([images.mean()] * 3, rel=1e-12)
    assert data.std == pytest.approx([images.std(axis=(1, 2), ddof=1).mean()] * 3, rel=1e-12)


def test_the_expected_brightness_is_that_of_every_rounded_colour():
    shares = (np.arange(1_000_000) + 0.5) / 1_000_000
    assert np.mean(np.rint(255 * (0.5 + shares / 2))) / 255 == pytest.approx(color_dsprites.BRIGHTNESS, abs=1e-8)


def test_it_describes_itself_as_noisy_sprites(data):
    assert data.noisy
    assert data.shape == color_dsprites.DATASET.shape(color_dsprites.Params()) == (3, 64, 64)
    assert data.factor_names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert color_dsprites.DATASET.factor_sizes(color_dsprites.Params()) == data.factor_sizes == (3, 2, 4, 3, 4)
    assert data.categorical == ("shape",)


def test_a_pickle_opens_the_same_data_set(data):
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(pickle.loads(pickled).images(np.arange(9)), data.images(np.arange(9)))


def test_an_index_outside_is_refused(data):
    with pytest.raises(DataError, match="index must be 0 to 287, got 288"):
        data.images(np.array([288]), np.random.default_rng(0))


def test_it_is_made_from_the_array_of_dsprites(data, tmp_path):
    (source,) = color_dsprites.DATASET.sources(color_dsprites.Params())
    assert source.key == "dsprites"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["dsprites"]
