"""Miniatures of public files of photographs, in exactly their formats, and of a user's own file."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from disentune.data import cars3d, celeba, falcor3d, fashion_mnist, isaac3d, smallnorb

ARCHIVE = "nips2015-analogy-data.tar.gz"
CARS = {"elevation": 2, "azimuth": 3, "object_type": 12}
TOYS = {"category": 2, "instance": 4, "elevation": 2, "azimuth": 3, "lighting": 2}
SPLITS = {"training": (1, 3), "testing": (0, 2)}
STEMS = {
    "training": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "testing": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
CLOTHES = {"train": 60, "t10k": 20}
IDX_TYPES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}
MAGIC = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54, "int16": 0x1E3D4C56, "float32": 0x1E3D4C51, "float64": 0x1E3D4C53}


def mosaics(count: int, size: int, channels: int, seed: int = 0) -> np.ndarray:
    """Different images uint8 (count, size, size, channels) of squares of random colours; they compress well."""
    tiles = np.random.default_rng(seed).integers(256, size=(count, size // 8, size // 8, channels), dtype=np.uint8)
    return tiles.repeat(8, axis=1).repeat(8, axis=2)


# ---- Cars3D


@cache
def cars() -> dict[str, np.ndarray]:
    """For each car of the miniature what its file holds: (128, 128, 3, azimuths, elevations)."""
    elevations, azimuths, count = CARS.values()
    images = mosaics(count * azimuths * elevations, 128, 3).reshape(count, azimuths, elevations, 128, 128, 3)
    return {f"car_{7 * number:03d}_mesh": one.transpose(2, 3, 4, 0, 1) for number, one in enumerate(images)}


def mat(**arrays: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, arrays, do_compression=True)
    return file.getvalue()


def car_files(cars: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The archive's files by name; cars in another order than that of their names, between others that are no cars."""
    masks = np.zeros((128, 128, CARS["azimuth"], CARS["elevation"]), np.uint8)
    names = sorted(cars)[::-1]
    files = {"data/shapes48.mat": mat(im=np.zeros((2, 2))), "data/sprites/car_000_mesh.mat": mat(im=np.zeros((2, 2)))}
    files["data/cars/list.txt"] = "\n".join(names[3:] + names[:3]).encode()
    for name in names:
        files[f"data/cars/._{name}.mat"] = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X"
        files[f"data/cars/{name}.mat"] = mat(im=cars[name], mask=masks)
    return files


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for folder in ("data", "data/cars", "data/cars/empty.mat"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        link = tarfile.TarInfo("data/cars/latest.mat")
        link.type, link.linkname = tarfile.SYMTYPE, "car_000_mesh.mat"
        archive.addfile(link)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def small_cars3d(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(cars3d, "FACTORS", CARS)
    monkeypatch.setattr(cars3d, "PUBLISHED", None)
    write_archive(root / ARCHIVE, car_files(cars()))
    return {}


# ---- SmallNORB


def matrix(array: np.ndarray) -> bytes:
    """As NORB's page describes its binary files; at least three sizes are written."""
    sizes = (*array.shape, 1, 1)[: max(3, array.ndim)]
    header = struct.pack(f"<Ii{len(sizes)}i", MAGIC[array.dtype.name], array.ndim, *sizes)
    return header + array.astype(array.dtype.newbyteorder("<")).tobytes()


def toys(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of images (n, 2, 96, 96) and their codes (n, 5) as in the files: category, instance, elevation, azimuth
    (even numbers) and lighting; in random order."""
    categories, _, elevations, azimuths, lightings = TOYS.values()
    values = (range(categories), SPLITS[split], range(elevations), range(0, 2 * azimuths, 2), range(lightings))
    codes = np.random.default_rng(5).permutation(np.array(list(product(*values)), np.int32))
    pairs = mosaics(len(codes), 96, 2, seed=len(split)).transpose(0, 3, 1, 2)
    return pairs, codes


def toy_files(splits: Iterable[str] = STEMS) -> dict[str, np.ndarray]:
    """The arrays of the public files by name."""
    files = {}
    for split in splits:
        pairs, codes = toys(split)
        files |= {
            f"{STEMS[split]}-dat.mat.gz": pairs,
            f"{STEMS[split]}-cat.mat.gz": codes[:, 0],
            f"{STEMS[split]}-info.mat.gz": codes[:, 1:],
        }
    return files


def write_matrices(folder: Path, files: Mapping[str, np.ndarray]) -> None:
    for name, array in files.items():
        content = matrix(array)
        (folder / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)


def shrink_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smallnorb, "FACTORS", TOYS)
    monkeypatch.setattr(smallnorb, "INSTANCES", SPLITS)
    monkeypatch.setattr(smallnorb, "PUBLISHED", None)


def small_smallnorb(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    shrink_toys(monkeypatch)
    write_matrices(root, toy_files())
    return {}


# ---- a user's own file


def own_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (root / "own").mkdir()
    with h5py.File(root / "own" / "images.h5", "w") as file:
        file.create_dataset("pictures", data=mosaics(60, 64, 3), chunks=(7, 64, 64, 3), compression="gzip")
    return {
        "path": "own/images.h5",
        "images": "pictures",
        "factor_names": ["shape", "hue", "turn"],
        "factor_sizes": [3, 4, 5],
        "image_shape": [3, 64, 64],
        "categorical": ["shape"],
    }


# ---- photographs without factors


def clothes() -> dict[str, np.ndarray]:
    """Fashion-MNIST in miniature: uint8 (n, 28, 28) by part."""
    count = sum(CLOTHES.values())
    tiles = np.random.default_rng(7).integers(256, size=(count, 7, 7), dtype=np.uint8)
    images = tiles.repeat(4, axis=1).repeat(4, axis=2)
    return {"train": images[: CLOTHES["train"]], "t10k": images[CLOTHES["train"] :]}


def idx(array: np.ndarray) -> bytes:
    """Two zeros, the type, the axes, their sizes as big-endian int32, then the bytes."""
    return bytes([0, 0, IDX_TYPES[array.dtype.name], array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + \
        array.astype(array.dtype.newbyteorder(">")).tobytes()  # fmt: skip


def write_clothes(root: Path, packed: bool = True) -> None:
    for part, images in clothes().items():
        name, content = f"{part}-images-idx3-ubyte", idx(images)
        (root / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content, 1) if packed else content)


def small_fashion_mnist(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(fashion_mnist, "COUNTS", CLOTHES)
    write_clothes(root)
    return {}


def encoded(image: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def faces(count: int = 60) -> np.ndarray:
    """uint8 (n, 218, 178, 3)"""
    return np.ascontiguousarray(mosaics(count, 224, 3, seed=9)[:, :218, :178])


def write_faces(root: Path, images: np.ndarray) -> None:
    with zipfile.ZipFile(root / "img_align_celeba.zip", "w") as archive:
        for number, image in enumerate(images):
            archive.writestr(f"img_align_celeba/{number + 1:06d}.jpg", encoded(image, "JPEG"))


def small_celeba(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(celeba, "COUNT", 60)
    write_faces(root, faces())
    return {}


def folder_of_images(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for number, image in enumerate(mosaics(60, 16, 3, seed=3)):
        place = root / "own" / f"series{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:03d}.png").write_bytes(encoded(image, "PNG"))
    return {"path": "own", "count": 60, "image_shape": [3, 16, 16]}


# ---- Falcor3D and Isaac3D

TWICE = 2
"""Values of each factor where every factor must move; the smaller grids below are enough for the files themselves."""
ROOMS = {"lighting_intensity": 2, "lighting_x": 3, "lighting_y": 2, "lighting_z": 1, "camera_x": 2, "camera_y": 1,
         "camera_z": 3}  # fmt: skip
KITCHENS = {"object_shape": 2, "robot_x": 3, "robot_y": 1, "camera_height": 2, "object_scale": 1,
            "lighting_intensity": 2, "lighting_y": 1, "object_color": 1, "wall_color": 3}  # fmt: skip


def scene_labels(sizes: Mapping[str, int]) -> np.ndarray:
    """float64 (n, k): every combination, each factor spread evenly over [0, 1]."""
    grid = np.array(list(product(*map(range, sizes.values()))), np.float64)
    return grid / np.maximum(np.array([*sizes.values()]) - 1, 1)


def scene_files(name: str, labels: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The archive's files by name, with a shadow that macOS adds."""
    values = scene_labels(sizes)
    images = mosaics(len(values), 128, 3, seed=len(values))
    file = io.BytesIO()
    np.save(file, values)
    files = {f"{name}_down128/images/{number:06d}.png": encoded(image, "PNG") for number, image in enumerate(images)}
    return {f"__MACOSX/{name}_down128/._{labels}": b"Mac OS X", f"{name}_down128/{labels}": file.getvalue(), **files}


def write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def small_falcor3d(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(falcor3d, "FACTORS", sizes := dict.fromkeys(ROOMS, TWICE))
    write_zip(root / falcor3d.FILE.name, scene_files("Falcor3D", falcor3d.LABELS, sizes))
    return {}


def small_isaac3d(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(isaac3d, "FACTORS", sizes := dict.fromkeys(KITCHENS, TWICE))
    write_zip(root / isaac3d.FILE.name, scene_files("Isaac3D", isaac3d.LABELS, sizes))
    return {}


FILES: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "cars3d": small_cars3d,
    "smallnorb": small_smallnorb,
    "grid_file": own_file,
    "fashion_mnist": small_fashion_mnist,
    "celeba": small_celeba,
    "image_folder": folder_of_images,
    "falcor3d": small_falcor3d,
    "isaac3d": small_isaac3d,
}
"""For each data set: makes it small, writes its files into the data root, and gives its parameters."""
