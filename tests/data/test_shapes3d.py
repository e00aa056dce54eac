"""3D Shapes from a small file of the public format."""

import h5py
import numpy as np
import pytest

from disentune.data import shapes3d
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError
from disentune.plugin import Statistics
from sprite_files import SHAPES3D, coloured, labels, write_shapes3d

COMMAND = "get the right file, then run: disentune data prepare shapes3d --from FILE$"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    monkeypatch.setattr(shapes3d, "FACTORS", SHAPES3D)
    monkeypatch.setattr(shapes3d, "PUBLISHED", None)
    monkeypatch.setattr(shapes3d, "rows_of", lambda shape: 25)
    return tmp_path


@pytest.fixture
def path(root):
    return root / shapes3d.FILE.name


def opened():
    return shapes3d.DATASET.open(shapes3d.DATASET.params())


def prepared():
    return prepare(*shapes3d.DATASET.sources(shapes3d.DATASET.params()))


def test_every_image_is_the_file_s_with_channels_first(path):
    images = coloured(SHAPES3D)
    write_shapes3d(path, images, labels(SHAPES3D) / 10)
    data = opened()
    drawn = data.images(np.arange(len(data)))
    assert drawn.shape == (144, 3, 64, 64)
    for channel in range(3):
        np.testing.assert_array_equal(drawn[:, channel], images[..., channel])


def test_factors_are_those_of_the_public_labels(path):
    write_shapes3d(path, coloured(SHAPES3D), labels(SHAPES3D) / 10)
    data = opened()
    assert data.factor_names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    assert data.factor_sizes == (2, 3, 2, 2, 2, 3)
    assert data.categorical == ("shape",)


def test_the_public_file_is_that_of_the_paper():
    params = shapes3d.DATASET.params()
    (source,) = shapes3d.DATASET.sources(params)
    assert shapes3d.DATASET.factor_sizes(params) == (10, 10, 10, 8, 4, 15)
    assert (source.count, source.shape, source.binary) == (480_000, (3, 64, 64), False)
    assert source.published == shapes3d.DATASET.published(params) == shapes3d.PUBLISHED


def test_a_file_without_labels_is_taken(path):
    with h5py.File(path, "w") as file:
        file["images"] = coloured(SHAPES3D)
    assert prepared().count == 144


def test_a_set_that_is_not_the_published_one_is_refused(path, monkeypatch):
    monkeypatch.setattr(shapes3d, "PUBLISHED", Statistics((0.5, 0.5, 0.6), (0.29,) * 3))
    write_shapes3d(path, coloured(SHAPES3D), labels(SHAPES3D))
    with pytest.raises(DataError, match="is not the published data set"):
        prepared()


def with_nan():
    images = coloured(SHAPES3D) / np.float32(255)
    images[101, 3, 5, 2] = np.nan
    return images


GRID = labels(SHAPES3D)
WRONG = {
    "too few images": (
        coloured(SHAPES3D)[:-1],
        GRID,
        r"'images' must be \(144, 64, 64, 3\), but is \(143, ",
    ),
    "no colours": (coloured(SHAPES3D)[..., :1], GRID, r"'images' must be \(144, 64, 64, 3\), but is"),
    "nan": (with_nan(), GRID, "pixels must be numbers from 0 to 1, but image 101 has nan"),
    "labels out of order": (coloured(SHAPES3D), GRID[:, ::-1], "labels must be the full grid of sizes"),
    "labels of half the images": (coloured(SHAPES3D), GRID[:72], r"'labels' must be \(144, 6\) .*, but is \(72, 6\)"),
    "no labels": (coloured(SHAPES3D), GRID[:0], r"'labels' must be \(144, 6\) .*, but is \(0, 6\)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_and_leaves_nothing(path, root, what):
    images, values, message = WRONG[what]
    write_shapes3d(path, images, values)
    with pytest.raises(DataError, match=f"3dshapes.h5: {message}.*{COMMAND}"):
        prepared()
    assert not (root / "shapes3d").exists()


def test_fractions_are_taken_as_the_nearest_bytes(path):
    write_shapes3d(path, coloured(SHAPES3D) / np.float32(255), GRID)
    np.testing.assert_array_equal(opened().images(np.array([7]))[0, 1], coloured(SHAPES3D)[7, ..., 1])


def test_a_file_without_images_is_refused(path):
    with h5py.File(path, "w") as file:
        file["labels"] = GRID
    with pytest.raises(DataError, match=f"must have an array 'images', but has labels; {COMMAND}"):
        prepared()


def test_a_file_cut_off_is_refused(path):
    write_shapes3d(path, coloured(SHAPES3D), GRID)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataError, match=f"3dshapes.h5: is not an HDF5 file.*{COMMAND}"):
        prepared()


def test_labels_too_large_for_any_memory_are_refused(path):
    with h5py.File(path, "w") as file:
        file["images"] = coloured(SHAPES3D)
        file.create_dataset("labels", shape=(10**13, 6), dtype="f8", chunks=(1000, 6))
    with pytest.raises(DataError, match=rf"3dshapes.h5: 'labels' must be \(144, 6\) .*{COMMAND}"):
        prepared()
