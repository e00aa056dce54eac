"""Miniatures of public files: the same formats and layouts, fewer values of each factor."""

import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from disentune.data import (
    dsprites,
    mpi3d,
    mpi3d_complex,
    mpi3d_real,
    mpi3d_realistic,
    mpi3d_toy,
    scream_dsprites,
    shapes3d,
)

DSPRITES = {"shape": 3, "scale": 2, "orientation": 4, "position_x": 3, "position_y": 4}
SHAPES3D = {"floor_hue": 2, "wall_hue": 3, "object_hue": 2, "scale": 2, "shape": 2, "orientation": 3}
_MOVES = {"object_size": 2, "camera_height": 2, "background_color": 2, "first_dof": 3, "second_dof": 2}
MPI3D = {6: {"object_color": 3, "object_shape": 2, **_MOVES}, 4: {"object_color": 2, "object_shape": 2, **_MOVES}}


class Trap:
    """A pickle that makes a folder as soon as somebody loads it."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


# ---- what goes in


def sprites(factors: Mapping[str, int] = DSPRITES) -> np.ndarray:
    """uint8 (n, 64, 64), 0 or 1: a block whose place, sides and dots tell all five factors."""
    images = np.zeros((*factors.values(), 64, 64), np.uint8)
    for shape, scale, orientation, x, y in np.ndindex(*factors.values()):
        image = images[shape, scale, orientation, x, y]
        image[10 + 9 * y : 16 + 9 * y + 2 * scale, 10 + 9 * x : 16 + 9 * x + 2 * shape] = 1
        image[2, 2 : 3 + 2 * orientation] = 1
    return images.reshape(-1, 64, 64)


def coloured(sizes: Mapping[str, int]) -> np.ndarray:
    """uint8 (n, 64, 64, 3): every pixel random, so that no two can be mistaken for each other."""
    return np.random.default_rng(0).integers(256, size=(np.prod([*sizes.values()]), 64, 64, 3), dtype=np.uint8)


def labels(sizes: Mapping[str, int]) -> np.ndarray:
    """int64 (n, k): every combination, row-major."""
    return np.array(list(np.ndindex(*sizes.values())))


def picture(width: int = 400, height: int = 500) -> Image.Image:
    """As tall as the painting, more or less, and smooth."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 31) + np.cos(y / 23), np.sin((x + y) / 41), np.cos((x - 2 * y) / 53)]
    return Image.fromarray(np.stack([(127 + 60 * wave).clip(0, 255) for wave in waves], axis=2).astype(np.uint8))


# ---- as it is published


def dsprites_arrays() -> dict[str, np.ndarray]:
    classes = labels({"color": 1, **DSPRITES})
    return {"imgs": sprites(), "latents_classes": classes, "latents_values": classes / 7}


def write_dsprites_npz(path: Path, arrays: Mapping[str, np.ndarray], metadata: Any) -> None:
    """Compressed, with metadata that an old Python pickled into an array of one object."""
    np.savez_compressed(path, **arrays)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("metadata.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|O", "fortran_order": False, "shape": ()})
        member.write(pickle.dumps(metadata, protocol=2))


def write_dsprites_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Chunks of many images and few pixels, as h5py guesses them and as the public file has them."""
    with h5py.File(path, "w") as file:
        images = arrays["imgs"]
        file.create_dataset("imgs", data=images, chunks=(len(images) // 4, 2, 4), compression="gzip")
        for key in ("classes", "values"):
            file.create_dataset(f"latents/{key}", data=arrays[f"latents_{key}"], compression="gzip")


def write_shapes3d(path: Path, images: np.ndarray, values: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, chunks=(len(images) // 4, 16, 16, 1), compression="gzip")
        file.create_dataset("labels", data=values)


# ---- into a data root


def shrunk_dsprites(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(dsprites, "FACTORS", DSPRITES)
    monkeypatch.setattr(dsprites, "PUBLISHED", None)
    write_dsprites_hdf5(root / dsprites.FILE.name, dsprites_arrays())
    return {}


def shrunk_scream(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    picture().save(root / scream_dsprites.FILE.name, quality=95)
    return shrunk_dsprites(root, monkeypatch)


def shrunk_shapes3d(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(shapes3d, "FACTORS", SHAPES3D)
    monkeypatch.setattr(shapes3d, "PUBLISHED", None)
    write_shapes3d(root / shapes3d.FILE.name, coloured(SHAPES3D), labels(SHAPES3D) / 10)
    return {}


def _shrunk_mpi3d(module: Any) -> Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]:
    def shrunk(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(mpi3d, "FACTORS", MPI3D)
        monkeypatch.setattr(module, "PUBLISHED", None)
        np.savez_compressed(root / f"{module.DATASET.name}.npz", images=coloured(MPI3D[6]))
        return {}

    return shrunk


def shrunk_mpi3d_complex(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(mpi3d, "FACTORS", MPI3D)
    np.savez_compressed(root / mpi3d_complex.FILE.name, images=coloured(MPI3D[4]))
    return {}


FILES: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "dsprites": shrunk_dsprites,
    "color_dsprites": shrunk_dsprites,
    "noisy_dsprites": shrunk_dsprites,
    "scream_dsprites": shrunk_scream,
    "shapes3d": shrunk_shapes3d,
    "mpi3d_complex": shrunk_mpi3d_complex,
    "mpi3d_toy": _shrunk_mpi3d(mpi3d_toy),
    "mpi3d_realistic": _shrunk_mpi3d(mpi3d_realistic),
    "mpi3d_real": _shrunk_mpi3d(mpi3d_real),
}
"""(data root, monkeypatch) -> params, for every data set of this family."""
