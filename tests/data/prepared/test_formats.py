"""Arrays read in pieces are those that NumPy and h5py read whole; whatever is wrong with a file is said."""

import struct
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disentune.data.prepared import formats
from disentune.data.prepared.formats import (
    array_chunks,
    array_keys,
    array_shape,
    as_pixels,
    assert_images,
    assert_labels,
    channels_first,
    h5_chunks,
    h5_keys,
    h5_shape,
    is_npz,
    labels_span,
    npz_chunks,
    npz_keys,
    npz_shape,
    rows_of,
)
from disentune.errors import DataError
from sprite_files import Trap, labels, write_dsprites_npz

ARRAYS = {
    "images": np.random.default_rng(0).integers(256, size=(23, 5, 4, 3), dtype=np.uint8),
    "labels": np.random.default_rng(1).normal(size=(23, 2)),
    "big_endian": np.arange(7, dtype=">i4"),
    "flags": np.arange(12).reshape(3, 4) % 3 == 0,
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.fixture(params=["stored", "compressed"])
def npz(request, tmp_path):
    save = np.savez if request.param == "stored" else np.savez_compressed
    save(tmp_path / "file.npz", **ARRAYS)
    return tmp_path / "file.npz"


@pytest.fixture
def h5(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("images", data=ARRAYS["images"], chunks=(4, 2, 3, 1), compression="gzip")
        file.create_dataset("latents/labels", data=ARRAYS["labels"])
    return tmp_path / "file.h5"


def read_h5(path, rows=10):
    return list(h5_chunks(path, "images", rows))


def read_npz(path, rows=10):
    return list(npz_chunks(path, "images", rows))


# ---- npz


@pytest.mark.parametrize("rows", [1, 4, 23, 100])
@pytest.mark.parametrize("key", ["images", "labels", "big_endian", "flags"])
def test_npz_pieces_are_the_array_that_numpy_loads(npz, key, rows):
    pieces = list(npz_chunks(npz, key, rows))
    expected = np.load(npz)[key]
    assert [len(piece) for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
    assert npz_shape(npz, key) == expected.shape
    assert pieces[0].dtype == expected.dtype
    np.testing.assert_array_equal(np.concatenate(pieces), expected)


def test_an_array_without_rows_has_no_pieces(npz):
    assert list(npz_chunks(npz, "empty", 5)) == []


def test_leading_axes_count_as_one_when_a_row_is_what_the_last_axes_span(tmp_path):
    images = np.arange(2 * 3 * 5 * 4 * 4 * 3, dtype=np.int32).reshape(2, 3, 5, 4, 4, 3)
    np.savez(tmp_path / "file.npz", images=images)
    pieces = list(npz_chunks(tmp_path / "file.npz", "images", 7, axes=3))
    assert [piece.shape for piece in pieces] == [(7, 4, 4, 3)] * 4 + [(2, 4, 4, 3)]
    np.testing.assert_array_equal(np.concatenate(pieces), images.reshape(30, 4, 4, 3))


def test_keys_of_an_npz_are_its_arrays(npz):
    assert npz_keys(npz) == sorted(ARRAYS)


def test_reading_an_npz_takes_the_memory_of_a_piece(tmp_path):
    np.savez_compressed(tmp_path / "file.npz", images=np.zeros((40, 1 << 20), np.uint8))
    tracemalloc.start()
    total = sum(len(piece) for piece in npz_chunks(tmp_path / "file.npz", "images", 2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 40
    assert peak < 10 << 20  # of 40: two pieces of 2, and what is being decompressed


def test_an_npz_cut_off_anywhere_is_refused(npz):
    whole = npz.read_bytes()
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        npz.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"file.npz: is not an NPZ file, or is truncated or damaged"):
            read_npz(npz)


def test_an_npz_with_a_changed_byte_is_refused(npz):
    whole = bytearray(npz.read_bytes())
    whole[600] ^= 1
    npz.write_bytes(whole)
    with pytest.raises(DataError, match="truncated or damaged"):
        read_npz(npz)


def test_a_missing_array_is_reported_with_those_that_are_there(npz):
    with pytest.raises(DataError, match=r"file.npz: must have an array 'imgs', but has big_endian, .*, images, labels"):
        list(npz_chunks(npz, "imgs", 5))


def test_a_missing_file_is_reported(tmp_path):
    for read in (npz_keys, h5_keys, is_npz):
        with pytest.raises(DataError, match=r"gone: (does not exist|cannot be read)"):
            read(tmp_path / "gone")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.asfortranarray(np.ones((3, 4))), "must be in C order"),
        (np.array([{}, []], dtype=object), "must hold plain numbers, but holds object; objects are never unpickled"),
        (np.array(3.0), "must have rows, but is a single number"),
        (np.zeros(3, [("a", "u1"), ("b", "f4")]), "must hold plain numbers"),
        (np.array(["a", "b"]), "must hold plain numbers"),
        (np.ones(3, complex), "must hold plain numbers"),
    ],
)
def test_an_array_that_cannot_be_streamed_is_refused(tmp_path, value, message):
    np.savez(tmp_path / "file.npz", images=value)
    with pytest.raises(DataError, match=f"file.npz: 'images' {message}"):
        npz_shape(tmp_path / "file.npz", "images")


def test_nothing_is_unpickled(tmp_path):
    write_dsprites_npz(tmp_path / "file.npz", ARRAYS, Trap(tmp_path / "sprung"))
    assert "metadata" in npz_keys(tmp_path / "file.npz")
    read_npz(tmp_path / "file.npz")
    with pytest.raises(DataError, match="never unpickled"):
        list(npz_chunks(tmp_path / "file.npz", "metadata", 5))
    assert not (tmp_path / "sprung").exists()
    np.load(tmp_path / "file.npz", allow_pickle=True)["metadata"]
    assert (tmp_path / "sprung").exists()  # so the trap works


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as file, file.open("images.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (9, 9)})
        member.write(bytes(80))
    with pytest.raises(DataError, match=r"'images' must have 81 bytes for its shape \(9, 9\), but has 80"):
        read_npz(tmp_path / "file.npz")


def test_what_is_not_an_array_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as file:
        file.writestr("images.npy", b"hello, this is text")
    with pytest.raises(DataError, match="'images' is not a plain array"):
        npz_shape(tmp_path / "file.npz", "images")


def write_header(path, header):
    """A NPY 1.0 header as text, padded as NumPy pads it, and 16 bytes."""
    text = f"{header:<{117}}\n".encode()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(16))


PLAIN = "{{'descr': '|u1', 'fortran_order': False, 'shape': {}}}"


def test_headers_are_written_as_numpy_reads_them(tmp_path):
    write_header(tmp_path / "file.npz", PLAIN.format("(1, 1, 4, 4)"))
    assert npz_shape(tmp_path / "file.npz", "images") == np.load(tmp_path / "file.npz")["images"].shape == (1, 1, 4, 4)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '|u1', 'shape': ((((((", "is not a plain array"),
        ("\n  x\n y", "is not a plain array"),
        (PLAIN.format("-" * 9000 + "1"), "is not a plain array"),
        (PLAIN.format("{[]: 1}"), "is not a plain array"),
        ("{1: 2, 'shape': 3}", "is not a plain array"),
        (PLAIN.format("(True, True, 4, 4)"), r"must have whole numbers as its shape, but has \(True, True, 4, 4\)"),
        (PLAIN.format("(-4, -4)"), r"must have whole numbers as its shape, but has \(-4, -4\)"),
    ],
    ids=["open brackets", "indents", "too deep", "unhashable", "keys of two types", "bools", "negative"],
)
def test_a_header_that_means_no_array_is_refused(tmp_path, header, message):
    write_header(tmp_path / "file.npz", header)
    with pytest.raises(DataError, match=f"file.npz: 'images' {message}"):
        read_npz(tmp_path / "file.npz")


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_is_refused_however_it_is_packed(tmp_path, packed):
    path = tmp_path / "file.npz"
    write_header(path, PLAIN.format("(4, 4)"))
    with zipfile.ZipFile(path) as file:
        content = file.read("images.npy")
    with zipfile.ZipFile(path, "w", packed) as file:
        file.writestr("images.npy", content)
    assert len(read_npz(path)) == 1
    whole = bytearray(path.read_bytes())
    whole[60:80] = b"\xff" * 20  # the local header has 40 bytes
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"file.npz: is not an NPZ file, or is truncated or damaged"):
        read_npz(path)


def test_a_name_that_is_not_text_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as file:
        file.writestr("\u00e4.npy", b"")
    whole = (tmp_path / "file.npz").read_bytes()
    (tmp_path / "file.npz").write_bytes(whole.replace("\u00e4".encode(), b"\xff\xff"))
    with pytest.raises(DataError, match=r"file.npz: is not an NPZ file"):
        npz_keys(tmp_path / "file.npz")


# ---- hdf5


@pytest.mark.parametrize("rows", [1, 4, 6, 23, 100])
def test_h5_pieces_are_the_array_that_h5py_reads(h5, rows):
    pieces = read_h5(h5, rows)
    assert max(map(len, pieces)) <= rows
    np.testing.assert_array_equal(np.concatenate(pieces), ARRAYS["images"], strict=True)


def times_read(monkeypatch, path, rows):
    """How often each chunk of the file is decompressed."""
    asked = []
    read = h5py.Dataset.__getitem__

    def noted(self, where):
        asked.append(where if isinstance(where, tuple) else (where,))
        return read(self, where)

    with monkeypatch.context() as patch:
        patch.setattr(h5py.Dataset, "__getitem__", noted)
        read_h5(path, rows)
    with h5py.File(path) as file:
        chunks = list(file["images"].iter_chunks())
    touches = [[all(map(overlap, where, chunk)) for where in asked] for chunk in chunks]
    return {sum(touched) for touched in touches}


def overlap(one, other):
    return one.start < other.stop and other.start < one.stop


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 22, 100])
def test_no_chunk_of_an_h5_file_is_decompressed_twice(monkeypatch, h5, rows):
    assert times_read(monkeypatch, h5, rows) == {1}


def test_only_chunks_too_large_for_memory_are_decompressed_more_than_once(monkeypatch, h5):
    monkeypatch.setattr(formats, "LARGEST", 3 * 60)  # bytes of 3 rows, and its chunks have 4
    assert max(times_read(monkeypatch, h5, 1)) == 2
    assert times_read(monkeypatch, h5, 4) == {1}
    np.testing.assert_array_equal(np.concatenate(read_h5(h5, 2)), ARRAYS["images"])


def test_an_h5_file_without_chunks_is_read_as_asked(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["images"] = np.arange(12).reshape(6, 2)
    pieces = read_h5(tmp_path / "file.h5", 4)
    assert [piece.tolist() for piece in pieces] == [[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9], [10, 11]]]


def test_a_chunked_h5_array_of_one_axis_is_read(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("images", data=np.arange(7) % 2 == 0, chunks=(2,))
    np.testing.assert_array_equal(np.concatenate(read_h5(tmp_path / "file.h5", 3)), np.arange(7) % 2 == 0, strict=True)


def test_keys_of_an_h5_file_name_its_folders(h5):
    assert h5_keys(h5) == ["images", "latents/labels"]
    assert h5_shape(h5, "latents/labels") == (23, 2)


@pytest.mark.parametrize("key", ["imgs", "latents"])
def test_a_missing_h5_array_is_reported_with_those_that_are_there(h5, key):
    with pytest.raises(DataError, match=f"file.h5: must have an array '{key}', but has images, latents/labels"):
        h5_shape(h5, key)


def test_an_h5_file_cut_off_is_refused(h5):
    whole = h5.read_bytes()
    for length in (0, 100, len(whole) // 2, len(whole) - 1):
        h5.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"file.h5: is not an HDF5 file, or is truncated or damaged"):
            read_h5(h5)


def test_an_h5_file_with_a_damaged_chunk_is_refused(h5):
    with h5py.File(h5) as file:
        chunk = file["images"].id.get_chunk_info(5)
    whole = bytearray(h5.read_bytes())
    whole[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    h5.write_bytes(whole)
    with pytest.raises(DataError, match=r"file.h5: is not an HDF5 file"):
        read_h5(h5)


@pytest.mark.parametrize(("value", "message"), [(["a", "b"], "must hold plain numbers"), (3.5, "must have rows")])
def test_an_h5_array_that_is_not_a_table_of_numbers_is_refused(tmp_path, value, message):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["images"] = value
    with pytest.raises(DataError, match=f"file.h5: 'images' {message}"):
        read_h5(tmp_path / "file.h5")


@pytest.mark.parametrize("maxshape", [None, (None, 4), (None, None)], ids=str)  # each another index of chunks
def test_an_h5_array_with_a_chunk_that_was_never_written_is_refused(tmp_path, maxshape):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        images = file.create_dataset("images", (7, 4), "u1", chunks=(2, 3), maxshape=maxshape)
        images[:6] = 1
    assert h5_shape(tmp_path / "file.h5", "images") == (7, 4)
    with pytest.raises(DataError, match=r"file.h5: 'images' must be complete, but only 6 of its 8 chunks were written"):
        read_h5(tmp_path / "file.h5")
    with h5py.File(tmp_path / "file.h5", "a") as file:
        file["images"][6] = 0
    assert np.concatenate(read_h5(tmp_path / "file.h5")).sum() == 24


def test_an_h5_array_without_chunks_that_was_never_written_is_refused(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("images", (7, 4), "u1")
    with pytest.raises(DataError, match=r"file.h5: 'images' must be complete, but none of it was written"):
        read_h5(tmp_path / "file.h5")


@pytest.mark.parametrize("chunks", [None, (2, 3)])
def test_an_h5_array_without_rows_has_no_pieces(tmp_path, chunks):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("images", (0, 4), "u1", chunks=chunks, maxshape=chunks and (None, 4))
    assert read_h5(tmp_path / "file.h5") == []


def test_a_small_h5_array_in_its_own_header_is_read(tmp_path):
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.COMPACT)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        space = h5py.h5s.create_simple((3, 2))
        compact = h5py.h5d.create(file.id, b"images", h5py.h5t.NATIVE_UINT8, space, dcpl=layout)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.full((3, 2), 7, np.uint8))
    assert np.concatenate(read_h5(tmp_path / "file.h5")).tolist() == [[7, 7]] * 3


def as_virtual(file, other):
    layout = h5py.VirtualLayout((6, 2), "u1")
    layout[:] = h5py.VirtualSource(other, "a/images", (6, 2))
    file.create_virtual_dataset("a/images", layout)


def as_external(file, other):
    file.create_dataset("a/images", (6, 2), "u1", external=[(other, 0, 12)])


def as_link(file, other):
    file["a/images"] = h5py.ExternalLink(other, "/a/images")


def as_linked_folder(file, other):
    file["a"] = h5py.ExternalLink(other, "/a")


def as_link_to_a_link(file, other):
    file["far"] = h5py.ExternalLink(other, "/a")
    file["a"] = h5py.SoftLink("/far")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("elsewhere", [as_virtual, as_external, as_link, as_linked_folder, as_link_to_a_link])
@pytest.mark.parametrize("key", ["a/images", "/a//images", "./a/images"])
def test_an_h5_array_that_is_in_another_file_is_refused(tmp_path, elsewhere, there, key):
    if there:
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["a/images"] = np.ones((6, 2), np.uint8)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        elsewhere(file, str(tmp_path / "other.h5"))
    for read in (h5_shape, lambda path, key: list(h5_chunks(path, key, 2))):
        with pytest.raises(
            DataError, match=rf"file.h5: '{key}' must be in the file itself, but (is assembled from|.a.* is a)"
        ):
            read(tmp_path / "file.h5", key)


@pytest.mark.parametrize("key", ["latents/labels", "/latents//labels", "./latents/labels", "again"])
def test_an_h5_array_may_have_several_names(h5, key):
    with h5py.File(h5, "a") as file:
        file["again"] = file["latents/labels"]
    assert h5_shape(h5, key) == (23, 2)


# ---- either


def test_formats_are_detected_by_content(npz, h5):
    for path, key in ((npz, "labels"), (h5, "latents/labels")):
        renamed = path.rename(path.with_name(f"{path.stem}_{path.suffix[1:]}.dat"))
        assert is_npz(renamed) == (path is npz)
        assert key in array_keys(renamed)
        assert array_shape(renamed, key) == (23, 2)
        np.testing.assert_array_equal(np.concatenate(list(array_chunks(renamed, key, 9))), ARRAYS["labels"])


def test_a_page_instead_of_a_file_is_refused_with_its_first_words(tmp_path):
    (tmp_path / "file.npz").write_text("<!DOCTYPE html><p>moved")
    with pytest.raises(
        DataError, match="must be an NPZ or HDF5 file, but is neither: it begins with b'<!DOCTYPE html>"
    ):
        is_npz(tmp_path / "file.npz")


def test_the_shape_of_images_is_checked_before_they_are_read(npz):
    assert_images(npz, "images", [(1, 2), (23, 5, 4, 3)])
    with pytest.raises(DataError, match=r"'images' must be \(1, 2\) or \(23, 5\), but is \(23, 5, 4, 3\)"):
        assert_images(npz, "images", [(1, 2), (23, 5)])


def test_pieces_have_about_sixteen_megabytes():
    assert rows_of((737280, 64, 64)) == 16_000_000 // 4096
    assert rows_of((9,)) == 16_000_000
    assert rows_of((9, 10**9)) == 1


# ---- images and labels


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int64])
def test_whole_numbers_are_pixels_as_they_are(dtype):
    pixels = as_pixels(np.arange(256, dtype=dtype).reshape(4, 8, 8), "file")
    np.testing.assert_array_equal(pixels, np.arange(256, dtype=np.uint8).reshape(4, 8, 8), strict=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_fractions_become_the_nearest_of_256_levels(dtype):
    fractions = np.linspace(0, 1, 1021).astype(dtype).reshape(1021, 1, 1)
    expected = [round(255 * float(fraction)) for fraction in fractions.ravel()]
    pixels = as_pixels(fractions, "file")
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels.ravel(), expected)


def test_flags_become_black_and_white():
    pixels = as_pixels(np.array([[[True, False]]]), "file")
    np.testing.assert_array_equal(pixels, np.array([[[255, 0]]], np.uint8), strict=True)


@pytest.mark.parametrize(
    ("dtype", "wrong", "must"),
    [
        (float, np.nan, "numbers from 0 to 1, but image 105 has nan"),
        (float, np.inf, "numbers from 0 to 1, but image 105 has inf"),
        (np.float32, 1.5, "numbers from 0 to 1, but image 105 has 1.5"),
        (float, -0.25, "numbers from 0 to 1, but image 105 has -0.25"),
        (int, 256, "whole numbers from 0 to 255, but image 105 has 256"),
        (np.int8, -1, "whole numbers from 0 to 255, but image 105 has -1"),
    ],
)
def test_a_wrong_pixel_is_reported_with_its_image(dtype, wrong, must):
    images = np.zeros((9, 4, 4), dtype)
    images[5, 2, 1] = wrong
    with pytest.raises(DataError, match=f"^some/file: pixels must be {must}$"):
        as_pixels(images, "some/file", start=100)


def test_pixels_that_are_not_numbers_are_refused():
    with pytest.raises(DataError, match=r"^file: images must be numbers, but are complex128$"):
        as_pixels(np.zeros((1, 2, 2), complex), "file")


def test_channels_come_first():
    images = np.arange(2 * 4 * 5 * 3).reshape(2, 4, 5, 3)
    moved = channels_first(images)
    assert moved.shape == (2, 3, 4, 5)
    assert moved.flags.c_contiguous
    assert all(moved[n, c, y, x] == images[n, y, x, c] for n, y, x, c in np.ndindex(images.shape))
    np.testing.assert_array_equal(channels_first(images[..., 0])[:, 0], images[..., 0])


sizes_of_grids = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(sizes=sizes_of_grids, values=st.data())
def test_labels_of_any_growing_values_span_the_grid(sizes, values):
    growing = [
        np.sort(values.draw(st.lists(st.floats(-1e9, 1e9), min_size=size, max_size=size, unique=True)))
        for size in sizes
    ]
    grid = labels(dict(enumerate(sizes)))
    labels_span(np.stack([growing[k][grid[:, k]] for k in range(len(sizes))], axis=1), sizes, "file")


@given(sizes=sizes_of_grids.filter(lambda sizes: np.prod(sizes) > 1), change=st.data())
def test_labels_in_any_other_order_are_refused(sizes, change):
    grid = labels(dict(enumerate(sizes)))
    order = change.draw(st.permutations(range(len(grid))).filter(lambda order: order != list(range(len(grid)))))
    with pytest.raises(DataError, match=r"file: labels must be the full grid of sizes .* in order"):
        labels_span(grid[order], sizes, "file")


def test_a_label_out_of_place_is_reported_with_its_row():
    grid = labels({"a": 2, "b": 3, "c": 4})
    grid[17, 1] = 0
    with pytest.raises(DataError, match=r"sizes \(2, 3, 4\) in order \(last factor fastest\), but row 17 has 0 in col"):
        labels_span(grid, [2, 3, 4], "file")


@pytest.mark.parametrize("dtype", [np.uint8, float])
@pytest.mark.parametrize("values", [[[3], [2], [1]], [[1], [1], [2]]])
def test_labels_that_fall_or_stay_are_refused(values, dtype):
    with pytest.raises(DataError, match="column 0 does not grow"):
        labels_span(np.array(values, dtype), [3], "file")


@pytest.mark.parametrize("sizes", [[1], [3]])
def test_labels_that_are_not_numbers_are_refused(sizes):
    with pytest.raises(DataError, match="labels must be the full grid"):
        labels_span(np.full((sizes[0], 1), np.nan), sizes, "file")


@pytest.fixture(params=["npz", "h5"])
def labelled(request, tmp_path):
    """Writes labels into a file of either format."""

    def write(values):
        path = tmp_path / f"labels.{request.param}"
        if request.param == "npz":
            np.savez(path, labels=values)
        else:
            with h5py.File(path, "w") as file:
                file["labels"] = values
        return path

    return write


def test_labels_in_a_file_span_the_grid_or_are_refused(labelled):
    grid = labels({"a": 3, "b": 4})
    assert_labels(labelled(grid), "labels", (3, 4))
    with pytest.raises(DataError, match=r"labels\..*: labels must be the full grid of sizes \(3, 4\) in order"):
        assert_labels(labelled(grid[::-1]), "labels", (3, 4))


@pytest.mark.parametrize("shape", [(11, 2), (12, 3), (12,), (13, 2), (0, 2), (0,), (12, 2, 1)], ids=str)
def test_labels_of_another_shape_are_refused(labelled, shape):
    message = r"'labels' must be \(12, 2\) for factors of sizes \(3, 4\), but is \("
    with pytest.raises(DataError, match=message):
        assert_labels(labelled(np.zeros(shape)), "labels", (3, 4))


def test_labels_too_large_for_any_memory_are_refused_unread(tmp_path):
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("labels", shape=(10**13, 2), dtype="i8", chunks=(1000, 2))
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as file:
        with file.open("labels.npy", "w") as member:
            header = {"descr": "<i8", "fortran_order": False, "shape": (10**13, 2)}
            np.lib.format.write_array_header_1_0(member, header)
        file.getinfo("labels.npy").file_size += 16 * 10**13  # the directory, written last, lies as well
    for name in ("file.h5", "file.npz"):
        with pytest.raises(DataError, match=rf"{name}: 'labels' must be \(12, 2\) .*, but is \(10000000000000, 2\)"):
            assert_labels(tmp_path / name, "labels", (3, 4))
