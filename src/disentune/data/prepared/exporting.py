"""A data set as one HDF5 file that other programs read, and that the data set `grid_file` reads back bit by bit."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from disentune.data.prepared.download import Progress
from disentune.data.prepared.store import quiet
from disentune.errors import DataError
from disentune.plugin import FactorImages

KEY = "images"
SUFFIXES = (".h5", ".hdf5")
BLOCK = 1 << 22
"""Bytes of pixels that are written at a time."""


def export(images: FactorImages, path: Path, provenance: str = "", say: Progress = quiet) -> None:
    """Writes every image in the order of the grid, uint8 (n, h, w, c), with the factors as attributes; the file is
    complete or missing. DataError when it cannot be written."""
    _assert_new(path)
    _assert_fixed(images)
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
    try:
        _write(images, Path(aside), provenance, lambda done: say(f"writing {path.name}", done, len(images)))
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}); free some space there") from None
    finally:
        Path(aside).unlink(missing_ok=True)


def _assert_new(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: must end with {' or '.join(SUFFIXES)}")
    if path.exists():
        raise DataError(f"{path} exists; remove it, or choose another name")
    if not path.parent.is_dir():
        raise DataError(f"{path.parent} is not a folder; create it, or choose another one")


def _assert_fixed(images: FactorImages) -> None:
    if images.noisy or images.images(np.arange(1)).dtype != np.uint8:
        raise DataError("a data set of points, or one that is drawn anew each time, has no fixed images to export")


def _write(images: FactorImages, path: Path, provenance: str, say: Callable[[int], None]) -> None:
    channels, height, width = images.shape
    count, rows = len(images), max(1, BLOCK // (channels * height * width))
    with h5py.File(path, "w") as file:
        shape = (count, height, width, channels)
        chunks = (min(rows, count), height, width, channels)
        array = file.create_dataset(KEY, shape, np.uint8, chunks=chunks, compression="gzip", compression_opts=1)
        for start in range(0, count, rows):
            indices = np.arange(start, min(start + rows, count))
            array[start : start + len(indices)] = images.images(indices).transpose(0, 2, 3, 1)
            say(start + len(indices))
        for name, value in described(images).items():
            array.attrs[name] = value
        array.attrs["provenance"] = provenance


def described(images: FactorImages) -> dict[str, Any]:
    """What `grid_file` has to be told, by the names of its parameters."""
    return {
        "factor_names": list(images.factor_names),
        "factor_sizes": list(images.factor_sizes),
        "image_shape": list(images.shape),
        **({"categorical": list(images.categorical)} if images.categorical else {}),
    }


def as_section(images: FactorImages, path: Path) -> str:
    """The section of a sweep that reads an exported file."""
    keys = [f"{key}: {_listed(value)}" for key, value in described(images).items()]
    return ", ".join(["dataset: {name: grid_file", f"path: {path.absolute()}", *keys]) + "}"


def _listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"
