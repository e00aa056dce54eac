"""The MPI3D data sets from small files of the public format."""

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data import mpi3d, mpi3d_complex, mpi3d_real, mpi3d_realistic, mpi3d_toy
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError
from disentune.plugin import Statistics
from sprite_files import MPI3D, coloured

MODULES = {module.DATASET.name: module for module in (mpi3d_toy, mpi3d_realistic, mpi3d_real)}
RENDERED = ["mpi3d_toy", "mpi3d_realistic"]
MD5S = {
    "mpi3d_toy": "55889cb7c7dfc655d6e0277beee88868",
    "mpi3d_realistic": "59a6225b88b635365f70c91b3e52f70f",
    "mpi3d_real": "0f33f609918fb5c97996692f91129802",
}
"""Of the files of 2019, by disent."""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    monkeypatch.setattr(mpi3d, "FACTORS", MPI3D)
    monkeypatch.setattr(mpi3d, "rows_of", lambda shape: 31)
    for module in MODULES.values():
        monkeypatch.setattr(module, "PUBLISHED", None)
    return tmp_path


def opened(name, **params):
    dataset = MODULES[name].DATASET
    return dataset.open(dataset.params(**params))


def prepared(name, **params):
    dataset = MODULES[name].DATASET
    return prepare(*dataset.sources(dataset.params(**params)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("axes", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_every_image_is_the_file_s_with_channels_first(root, name, axes, save):
    images = coloured(MPI3D[6])
    save(root / f"{name}.npz", images=images.reshape(*MPI3D[6].values(), 64, 64, 3) if axes else images)
    drawn = opened(name).images(np.arange(288))
    assert drawn.shape == (288, 3, 64, 64)
    for channel in range(3):
        np.testing.assert_array_equal(drawn[:, channel], images[..., channel])


@pytest.mark.parametrize("name", RENDERED)
def test_the_files_of_the_challenge_have_fewer_objects_and_an_array_of_their_own(root, name):
    part = name.removeprefix("mpi3d_")
    np.savez(root / f"sim_{part}_64x_ordered_without_heldout_factors.npz", images=coloured(MPI3D[4]))
    np.savez(root / f"{name}.npz", images=coloured(MPI3D[6])[::-1])
    few, many = opened(name, objects=4), opened(name)
    assert (few.factor_sizes, many.factor_sizes) == ((2, 2, 2, 2, 2, 3, 2), (3, 2, 2, 2, 2, 3, 2))
    np.testing.assert_array_equal(few.images(np.arange(192))[:, 0], coloured(MPI3D[4])[..., 0])
    np.testing.assert_array_equal(many.images(np.array([0]))[0, 0], coloured(MPI3D[6])[-1, ..., 0])


@pytest.mark.parametrize("name", MODULES)
def test_factors_are_those_of_the_paper(root, name):
    np.savez(root / f"{name}.npz", images=coloured(MPI3D[6]))
    data = opened(name)
    assert data.factor_names == (
        "object_color", "object_shape", "object_size", "camera_height", "background_color", "first_dof", "second_dof",
    )  # fmt: skip
    assert data.categorical == ("object_shape",)


def test_real_is_found_under_the_name_of_its_bucket(root):
    np.savez(root / "real.npz", images=coloured(MPI3D[6]))
    assert len(opened("mpi3d_real")) == 288


@pytest.mark.parametrize("name", MODULES)
def test_the_public_files_are_those_of_the_paper(monkeypatch, name):
    monkeypatch.undo()
    module = MODULES[name]
    params = module.DATASET.params()
    (source,) = module.DATASET.sources(params)
    assert module.DATASET.factor_sizes(params) == (6, 6, 2, 3, 3, 40, 40)
    assert (source.count, source.shape, source.key) == (1_036_800, (3, 64, 64), name)
    assert source.published == module.DATASET.published(params) == module.PUBLISHED
    (file,) = source.files
    assert file.md5 == MD5S[name]
    assert file.urls[0] == f"https://huggingface.co/datasets/waleedgondal/mpi3d/resolve/main/{name}.npz"
    assert file.republished == file.urls[:1]


def test_the_bucket_with_the_damaged_photographs_is_tried_last_and_held_to_the_md5(monkeypatch):
    monkeypatch.undo()
    (file,) = mpi3d_real.DATASET.sources(mpi3d_real.DATASET.params())[0].files
    damaged = "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/real.npz"
    assert file.urls[-1] == damaged
    assert damaged not in file.republished


@pytest.mark.parametrize("name", RENDERED)
def test_the_files_of_the_challenge_are_those_of_disentanglement_lib(monkeypatch, name):
    monkeypatch.undo()
    dataset = MODULES[name].DATASET
    params = dataset.params(objects=4)
    (source,) = dataset.sources(params)
    assert dataset.factor_sizes(params) == (4, 4, 2, 3, 3, 40, 40)
    assert (source.count, source.key, source.published) == (460_800, f"{name}_4_objects", None)
    assert dataset.published(params) is None
    assert source.command == f"disentune data prepare {name} --set objects=4"


def test_other_numbers_of_objects_are_refused():
    with pytest.raises(ValidationError, match="Input should be 6 or 4"):
        mpi3d_toy.DATASET.params(objects=5)
    with pytest.raises(ValidationError, match="objects"):
        mpi3d_real.DATASET.params(objects=4)


@pytest.mark.parametrize("name", MODULES)
def test_a_set_that_is_not_the_published_one_is_refused(root, monkeypatch, name):
    """So were the photographs of 2024, which a first upload had damaged."""
    monkeypatch.setattr(MODULES[name], "PUBLISHED", Statistics((0.2,) * 3, (0.1,) * 3))
    np.savez(root / f"{name}.npz", images=coloured(MPI3D[6]))
    with pytest.raises(DataError, match=f"{name}.npz: is not the published data set"):
        prepared(name)


def with_nan():
    images = coloured(MPI3D[6]) / np.float32(255)
    images[250, 3, 5, 2] = np.nan
    return images


SHAPES = r"must be \(288, 64, 64, 3\) or \(3, 2, 2, 2, 2, 3, 2, 64, 64, 3\)"
WRONG = {
    "too few images": (coloured(MPI3D[6])[:-1], rf"'images' {SHAPES}, but is \(287, 64, 64, 3\)"),
    "the challenge's": (coloured(MPI3D[4]), rf"'images' {SHAPES}, but is \(192, 64, 64, 3\)"),
    "factors in another order": (
        coloured(MPI3D[6]).reshape(2, 3, 2, 2, 2, 3, 2, 64, 64, 3),
        rf"'images' {SHAPES}, but is \(2, 3, ",
    ),
    "nan": (with_nan(), "pixels must be numbers from 0 to 1, but image 250 has nan"),
    "objects": (np.array([None, {}]), "'images' must hold plain numbers"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_and_leaves_nothing(root, what):
    images, message = WRONG[what]
    np.savez(root / "mpi3d_toy.npz", images=images)
    command = "get the right file, then run: disentune data prepare mpi3d_toy --from FILE$"
    with pytest.raises(DataError, match=f"mpi3d_toy.npz: {message}.*{command}"):
        prepared("mpi3d_toy")
    assert not (root / "mpi3d_toy").exists()


def test_the_command_for_the_challenge_s_file_says_so(root):
    np.savez(root / "sim_toy_64x_ordered_without_heldout_factors.npz", images=coloured(MPI3D[6]))
    with pytest.raises(DataError, match=r"disentune data prepare mpi3d_toy --set objects=4 --from FILE$"):
        prepared("mpi3d_toy", objects=4)


def test_a_file_without_images_is_refused(root):
    np.savez(root / "mpi3d_toy.npz", imgs=coloured(MPI3D[6]))
    with pytest.raises(DataError, match="must have an array 'images', but has imgs"):
        prepared("mpi3d_toy")


def test_a_file_cut_off_is_refused(root):
    np.savez(root / "mpi3d_real.npz", images=coloured(MPI3D[6]))
    whole = (root / "mpi3d_real.npz").read_bytes()
    (root / "mpi3d_real.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"mpi3d_real.npz: is not an NPZ file, or is truncated"):
        prepared("mpi3d_real")


# ---- complex shapes


def complex_prepared():
    return prepare(*mpi3d_complex.DATASET.sources(mpi3d_complex.DATASET.params()))


def test_complex_images_are_the_file_s_with_channels_first(root):
    images = coloured(MPI3D[4])
    np.savez(root / "real3d_complicated_shapes_ordered.npz", images=images)
    data = mpi3d_complex.DATASET.open(mpi3d_complex.DATASET.params())
    np.testing.assert_array_equal(data.images(np.arange(192)), images.transpose(0, 3, 1, 2))
    assert data.factor_sizes == (2, 2, 2, 2, 2, 3, 2)
    assert data.categorical == ("object_shape",)


def test_the_complex_set_has_four_colours_and_shapes(monkeypatch):
    """Six of each, as in the other sets, would label five in eight colours and half of the shapes wrongly."""
    monkeypatch.undo()
    params = mpi3d_complex.DATASET.params()
    (source,) = mpi3d_complex.DATASET.sources(params)
    assert mpi3d_complex.DATASET.factor_sizes(params) == (4, 4, 2, 3, 3, 40, 40)
    assert (source.count, source.key, source.published) == (460_800, "mpi3d_complex", None)
    assert source.command == "disentune data prepare mpi3d_complex"
    assert source.files[0].name == "real3d_complicated_shapes_ordered.npz"
    assert all("1Tp8eTdHxgUMtsZv5uAoYAbJR1BOa_OQm" in url for url in source.files[0].urls)


def test_the_file_of_another_mpi3d_set_is_refused_as_the_complex_one(root):
    np.savez(root / "real3d_complicated_shapes_ordered.npz", images=coloured(MPI3D[6]))
    with pytest.raises(
        DataError, match=r"must be \(192, 64, 64, 3\) .*disentune data prepare mpi3d_complex --from FILE"
    ):
        complex_prepared()
