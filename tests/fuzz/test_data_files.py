"""Files that data sets are made from, damaged in every way: read, or a DataError; nothing else, and nothing is run."""

import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest
from PIL import Image

import photo_files
from disentune.data import cars3d, grid_file, scream_dsprites, smallnorb
from disentune.data.prepared import formats
from disentune.errors import DataError
from fuzz.containers import damaged_npz, packed, tarred
from fuzz.mutations import mutated_bytes
from fuzz.trying import inputs, wrongs

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
LABELS = np.ascontiguousarray(np.indices((4, 6)).reshape(2, -1).T)
OWN = {"factor_names": ["a", "b"], "factor_sizes": [4, 6], "image_shape": [3, 8, 8]}


def only_data_errors(read: Callable[[Path], object], path: Path) -> Callable[[bytes], str]:
    """Reads contents from a file; every refusal names it."""

    def verdict(content: bytes) -> str:
        path.write_bytes(content)
        try:
            read(path)
        except DataError as error:
            return "" if str(path) in str(error) else f"names no file: {error}"
        return ""

    return verdict


# ---- arrays


def read_whole(path: Path) -> None:
    """Every array by itself, and the images as a user's own file."""
    for key in formats.array_keys(path)[:5]:
        formats.array_shape(path, key)
        for _ in formats.array_chunks(path, key, 5):
            pass
    for _ in grid_file._images(grid_file.Params(path=str(path), **OWN), [path]):
        pass
    formats.assert_labels(path, "labels", (4, 6))


def hdf5(libver: str = "earliest", **options: object) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w", libver=libver) as archive:
        archive.create_dataset("images", data=IMAGES, **options)
        archive.create_dataset("labels", data=LABELS)
        archive["images"].attrs["made"] = "by a test"
    return file.getvalue()


HDF5 = {
    "contiguous": hdf5(),
    "chunked": hdf5(chunks=(5, 8, 8, 3), compression="gzip"),
    "newest": hdf5("latest", chunks=(5, 8, 8, 3), compression="lzf", shuffle=True, fletcher32=True),
}


def test_what_is_damaged_below_is_sound_before(tmp_path: Path) -> None:
    for number, content in enumerate([*HDF5.values(), packed_arrays()]):
        (tmp_path / str(number)).write_bytes(content)
        read_whole(tmp_path / str(number))


def packed_arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, images=IMAGES, labels=LABELS)
    return file.getvalue()


def test_a_damaged_npz_is_read_or_refused(tmp_path: Path) -> None:
    tried = inputs("npz", 300, lambda rng: damaged_npz({"images": IMAGES, "labels": LABELS}, rng))
    found = wrongs(tried, only_data_errors(read_whole, tmp_path / "x"))
    assert not found, found


@pytest.mark.parametrize("kind", HDF5)
def test_a_damaged_hdf5_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    tried = inputs(f"hdf5 {kind}", 150, lambda rng: mutated_bytes(HDF5[kind], rng))
    found = wrongs(tried, only_data_errors(read_whole, tmp_path / "x"))
    assert not found, found


def test_an_hdf5_whose_size_is_above_its_largest_is_refused(tmp_path: Path) -> None:
    """Once a KeyError."""
    sizes = np.array([*IMAGES.shape, *IMAGES.shape], "<i8").tobytes()
    assert HDF5["contiguous"].count(sizes) == 1
    (tmp_path / "x").write_bytes(HDF5["contiguous"].replace(sizes, np.array([99], "<i8").tobytes() + sizes[8:]))
    with pytest.raises(DataError, match="is not an HDF5 file"):
        read_whole(tmp_path / "x")


# ---- public files


def car(seed: int) -> bytes:
    return photo_files.mat(im=photo_files.mosaics(1, 128, 3, seed).reshape(128, 128, 3, 1, 1))


CARS = {f"data/cars/car_{number}_mesh.mat": car(number) for number in range(2)}


def damaged_archive(rng: Random) -> bytes:
    """The archive, its packing, a file in it, or what it says of its files."""
    kind = rng.random()
    if kind < 0.3:
        archive = mutated_bytes(tarred(CARS), rng)
        return packed(archive) if rng.random() < 0.5 else archive
    if kind < 0.5:
        return mutated_bytes(packed(tarred(CARS)), rng)
    if kind < 0.85:
        name = rng.choice(list(CARS))
        return tarred(CARS | {name: mutated_bytes(CARS[name], rng)})
    about = rng.choice([{"type": b"2", "linkname": "/etc/passwd"}, {"type": b"S"}, {"type": b"3"}, {"mode": 0o7777},
                        {"type": b"1", "linkname": "../x"}, {"type": b"x"}, {"uid": 2**21 - 1}])  # fmt: skip
    return tarred(CARS, **about)


def test_a_damaged_archive_of_cars_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cars3d, "FACTORS", {"elevation": 1, "azimuth": 1, "object_type": 2})

    def read(path: Path) -> None:
        list(cars3d._images(cars3d.Params(image_size=8), [path]))

    found = wrongs(inputs("cars", 200, damaged_archive), only_data_errors(read, tmp_path / "x"))
    assert not found, found
    assert [path.name for path in tmp_path.iterdir()] == ["x"]  # nothing is unpacked to disk


TOYS = [
    photo_files.matrix(photo_files.mosaics(2, 96, 2).transpose(0, 3, 1, 2)),
    photo_files.matrix(np.zeros(2, np.int32)),
    photo_files.matrix(np.array([[1, 0, 0, 0], [1, 0, 2, 0]], np.int32)),
]


def damaged_toys(rng: Random) -> bytes:
    """One of the three matrices, mostly near its header; which one is its first byte."""
    which = rng.randrange(3)
    content = TOYS[which]
    content = mutated_bytes(content[:60], rng) + content[60:] if rng.random() < 0.7 else mutated_bytes(content, rng)
    made = rng.choice([content, packed(content), mutated_bytes(packed(TOYS[which]), rng)])
    return bytes([which]) + made


def test_damaged_norb_matrices_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"category": 1, "instance": 1, "elevation": 1, "azimuth": 2, "lighting": 1}
    monkeypatch.setattr(smallnorb, "FACTORS", sizes)
    monkeypatch.setattr(smallnorb, "INSTANCES", {"training": (1,), "testing": (0,)})
    params = smallnorb.Params(split="training", image_size=8)
    paths = [tmp_path / name for name in ("dat", "cat", "info")]

    def verdict(content: bytes) -> str:
        for path, sound in zip(paths, TOYS, strict=True):
            path.write_bytes(sound)
        read = only_data_errors(lambda path: list(smallnorb._images(params, paths)), paths[content[0]])
        return read(content[1:])

    found = wrongs(inputs("norb", 200, damaged_toys), verdict)
    assert not found, found


def painting(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(photo_files.mosaics(1, 96, 3)[0]).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_a_damaged_picture_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    content = painting(kind)

    def read(path: Path) -> None:
        list(scream_dsprites.read([path]))

    found = wrongs(inputs(kind, 100, lambda rng: mutated_bytes(content, rng)), only_data_errors(read, tmp_path / "x"))
    assert not found, found


@pytest.mark.parametrize("kind", ["gif", "tiff", "bmp", "webp"])
def test_a_picture_of_another_kind_is_refused_unread(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x").write_bytes(painting(kind))
    with pytest.raises(DataError, match="is not a picture"):
        list(scream_dsprites.read([tmp_path / "x"]))
