"""dSprites from small files of the public formats."""

import pickle

import h5py
import numpy as np
import pytest

from disentune.data import dsprites
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError
from disentune.plugin import Statistics
from sprite_files import DSPRITES, Trap, dsprites_arrays, sprites, write_dsprites_hdf5, write_dsprites_npz

COMMAND = "get the right file, then run: disentune data prepare dsprites --from FILE$"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    monkeypatch.setattr(dsprites, "FACTORS", DSPRITES)
    monkeypatch.setattr(dsprites, "PUBLISHED", None)
    return tmp_path / "root"


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(dsprites, "rows_of", lambda shape: 50)


def write(path, arrays):
    if path.suffix == ".npz":
        write_dsprites_npz(path, arrays, {b"latents_sizes": [1, *DSPRITES.values()]})
    else:
        write_dsprites_hdf5(path, arrays)


def opened():
    return dsprites.DATASET.open(dsprites.DATASET.params())


@pytest.fixture(params=["sprites.npz", "sprites.hdf5"])
def path(request, root, tmp_path):
    """A file of the user's, in either format."""
    return tmp_path / request.param


@pytest.mark.usefixtures("small_chunks")
def test_every_image_is_the_file_s(path):
    write(path, dsprites_arrays())
    prepare(dsprites.source(), path)
    images = opened().images(np.arange(288))
    np.testing.assert_array_equal(images, 255 * sprites()[:, None], strict=True)


@pytest.mark.parametrize("suffix", ["npz", "hdf5"])
def test_a_public_file_in_the_root_is_found(root, suffix):
    write(root / f"dsprites_ndarray_co1sh3sc6or40x32y32_64x64.{suffix}", dsprites_arrays())
    np.testing.assert_array_equal(opened().images(np.array([287]))[0, 0], 255 * sprites()[287])


def test_formats_are_detected_by_content(root, tmp_path):
    write(tmp_path / "sprites.npz", dsprites_arrays())
    (tmp_path / "sprites.npz").rename(root / dsprites.FILE.name)
    np.testing.assert_array_equal(opened().images(np.arange(288))[:, 0], 255 * sprites())


def test_the_last_factor_is_the_vertical_position(root):
    write(root / dsprites.FILE.name, dsprites_arrays())
    data = opened()
    assert data.factor_names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert data.factor_sizes == (3, 2, 4, 3, 4)
    assert data.categorical == ("shape",)
    first, below, right = data.images(np.array([0, 1, 4]))[:, 0, 5:]  # without the dots
    np.testing.assert_array_equal(np.roll(first, 9, axis=0), below)
    np.testing.assert_array_equal(np.roll(first, 9, axis=1), right)


def test_statistics_are_means_over_images(root):
    write(root / dsprites.FILE.name, dsprites_arrays())
    data, images = opened(), sprites().astype(float)
    assert data.mean == pytest.approx([images.mean()], rel=1e-12)
    assert data.std == pytest.approx([np.mean([image.std(ddof=1) for image in images])], rel=1e-12)


def test_the_public_files_are_those_of_the_paper():
    params = dsprites.DATASET.params()
    (source,) = dsprites.DATASET.sources(params)
    assert dsprites.DATASET.factor_sizes(params) == (3, 6, 40, 32, 32)
    assert source.count == 737_280
    assert (source.binary, source.shape) == (True, (1, 64, 64))
    assert source.published == dsprites.DATASET.published(params) == dsprites.PUBLISHED
    assert len(pickle.dumps(source)) < 2000


def test_a_set_that_is_not_the_published_one_is_refused(path, monkeypatch):
    monkeypatch.setattr(dsprites, "PUBLISHED", Statistics((0.0425,), (0.195,)))
    write(path, dsprites_arrays())
    with pytest.raises(DataError, match=r"is not the published data set: mean and std .* --from .*--accept"):
        prepare(dsprites.source(), path)


