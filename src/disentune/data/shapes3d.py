"""3D Shapes: Burgess and Kim, 2018: an object in a room, with the hues of floor, wall and object.

Only `shape` counts as unordered: hues are a circle cut open at red, and pairs (Klindt et al., ICLR 2021) move along it
as along a line.
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
    channels_first,
    rows_of,
)
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Dataset, File, Frozen, Shape, Source, Statistics

FACTORS = {"floor_hue": 10, "wall_hue": 10, "object_hue": 10, "scale": 8, "shape": 4, "orientation": 15}
SHAPE: Shape = (3, 64, 64)
PUBLISHED: Statistics | None = Statistics(
    (0.502584966788819, 0.5787597566089667, 0.6034499731859578),
    (0.2940814043555559, 0.3443979087517214, 0.3661685981524748),
)
FILE = File(
    name="3dshapes.h5",
    urls=(
        "https://storage.googleapis.com/3d-shapes/3dshapes.h5",
        "https://storage.googleapis.com/storage/v1/b/3d-shapes/o/3dshapes.h5?alt=media",
    ),
    md5="099a2078d58cec4daad0702c55d06868",
)


class Params(Frozen):
    """No parameters."""


def sources(params: Params) -> tuple[Source]:
    count = math.prod(FACTORS.values())
    source = Source(name="shapes3d", files=(FILE,), read=read, shape=SHAPE, count=count, published=PUBLISHED)
    return (source,)


def read(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (m, 3, 64, 64); if the file has labels, they must be in grid order."""
    (path,) = paths
    expected = (math.prod(FACTORS.values()), *SHAPE[1:], SHAPE[0])
    assert_images(path, "images", [expected])
    if "labels" in array_keys(path):
        assert_labels(path, "labels", tuple(FACTORS.values()))
    done = 0
    for chunk in array_chunks(path, "images", rows_of(expected)):
        yield channels_first(as_pixels(chunk, path, done))
        done += len(chunk)


def shape(params: Params) -> Shape:
    return SHAPE


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS.values())


def published(params: Params) -> Statistics | None:
    return PUBLISHED


def opened(params: Params) -> StoredImages:
    return StoredImages(*sources(params), FACTORS, categorical=("shape",))


DATASET = Dataset(
    name="shapes3d",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(FACTORS),
    open=opened,
    sources=sources,
    published=published,
)
