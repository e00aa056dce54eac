"""CelebA's aligned images, from the folder or the ZIP file."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from disentune.data import celeba, load
from disentune.data.celeba import DATASET, Params
from disentune.errors import DataError
from photo_files import encoded, faces, write_faces


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "root"))
    monkeypatch.setattr(celeba, "COUNT", 6)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def unpack(root):
    with zipfile.ZipFile(root / "img_align_celeba.zip") as archive:
        archive.extractall(root)
    (root / "img_align_celeba.zip").unlink()


def decoded(image, box, side):
    """As Pillow makes a JPEG of an image small; the box is left, top, right, bottom."""
    with Image.open(io.BytesIO(encoded(image, "JPEG"))) as opened:
        shrunk = opened.convert("RGB").crop(box).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(shrunk).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("params", "box", "side"),
    [({}, (0, 0, 178, 218), 64), ({"crop": 148}, (15, 35, 163, 183), 64), ({"crop": 140, "image_size": 32},
     (19, 39, 159, 179), 32)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_images_are_cropped_in_the_middle_and_then_made_small(root, params, box, side, kind):
    write_faces(root, faces(6))
    if kind == "folder":
        unpack(root)
    found = load("celeba", **params).images(np.arange(6))
    np.testing.assert_array_equal(found, np.stack([decoded(image, box, side) for image in faces(6)]))


def test_each_crop_is_a_data_set_of_its_own():
    keys = {DATASET.sources(params)[0].key for params in (Params(), Params(crop=148), Params(resize="lanczos"))}
    assert len(keys) == 3
    assert DATASET.population(Params()) == 202_599
    assert DATASET.lacks(Params()) == "factors"


def test_a_missing_archive_is_named_with_its_places(root):
    with pytest.raises(
        DataError, match=rf"none of {root}/img_align_celeba.zip, .*, {root}/img_align_celeba, .* exists"
    ):
        load("celeba")


def test_an_image_that_is_missing_or_of_another_size_is_refused_before_anything_is_kept(root):
    write_faces(root, faces(5))
    with pytest.raises(DataError, match=r"must have 6 images .*, but has 5"):
        load("celeba")
    wrong = [*faces(5), faces(1)[0][:200]]
    write_faces(root, wrong)
    with pytest.raises(DataError, match=r"218 high and 178 wide, as .*000001.jpg is, but .*000006.jpg is 200 high"):
        load("celeba")
    assert not [*root.glob("celeba*")]
