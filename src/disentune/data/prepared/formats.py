"""Reads arrays from NPZ and HDF5 files in chunks; never unpickles anything."""

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import h5py
import numpy as np

from disentune.errors import DataError

PIECE = 1 << 20
"""Bytes decompressed at a time."""
LARGEST = 1 << 30
"""Bytes of a block of HDF5 chunks; larger chunks are decompressed more than once."""
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, UnicodeDecodeError,
    EOFError, NotImplementedError, RuntimeError, OSError,
)  # fmt: skip
"""What zipfile raises for files that are truncated, damaged or compressed in an unknown way."""


def rows_of(shape: Sequence[int], size_mb: int = 16) -> int:
    """How many rows of a uint8 array of this shape fit in this many megabytes; at least 1."""
    return max(1, size_mb * 10**6 // max(1, math.prod(shape[1:])))


# ---- either format, detected by content


def is_npz(path: Path) -> bool:
    """True for NPZ, False for HDF5; raises DataError for anything else."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
        if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return True
        if h5py.is_hdf5(path):
            return False
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    came = f"is neither: it begins with {start!r}" if start else "is empty"
    raise DataError(f"{path}: must be an NPZ or HDF5 file, but {came}")


def array_keys(path: Path) -> list[str]:
    """Names of the arrays in an NPZ or HDF5 file, sorted."""
    return npz_keys(path) if is_npz(path) else h5_keys(path)


def array_shape(path: Path, key: str) -> tuple[int, ...]:
    return npz_shape(path, key) if is_npz(path) else h5_shape(path, key)


def array_chunks(path: Path, key: str, rows: int) -> Iterator[np.ndarray]:
    return npz_chunks(path, key, rows) if is_npz(path) else h5_chunks(path, key, rows)


# ---- npz


def npz_keys(path: Path) -> list[str]:
    with _zip(path) as file:
        return sorted(name.removesuffix(".npy") for name in file.namelist())


def npz_shape(path: Path, key: str) -> tuple[int, ...]:
    with _zip(path) as file, _member(file, path, key) as stream:
        return _header(stream, path, key)[0]


def npz_chunks(path: Path, key: str, rows: int, axes: int | None = None) -> Iterator[np.ndarray]:
    """An array (n, ...) along its first axis, up to `rows` at a time.

    With `axes`, a row spans the last `axes` axes, and all axes before them are merged into one.
    """
    with _zip(path) as file, _member(file, path, key) as stream:
        shape, dtype = _header(stream, path, key)
        if axes is not None:
            shape = (math.prod(shape[:-axes]), *shape[-axes:])
        whole, there = math.prod(shape) * dtype.itemsize, file.getinfo(f"{key}.npy").file_size - stream.tell()
        if whole != there:
            raise DataError(f"{path}: '{key}' must have {whole} bytes for its shape {shape}, but has {there}")
        for start in range(0, shape[0], rows):
            chunk = np.empty((min(rows, shape[0] - start), *shape[1:]), dtype)
            _fill(chunk, stream)
            yield chunk


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Raises DataError for anything wrong with the file while it is open."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist") from None
    except DataError:
        raise
    except Exception as error:  # zipfile raises many kinds of errors for damaged files
        raise DataError(f"{path}: is not an NPZ file, or is truncated or damaged ({error})") from None


def _member(file: zipfile.ZipFile, path: Path, key: str) -> IO[bytes]:
    try:
        return file.open(f"{key}.npy")
    except KeyError:
        raise _lacking(path, key, [name.removesuffix(".npy") for name in file.namelist()]) from None


def _header(stream: IO[bytes], path: Path, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type; afterwards the stream is at the first byte of the array."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(stream)
    except DAMAGE:
        raise
    except Exception as error:  # NumPy parses the header as Python, which can raise any error
        raise DataError(f"{path}: '{key}' is not a plain array ({error})") from None
    if not all(type(size) is int and size >= 0 for size in shape):  # a bool is an int to NumPy
        raise DataError(f"{path}: '{key}' must have whole numbers as its shape, but has {shape}")
    if fortran:
        raise DataError(f"{path}: '{key}' must be in C order (row by row), but is in Fortran order")
    return _plain(shape, dtype, path, key)


def _fill(chunk: np.ndarray, stream: IO[bytes]) -> None:
    """Reads a chunk from the stream in pieces, so that only the chunk needs memory."""
    view, done = chunk.reshape(-1).view(np.uint8), 0
    while done < view.size:
        piece = stream.read(min(PIECE, view.size - done))
        if not piece:
            raise EOFError("it ends too early")
        view[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)


# ---- hdf5


def h5_keys(path: Path) -> list[str]:
    with _h5(path) as file:
        return _datasets(file)


def h5_shape(path: Path, key: str) -> tuple[int, ...]:
    with _h5(path) as file:
        found: tuple[int, ...] = _dataset(file, path, key).shape
        return found


def h5_chunks(path: Path, key: str, rows: int) -> Iterator[np.ndarray]:
    """An array (n, ...) along its first axis, up to `rows` at a time, so that no chunk is decompressed twice."""
    with _h5(path) as file:
        dataset = _dataset(file, path, key)
        _assert_written(dataset, path, key)
        step = _whole_chunks(dataset, rows)
        for start in range(0, dataset.shape[0], step):
            yield from _pieces(_block(dataset, start, min(start + step, dataset.shape[0])), rows)


def _pieces(block: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """Copies the rows; a separate function, so that the block is freed before the next one is read."""
    yield from (block[start : start + rows].copy() for start in range(0, len(block), rows))


def _block(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Reads some rows. Small chunks are read in stripes along the second axis, which takes a quarter of the time."""
    if dataset.chunks is None or dataset.ndim == 1:
        found: np.ndarray = dataset[start:stop]
        return found
    block, stripe = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype), dataset.chunks[1]
    for first in range(0, dataset.shape[1], stripe):
        block[:, first : first + stripe] = dataset[start:stop, first : first + stripe]
    return block