def write_alone(path, key, images):
    if path.suffix == ".npz":
        np.savez(path, **{key: images})
    else:
        with h5py.File(path, "w") as file:
            file[key] = images


def test_a_file_without_labels_is_taken(path):
    write_alone(path, "imgs", sprites())
    assert prepare(dsprites.source(), path).count == 288


def test_nothing_is_unpickled(root, tmp_path):
    write_dsprites_npz(tmp_path / "sprites.npz", dsprites_arrays(), Trap(tmp_path / "sprung"))
    prepare(dsprites.source(), tmp_path / "sprites.npz")
    assert not (tmp_path / "sprung").exists()


# ---- wrong files


def changed(**changes):
    return dsprites_arrays() | changes


def with_pixel(value, dtype=np.uint8):
    images = sprites().astype(dtype)
    images[213, 40, 7] = value
    return images


def transposed(classes):
    """As if the horizontal position were the fastest."""
    return classes.reshape(3, 2, 4, 3, 4, 6).swapaxes(3, 4).reshape(-1, 6)


WRONG = {
    "too few images": (changed(imgs=sprites()[:-1]), r"'imgs' must be \(288, 64, 64\), but is \(287, 64, 64\)"),
    "another size": (changed(imgs=sprites()[:, :, :32]), r"'imgs' must be \(288, 64, 64\), but is \(288, 64, 32\)"),
    "grey pixel": (changed(imgs=with_pixel(128)), "pixels must be 0 or 1, but image 213 has 128"),
    "already scaled": (changed(imgs=255 * sprites()), "pixels must be 0 or 1, but image 0 has 255"),
    "nan": (changed(imgs=with_pixel(np.nan, np.float32)), "pixels must be 0 or 1, but image 213 has nan"),
    "labels of another order": (
        changed(latents_classes=transposed(dsprites_arrays()["latents_classes"])),
        r"labels must be the full grid of sizes \(1, 3, 2, 4, 3, 4\) in order \(last factor fastest\), but",
    ),
    "labels of another set": (
        changed(latents_classes=np.zeros((288, 5))),
        r"'latents.classes' must be \(288, 6\) for factors of sizes \(1, 3, 2, 4, 3, 4\), but is \(288, 5\)",
    ),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_and_leaves_nothing(path, root, what):
    arrays, message = WRONG[what]
    write(path, arrays)
    with pytest.raises(DataError, match=f"{path.name}: {message}.*{COMMAND}"):
        prepare(dsprites.source(), path)
    assert not (root / "dsprites").exists()


def test_a_file_without_images_is_refused(path):
    write_alone(path, "images", sprites())
    with pytest.raises(DataError, match=f"{path.name}: must have an array 'imgs', but has images; {COMMAND}"):
        prepare(dsprites.source(), path)


def test_a_file_cut_off_is_refused(path):
    write(path, dsprites_arrays())
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match=f"{path.name}: is not an .* file, or is truncated.*{COMMAND}"):
        prepare(dsprites.source(), path)


def test_labels_too_large_for_any_memory_are_refused(root, tmp_path):
    path = tmp_path / "sprites.hdf5"
    with h5py.File(path, "w") as file:
        file["imgs"] = sprites()
        file.create_dataset("latents/classes", shape=(10**13, 6), dtype="i8", chunks=(1000, 6))
    with pytest.raises(DataError, match=rf"sprites.hdf5: 'latents/classes' must be \(288, 6\).*{COMMAND}"):
        prepare(dsprites.source(), path)


def test_images_that_were_never_written_are_not_taken_for_black_ones(root, tmp_path):
    path = tmp_path / "sprites.hdf5"
    with h5py.File(path, "w") as file:
        images = file.create_dataset("imgs", (288, 64, 64), "u1", chunks=(72, 64, 64), compression="gzip")
        images[:144] = sprites()[:144]
    with pytest.raises(DataError, match=f"'imgs' must be complete, but only 2 of its 4 chunks.*{COMMAND}"):
        prepare(dsprites.source(), path)
