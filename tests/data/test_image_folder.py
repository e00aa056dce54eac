"""A user's own images without factors, in a folder or a ZIP file."""

import pickle
import zipfile

import numpy as np
import pytest
from pydantic import ValidationError

from disentune.data import load
from disentune.data.image_folder import DATASET, Params
from disentune.data.prepared import photographs
from disentune.errors import DataError
from photo_files import encoded, mosaics

FIELDS = {"path": "own", "count": 4, "image_shape": [3, 16, 16]}
IMAGES = mosaics(4, 16, 3)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root" / "own").mkdir(parents=True)
    return tmp_path / "root"


def put(folder, images=IMAGES, kind="PNG", names=None):
    for number, image in enumerate(images):
        name = names[number] if names else f"{number}.{kind.lower()}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(image, kind))


def all_images(**changes):
    data = load("image_folder", **FIELDS | changes)
    return data.images(np.arange(len(data))).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_images_come_in_the_order_of_their_names_from_folders_below_too(root, kind):
    end = kind.lower()
    put(root / "own", kind=kind, names=[f"b/1.{end}", f"a/2.{end}", f"a/10.{end}", f"c.{end.upper()}"])
    np.testing.assert_array_equal(all_images(), IMAGES[[2, 1, 0, 3]])


def test_hidden_files_and_texts_are_no_images(root):
    put(root / "own")
    for name in (".DS_Store", "._0.png", "notes.txt", "__MACOSX/0.png"):
        (root / "own" / name).parent.mkdir(exist_ok=True)
        (root / "own" / name).write_bytes(b"nothing to see")
    np.testing.assert_array_equal(all_images(), IMAGES)


def test_a_zip_file_holds_the_same(root):
    with zipfile.ZipFile(root / "own.zip", "w") as archive:
        archive.mkdir("pictures")
        for number in (3, 1, 0, 2):
            archive.writestr(f"pictures/{number}.png", encoded(IMAGES[number], "PNG"))
    np.testing.assert_array_equal(all_images(path="own.zip"), IMAGES)


def test_one_channel_makes_colours_grey_and_three_make_grey_coloured(root):
    put(root / "own", images=IMAGES[..., 0])
    grey = all_images(image_shape=[1, 16, 16])
    np.testing.assert_array_equal(grey[..., 0], IMAGES[..., 0])
    np.testing.assert_array_equal(all_images(), grey.repeat(3, axis=-1))


def test_images_of_one_other_size_are_resized_when_asked_for(root):
    put(root / "own")
    assert all_images(image_shape=[3, 8, 12], resize="bilinear").shape == (4, 8, 12, 3)
    with pytest.raises(DataError, match=r"images must be 8 high and 12 wide, but 0.png is 16 high and 16 wide"):
        all_images(image_shape=[3, 8, 12])


@pytest.mark.parametrize("resize", ["none", "bilinear"])
def test_images_of_different_sizes_are_refused_by_name(root, resize):
    put(root / "own", images=[*IMAGES[:3], IMAGES[3][:9]])
    with pytest.raises(
        DataError, match=r"16 high and 16 wide, as 0.png is, but 3.png is 9 high and 16 wide.*fix the fil"
    ):
        all_images(resize=resize)
    assert not [*root.glob("image_folder*")]


def test_another_number_of_images_is_told(root):
    put(root / "own")
    with pytest.raises(DataError, match=r"own: must have 5 images \(.jpg, .jpeg, .png, .bmp\), but has 4"):
        all_images(count=5)


DAMAGE = {
    "cut": lambda content: content[:-30],
    "another kind": lambda content: encoded(IMAGES[0], "BMP"),
    "a text": lambda content: b"not an image",
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_image_is_named(root, case):
    put(root / "own")
    path = root / "own" / "2.png"
    path.write_bytes(DAMAGE[case](path.read_bytes()))
    with pytest.raises(DataError, match=r"own: 2.png cannot be read as an image"):
        all_images()


def test_a_file_that_is_too_large_is_not_read(root, monkeypatch):
    put(root / "own")
    monkeypatch.setattr(photographs, "LARGEST", 10)
    with pytest.raises(DataError, match=r"0.png must have at most 10 bytes"):
        all_images()


def test_what_is_neither_a_folder_nor_a_zip_file_is_refused(root):
    (root / "own.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="must be a folder or a whole ZIP file of images"):
        all_images(path="own.zip")


def test_a_missing_folder_is_named_with_its_places(root, tmp_path):
    with pytest.raises(DataError, match=rf"none of {root}/gone, {tmp_path}/gone exists.*file or folder"):
        all_images(path="gone")


def test_a_folder_that_changed_is_noticed(root):
    put(root / "own")
    all_images()
    (root / "own" / "3.png").write_bytes(encoded(IMAGES[0], "PNG"))
    with pytest.raises(DataError, match=r"own has changed since it was prepared.*--again"):
        all_images()


def test_a_folder_that_was_only_touched_is_still_the_same(root):
    put(root / "own")
    all_images()
    (root / "own" / "3.png").touch()
    np.testing.assert_array_equal(all_images(), IMAGES)


def test_contents_may_be_pinned_and_a_pickle_holds_to_them(root):
    put(root / "own")
    found = load("image_folder", **FIELDS)._prepared.about.sha256
    pinned = load("image_folder", **FIELDS, contents=found[:12])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pinned)).images([0]), pinned.images([0]))
    with pytest.raises(DataError, match=f"own: its images must have the sha256 {'0' * 12}, but have {found}"):
        load("image_folder", **FIELDS, contents="0" * 12)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"image_shape": [2, 16, 16]}, "must have 1 channel"),
        ({"image_shape": [16, 16, 3]}, "did you mean"),
        ({"path": "../own"}, "must be absolute, or relative to"),
        ({"count": 0}, "greater than or equal to 1"),
        ({"contents": "abc"}, "12 to 64 of the digits"),
    ],
)
def test_params_that_cannot_be_are_refused(changes, text):
    with pytest.raises(ValidationError, match=text):
        Params(**FIELDS | changes)


def test_the_command_makes_the_same_array(root):
    params = Params(**FIELDS, resize="lanczos")
    (source,) = DATASET.sources(params)
    assert source.command == (
        "disentune data prepare image_folder --set path=own --set count=4 --set 'image_shape=[3,16,16]' "
        "--set resize=lanczos"
    )
