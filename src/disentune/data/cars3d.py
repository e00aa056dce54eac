"""Cars3D: Reed et al., NeurIPS 2015: 183 cars rendered from 24 sides and 4 heights.

Cars are numbered by file name. disent uses the order of the archive's own list, and disentanglement_lib the order of
the directory, which differs between machines: the images are the same, but the numbers of the cars differ.
"""

import io
import math
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import scipy
from pydantic import Field

from disentune.data.prepared.resizing import Filter, made, resized
from disentune.data.prepared.stored import StoredImages
from disentune.data.prepared.unpacking import unpacked
from disentune.errors import DataError
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source, Statistics

FACTORS = {"elevation": 4, "azimuth": 24, "object_type": 183}
ORIGINAL = 128
PUBLISHED: Statistics | None = Statistics(
    (0.8976676149976628, 0.8891658020067508, 0.885147515814868),
    (0.22503195531503034, 0.2399461278981261, 0.24792106319684404),
)
"""Published statistics for 64 pixels, bilinear."""
ARCHIVE = File(
    name="nips2015-analogy-data.tar.gz",
    urls=(
        "http://www.scottreed.info/files/nips2015-analogy-data.tar.gz",
        "http://www-personal.umich.edu/~reedscot/files/nips2015-analogy-data.tar.gz",
    ),
    md5="4e866a7919c1beedf53964e6f7a23686",
    also=("nips2015-analogy-data.tar",),
)
BLOCK = 1 << 20
"""Bytes unpacked at a time."""
LARGEST = 64 << 20
"""Maximum size of a car's file in bytes. The images take 4.7 MB, or 38 MB with 8-byte numbers; there is also a mask."""


class Params(Frozen):
    image_size: Count = Field(64, ge=1, le=ORIGINAL, description="pixels along a side; 128 keeps the original size")
    resize: Filter = Field("bilinear", description="bilinear as in disent, lanczos as in disentanglement_lib")


def shape(params: Params) -> Shape:
    return 3, params.image_size, params.image_size


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS.values())


def published(params: Params) -> Statistics | None:
    return PUBLISHED if (params.image_size, params.resize) == (64, "bilinear") else None


def source(params: Params) -> Source:
    return Source(
        name="cars3d",
        files=(ARCHIVE,),
        read=partial(_images, params),
        shape=shape(params),
        count=math.prod(FACTORS.values()),
        variant=made(params.image_size, ORIGINAL, params.resize),
        options=" ".join(f"--set {key}={value}" for key, value in params.model_dump(exclude_defaults=True).items()),
        published=published(params),
        tolerance=1e-3,  # versions of Pillow round differently
    )


def opened(params: Params) -> StoredImages:
    return StoredImages(source(params), FACTORS, categorical=("object_type",))


# ---- reading the archive


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """All cars at one elevation and azimuth after another: (183, 3, h, w).

    The archive is sorted by car, so all images are held in memory: 0.2 GB at 64 pixels, 0.9 GB at 128.
    """
    (path,) = paths
    cars = _cars(path, params)
    for elevation in range(FACTORS["elevation"]):
        for azimuth in range(FACTORS["azimuth"]):
            yield np.stack([car[elevation, azimuth] for car in cars])


def _cars(path: Path, params: Params) -> list[np.ndarray]:
    """The images (elevations, azimuths, 3, size, size) of each car, in the order of their files' names."""
    count, of_name = FACTORS["object_type"], {}
    for name, content in _car_files(path):
        of_name[name] = _shrunk(_im(content, f"{path}: {name}"), params)
        if len(of_name) > count:
            raise DataError(f"{path}: must hold {count} files cars/*.mat, but holds more")
    if len(of_name) < count:
        raise DataError(f"{path}: must hold {count} files cars/*.mat, but holds {len(of_name)}")
    return [of_name[name] for name in sorted(of_name)]


def _shrunk(im: np.ndarray, params: Params) -> np.ndarray:
    """(h, w, 3, azimuths, elevations) -> (elevations, azimuths, 3, size, size)"""
    images = im.transpose(4, 3, 0, 1, 2)
    small = resized(images.reshape(-1, *images.shape[2:]), params.image_size, params.resize)
    return small.reshape(*images.shape[:2], *small.shape[1:])


def _car_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents in the order of the archive, read as a stream; nothing is written to disk."""
    with unpacked(path) as contents:
        try:
            with tarfile.open(fileobj=contents, mode="r|", bufsize=BLOCK) as archive:
                for member in archive:
                    if _is_car(member) and (file := archive.extractfile(member)):
                        _assert_modest(member, path)
                        yield member.name, file.read()
        except (tarfile.TarError, ValueError) as error:  # the latter for a sparse file's map
            raise DataError(f"{path}: is not a complete tar.gz file ({error})") from None
        while contents.read(BLOCK):
            pass  # up to the checksum


def _is_car(member: tarfile.TarInfo) -> bool:
    """The archive also has other folders, a list, and possibly macOS metadata files ('._car_001_mesh.mat')."""
    name = PurePosixPath(member.name)
    is_mat = name.parent.name == "cars" and name.suffix == ".mat" and not name.name.startswith(".")
    return member.isfile() and is_mat


def _assert_modest(member: tarfile.TarInfo, path: Path) -> None:
    """Checks a member before it is read: a few bytes of an archive can expand to more than fits in memory."""
    if member.issparse():
        raise DataError(f"{path}: {member.name} must be stored whole, but is sparse, with {member.size} bytes")
    if member.size > LARGEST:
        raise DataError(f"{path}: {member.name} must have at most {LARGEST} bytes, but has {member.size}")


def _im(content: bytes, where: str) -> np.ndarray:
    """uint8 (h, w, 3, azimuths, elevations)"""
    elevations, azimuths, _ = FACTORS.values()
    expected = (ORIGINAL, ORIGINAL, 3, azimuths, elevations)
    try:
        held = scipy.io.loadmat(io.BytesIO(content), variable_names=["im"])
    except Exception as error:  # SciPy raises many kinds of errors for damaged files
        raise DataError(f"{where} cannot be read as a MATLAB file ({error})") from None
    if "im" not in held:
        raise DataError(f"{where} must have an array 'im', but has none")
    im: np.ndarray = held["im"]
    if im.shape != expected or im.dtype != np.uint8:
        raise DataError(f"{where}: 'im' must be {expected} uint8, but is {im.shape} {im.dtype}")
    return im


DATASET = Dataset(
    name="cars3d",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(FACTORS),
    open=opened,
    sources=lambda params: (source(params),),
    published=published,
)
