"""Fashion-MNIST from files of its format: packed or not, cut, or of another type."""

import gzip

import numpy as np
import pytest
from PIL import Image

from disentune.data import fashion_mnist, load
from disentune.data.fashion_mnist import DATASET, Params
from disentune.errors import DataError
from photo_files import CLOTHES, clothes, idx, write_clothes

NAME = "train-images-idx3-ubyte"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "COUNTS", CLOTHES)
    return tmp_path


@pytest.mark.parametrize("packed", [True, False])
def test_images_are_those_of_the_files_enlarged_one_by_one(root, packed):
    write_clothes(root, packed)
    found = load("fashion_mnist").images(np.arange(60))
    enlarged = [Image.fromarray(one).resize((32, 32), Image.Resampling.BILINEAR) for one in clothes()["train"]]
    np.testing.assert_array_equal(found[:, 0], np.stack([np.asarray(one) for one in enlarged]))


def test_the_original_size_keeps_every_pixel_and_splits_follow_each_other(root):
    write_clothes(root)
    both = load("fashion_mnist", split="both", image_size=28)
    np.testing.assert_array_equal(both.images(np.arange(80))[:, 0], np.concatenate([*clothes().values()]))
    test = load("fashion_mnist", split="test", image_size=28)
    np.testing.assert_array_equal(test.images(np.arange(20)), both.images(np.arange(60, 80)))


def test_it_has_no_factors_and_as_many_images_as_published(monkeypatch):
    assert [DATASET.population(Params(split=split)) for split in ("train", "test", "both")] == [60_000, 10_000, 70_000]
    assert DATASET.lacks(Params()) == "factors"


def cut(content):
    return content[:-100]


WRONG = {
    "cut": (cut, "must have 60 images, but is cut off in image 59"),
    "longer": (lambda content: content + b"\0", "must have 60 images, but has more"),
    "labels": (lambda content: idx(np.zeros(60, np.uint8)),
               r"must be an IDX file of type 0x08 \(bytes\), 60 x 28 x 28, but has type 0x08 \(bytes\), 60"),
    "floats": (lambda content: idx(np.zeros((60, 28, 28), np.float32)), r"but has type 0x0d, 60 x 28 x 28"),
    "another size": (lambda content: idx(np.zeros((60, 32, 32), np.uint8)), "but has .* 60 x 32 x 32"),
    "another file": (lambda content: b"<!DOCTYPE html>", "begins with b'<!DOCTYP'"),
    "empty": (lambda content: b"", "but is empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("packed", [True, False])
def test_a_file_that_is_cut_or_of_another_type_is_refused_with_what_it_has(root, case, packed):
    write_clothes(root, packed)
    change, text = WRONG[case]
    path = root / (f"{NAME}.gz" if packed else NAME)
    content = change(idx(clothes()["train"]))
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=text) as raised:
        load("fashion_mnist")
    assert str(path) in str(raised.value)
    assert "disentune data prepare fashion_mnist" in str(raised.value)


def test_a_packed_file_that_is_cut_is_refused(root):
    write_clothes(root)
    path = root / f"{NAME}.gz"
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(DataError, match="truncated or damaged"):
        load("fashion_mnist")
