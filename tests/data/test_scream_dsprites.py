"""Scream-dSprites against one image at a time, as the paper's code draws them."""

import pickle

import numpy as np
import pytest
from PIL import Image

from disentune.data import dsprites, scream_dsprites
from disentune.data.noise import fractions, noise_keys
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError
from sprite_files import picture, shrunk_scream, sprites

COMMAND = "get the right file, then run: disentune data prepare scream_dsprites --from FILE$"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def data(root, monkeypatch):
    dataset = scream_dsprites.DATASET
    return dataset.open(dataset.params(**shrunk_scream(root, monkeypatch)))


def shrunk(path, size=(219, 274)):
    with Image.open(path) as file:
        return np.asarray(file.resize(size, Image.Resampling.BICUBIC))


def drawn(painting, sprite, shares):
    """One image (64, 64, 3) in [0, 1]; painting (h, w, 3) in [0, 1], sprite (64, 64)."""
    row, column = (int(share * (size - 64)) for share, size in zip(shares[:2], painting.shape[:2], strict=True))
    image = (painting[row : row + 64, column : column + 64] + shares[2:]) / 2
    image[sprite == 1] = 1 - image[sprite == 1]
    return image


def test_images_are_those_of_a_slow_drawing(data, root):
    painting = shrunk(root / "The_Scream.jpg") / 255
    indices = np.array([0, 17, 100, 287])
    images = data.images(indices)
    assert images.dtype == np.uint8
    for index, image in zip(indices, images, strict=True):
        expected = drawn(painting, sprites()[index], fractions(noise_keys(np.array([index]), None), 5)[0])
        np.testing.assert_array_equal(image.transpose(1, 2, 0), np.rint(255 * expected))


def test_every_piece_of_the_painting_is_as_likely_and_tints_are_uniform():
    y, x = np.mgrid[:80, :84]
    painting = np.stack([3 * y, 3 * x, 0 * x]).astype(np.uint8)
    keys = np.random.default_rng(0).integers(2**63, size=4000)
    images = scream_dsprites.paint(painting, np.zeros((4000, 1, 64, 64), np.uint8), keys)
    corners = 2.0 * images[:, :2, 0, 0] - 255 * fractions(keys, 5)[:, 2:4]  # within 1 of 3 y and 3 x
    rows, columns = np.rint(corners / 3).astype(int).T
    assert (set(rows), set(columns)) == (set(range(16)), set(range(20)))
    assert np.abs(np.bincount(rows) / 250 - 1).max() < 0.3  # 5 deviations
    assert np.abs(np.bincount(columns) / 200 - 1).max() < 0.35
    tints = images[:, 2, 0, 0] / 127.5
    np.testing.assert_allclose(np.quantile(tints, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.04)
    assert np.abs(np.corrcoef(np.stack([rows, columns, tints]))[np.triu_indices(3, 1)]).max() < 0.08


def test_averages_are_rounded_to_the_nearest_byte():
    painting = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 4, 64), 3, axis=0)
    painting = np.tile(painting, (1, 20, 2))
    keys = np.arange(200)
    images = scream_dsprites.paint(painting, np.zeros((200, 1, 64, 64), np.uint8), keys)
    for image, shares in zip(images, fractions(keys, 5), strict=True):
        row, column = int(shares[0] * (80 - 64)), int(shares[1] * (128 - 64))
        piece = painting[:, row : row + 64, column : column + 64]
        np.testing.assert_array_equal(image, np.rint((piece + 255 * shares[2:, None, None]) / 2))


def test_an_image_keeps_its_background_until_it_is_drawn_again(data):
    once, twice = (data.images(np.array([5, 5, 9])) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    np.testing.assert_array_equal(once[0], once[1])
    redrawn = data.images(np.array([5, 5]), np.random.default_rng(0))
    assert len({image.tobytes() for image in [once[0], *redrawn]}) == 3


def test_statistics_are_the_expected_ones_within_a_hundredth_or_so(data):
    rng = np.random.default_rng(1)
    images = np.concatenate([data.images(np.arange(288), rng) for _ in range(8)]) / np.float32(255)
    np.testing.assert_allclose(data.mean, images.mean(axis=(0, 2, 3), dtype=float), rtol=0.03)
    np.testing.assert_allclose(data.std, images.std(axis=(2, 3), ddof=1).mean(axis=0), rtol=0.03)


def test_statistics_are_the_same_at_every_opening(data):
    again = scream_dsprites.DATASET.open(scream_dsprites.Params())
    assert (again.mean, again.std) == (data.mean, data.std)


@pytest.mark.parametrize(
    ("size", "shrunken"),
    [((400, 500), (219, 274)), ((1400, 700), (350, 175)), ((350, 274), (350, 274)), ((100, 90), (100, 90))],
)
def test_the_painting_keeps_its_aspect_and_is_never_enlarged(root, size, shrunken):
    picture(*size).save(root / "The_Scream.jpg", quality=95)
    padded = next(scream_dsprites.painting().read([root / "The_Scream.jpg"]))
    assert padded.shape == (1, 4, 274, 350)
    painting = scream_dsprites.unpadded(padded[0])
    assert painting.shape == (3, *shrunken[::-1])
    np.testing.assert_array_equal(painting.transpose(1, 2, 0), shrunk(root / "The_Scream.jpg", shrunken))


def test_the_painting_may_be_grey_and_have_the_library_s_name(root):
    picture().convert("L").save(root / "scream.jpg")
    prepare(scream_dsprites.painting())
    painting = scream_dsprites.unpadded(np.load(root / "scream_dsprites_painting" / "images.npy").reshape(4, 274, 350))
    np.testing.assert_array_equal(painting[0], painting[2])
    assert np.ptp(painting) > 100


def test_both_files_are_named_as_sources():
    sprite_source, painting = scream_dsprites.DATASET.sources(scream_dsprites.Params())
    assert (sprite_source.key, painting.key) == ("dsprites", "scream_dsprites_painting")
    assert sprite_source.files == (dsprites.FILE,)
    assert painting.files[0].urls == ("https://upload.wikimedia.org/wikipedia/commons/f/f4/The_Scream.jpg",)


def test_a_pickle_opens_the_same_data_set(data):
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    np.testing.assert_array_equal(pickle.loads(pickled).images(np.arange(9)), data.images(np.arange(9)))


def test_it_describes_itself_as_noisy_sprites(data):
    assert data.noisy
    assert data.shape == scream_dsprites.DATASET.shape(scream_dsprites.Params()) == (3, 64, 64)
    assert scream_dsprites.DATASET.factor_sizes(scream_dsprites.Params()) == data.factor_sizes == (3, 2, 4, 3, 4)


@pytest.mark.parametrize("size", [(64, 200), (200, 64), (1400, 200)])
def test_a_painting_too_small_for_two_pieces_is_refused(root, size):
    picture(*size).save(root / "The_Scream.jpg")
    with pytest.raises(DataError, match=f"The_Scream.jpg: must be larger than 64 x 64 when .*{COMMAND}"):
        prepare(scream_dsprites.painting())


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_a_painting_cut_off_is_refused(root, length):
    path = root / "The_Scream.jpg"
    picture().save(path, quality=95)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=f"The_Scream.jpg: is not a picture, or is .*{COMMAND}"):
        prepare(scream_dsprites.painting())