def _whole_chunks(dataset: h5py.Dataset, rows: int) -> int:
    """At least `rows`, rounded up to the end of the file's own chunks."""
    if dataset.chunks is None:
        return rows
    row_bytes = max(1, math.prod(dataset.shape[1:]) * dataset.dtype.itemsize)
    whole = -(-rows // dataset.chunks[0]) * dataset.chunks[0]
    found: int = min(whole, max(rows, LARGEST // row_bytes))
    return found


@contextmanager
def _h5(path: Path) -> Iterator[h5py.File]:
    """Raises DataError for anything wrong with the file while it is open."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist") from None
    except DataError:
        raise
    except Exception as error:  # h5py raises many kinds of errors for damaged files
        raise DataError(f"{path}: is not an HDF5 file, or is truncated or damaged ({error})") from None


def _dataset(file: h5py.File, path: Path, key: str) -> h5py.Dataset:
    _assert_no_link(file, path, key)
    found = file.get(key)
    if not isinstance(found, h5py.Dataset):
        raise _lacking(path, key, _datasets(file))
    if found.is_virtual or found.external:
        raise DataError(f"{path}: '{key}' must be in the file itself, but is assembled from other files")
    _plain(found.shape, found.dtype, path, key)
    return found


def _assert_no_link(file: h5py.File, path: Path, key: str) -> None:
    """Checks before anything is opened: a link may lead to any other file, possibly through further links."""
    parts = [part for part in key.split("/") if part not in ("", ".")]
    for name in ("/".join(parts[:end]) for end in range(1, len(parts) + 1)):
        link = file.get(name, getlink=True)
        if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
            raise DataError(f"{path}: '{key}' must be in the file itself, but '{name}' is a link to '{link.path}'")


def _assert_written(dataset: h5py.Dataset, path: Path, key: str) -> None:
    """Checks that all chunks were written; otherwise HDF5 returns zeros, the black images of a killed writer."""
    if dataset.chunks is None:
        if dataset.size and not dataset.id.get_storage_size():
            raise DataError(f"{path}: '{key}' must be complete, but none of it was written")
        return
    whole = math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    there = dataset.id.get_num_chunks()
    if there < whole:
        raise DataError(f"{path}: '{key}' must be complete, but only {there} of its {whole} chunks were written")


def _datasets(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return sorted(names)


# ---- checks for both formats


def _lacking(path: Path, key: str, keys: Sequence[str]) -> DataError:
    return DataError(f"{path}: must have an array '{key}', but has {', '.join(sorted(keys)) or 'none'}")


def _plain(shape: tuple[int, ...] | None, dtype: np.dtype, path: Path, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """Refuses Python objects: they would need pickle, which runs code of the file's author."""
    if dtype.hasobject or dtype.kind not in "biuf":
        raise DataError(f"{path}: '{key}' must hold plain numbers, but holds {dtype}; objects are never unpickled")
    if not shape:
        raise DataError(f"{path}: '{key}' must have rows, but is a single number")
    return shape, dtype


# ---- images and labels


def as_pixels(array: np.ndarray, where: object, start: int = 0) -> np.ndarray:
    """Images (m, ...) as uint8: bytes stay, booleans become 0 and 255, fractions from 0 to 1 are multiplied by 255.

    `start` is the position of the first image in the file, for the error message.
    """
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return np.negative(array.view(np.uint8))  # 1 becomes 255
    if array.dtype.kind not in "iuf":
        raise DataError(f"{where}: images must be numbers, but are {array.dtype}")
    fractional = array.dtype.kind == "f"
    right = (array >= 0) & (array <= (1 if fractional else 255))  # false for a NaN
    if not right.all():
        must = "numbers from 0 to 1" if fractional else "whole numbers from 0 to 255"
        place = np.unravel_index(np.argmin(right), right.shape)
        raise DataError(f"{where}: pixels must be {must}, but image {start + place[0]} has {array[place]}")
    return np.rint(array * np.float64(255)).astype(np.uint8) if fractional else array.astype(np.uint8)


def assert_images(path: Path, key: str, expected: Sequence[tuple[int, ...]]) -> None:
    """Raises DataError unless an array has one of the expected shapes, before any of it is decompressed."""
    shape = array_shape(path, key)
    if shape not in expected:
        raise DataError(f"{path}: '{key}' must be {' or '.join(map(str, expected))}, but is {shape}")


def channels_first(images: np.ndarray) -> np.ndarray:
    """(m, h, w) or (m, h, w, c) -> (m, c, h, w), contiguous."""
    images = images[..., None] if images.ndim == 3 else images
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def assert_labels(path: Path, key: str, sizes: Sequence[int]) -> None:
    """Raises DataError unless an array has labels (n, k) that span the grid; their shape is checked before reading."""
    shape, expected = array_shape(path, key), (math.prod(sizes), len(sizes))
    if shape != expected:
        raise DataError(f"{path}: '{key}' must be {expected} for factors of sizes {tuple(sizes)}, but is {shape}")
    (labels,) = array_chunks(path, key, expected[0])
    labels_span(labels, sizes, path)


def labels_span(labels: np.ndarray, sizes: Sequence[int], where: object) -> None:
    """Raises DataError unless labels (n, k) are the full grid in row-major order, where the last factor varies fastest.

    They may be any numbers that grow along each factor.
    """
    sizes = tuple(sizes)
    for factor, (size, column) in enumerate(zip(sizes, labels.T, strict=True)):
        stride = math.prod(sizes[factor + 1 :])
        values = column[np.arange(size) * stride]
        if not (values[1:] > values[:-1]).all():
            raise _out_of_order(where, sizes, f"column {factor} does not grow from one value to the next")
        wrong = column != values[np.arange(len(labels)) // stride % size]
        if wrong.any():
            row = int(np.argmax(wrong))
            raise _out_of_order(where, sizes, f"row {row} has {column[row]} in column {factor}")


def _out_of_order(where: object, sizes: tuple[int, ...], came: str) -> DataError:
    return DataError(
        f"{where}: labels must be the full grid of sizes {sizes} in order (last factor fastest), but {came}"
    )
