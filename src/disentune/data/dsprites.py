"""dSprites: Matthey et al., 2017: a white square, ellipse or heart of varying size, orientation and position.

It is published as HDF5 and as NPZ, with the same arrays. Only the HDF5 file has a known checksum, so that one is
downloaded. The first factor in the file, `color`, has one value and is left out here. `shape` has no order.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from disentune.data.prepared.formats import (
    array_chunks,
    array_keys,
    as_pixels,
    assert_images,
    assert_labels,
    is_npz,
    rows_of,
)
from disentune.data.prepared.stored import StoredImages
from disentune.errors import DataError
from disentune.plugin import Dataset, File, Frozen, Shape, Source, Statistics

FACTORS = {"shape": 3, "scale": 6, "orientation": 40, "position_x": 32, "position_y": 32}
SHAPE: Shape = (1, 64, 64)
PUBLISHED: Statistics | None = Statistics((0.042494423521889584,), (0.19516645880626055,))
HDF5 = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.hdf5"
FILE = File(
    name=HDF5,
    urls=(
        f"https://github.com/google-deepmind/dsprites-dataset/raw/master/{HDF5}",
        f"https://raw.githubusercontent.com/deepmind/dsprites-dataset/master/{HDF5}",
    ),
    md5="b331c4447a651c44bf5e8ae09022e230",
    also=("dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",),
)


class Params(Frozen):
    """No parameters."""


def source() -> Source:
    return Source(
        name="dsprites",
        files=(FILE,),
        read=read,
        shape=SHAPE,
        count=math.prod(FACTORS.values()),
        binary=True,
        published=PUBLISHED,
    )


def read(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (m, 1, 64, 64), 0 or 255."""
    (path,) = paths
    count = math.prod(FACTORS.values())
    assert_images(path, "imgs", [(count, *SHAPE[1:])])
    _assert_order(path)
    done = 0
    for chunk in array_chunks(path, "imgs", rows_of((count, *SHAPE[1:]))):
        yield as_pixels(_lit(chunk, path, done), path)[:, None]
        done += len(chunk)


def _assert_order(path: Path) -> None:
    """Checks the order by the file's labels, if it has them."""
    key = "latents_classes" if is_npz(path) else "latents/classes"
    if key in array_keys(path):
        assert_labels(path, key, (1, *FACTORS.values()))


def _lit(chunk: np.ndarray, path: Path, start: int) -> np.ndarray:
    lit: np.ndarray = chunk == 1
    if np.count_nonzero(chunk) != np.count_nonzero(lit):  # a NaN is not zero either
        wrong = ~lit & (chunk != 0)
        place = np.unravel_index(np.argmax(wrong), wrong.shape)
        raise DataError(f"{path}: pixels must be 0 or 1, but image {start + place[0]} has {chunk[place]}")
    return lit


def sources(params: Params) -> tuple[Source]:
    return (source(),)


def shape(params: Params) -> Shape:
    return SHAPE


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS.values())


def published(params: Params) -> Statistics | None:
    return PUBLISHED


def opened(params: Params) -> StoredImages:
    return StoredImages(source(), FACTORS, categorical=("shape",))


DATASET = Dataset(
    name="dsprites",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(FACTORS),
    open=opened,
    sources=sources,
    published=published,
)
