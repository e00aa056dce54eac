"""Grid file: your own HDF5 or NPZ file, with one image per combination of its factors, or with a table of factors.

The images must be in grid order, where the last factor varies fastest: (n, h, w), (n, h, w, c) or (n, c, h, w), or with
one axis per factor instead of n. Pixels: bytes, whole numbers from 0 to 255, numbers from 0 to 1, or booleans.
If combinations are missing or repeated, `labels` names an array of the file with the factors of each image; metrics
and pair laws that need the full grid are then refused.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.own_files import Contents, OwnImages, OwnPath, Sides, as_shape
from disentune.data.prepared.formats import (
    array_chunks,
    array_shape,
    as_pixels,
    channels_first,
    rows_of,
)
from disentune.data.prepared.spelling import options
from disentune.data.prepared.stored import opened
from disentune.errors import DataError
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source, added

Size = Annotated[Count, Field(ge=1)]
ROWS = 100_000
"""Labels that are read at a time."""


class Params(Frozen):
    path: OwnPath = Field(
        description="the HDF5 or NPZ file: absolute, or relative to the data root or the working folder"
    )
    images: str = Field("images", min_length=1, description="name of the array in the file")
    factor_names: list[str] = Field(min_length=1, description="names of the factors, in the order of the grid")
    factor_sizes: list[Size] = Field(description="how many values each factor has; the last one varies fastest")
    image_shape: Sides = Field(description="channels, height, width")
    categorical: list[str] = Field([], description="factors whose values have no order")
    binary: bool = Field(
        False, description="whether all pixels are black (0) or white (1 or 255), so that they are stored as bits"
    )
    contents: Contents = Field(
        None, description="first 12 or more digits of the sha256 in about.json; other contents are refused"
    )
    labels: str | None = added(
        None, min_length=1, description="name of an array (count, factors) of values from 0: images are not a full grid"
    )
    count: Count | None = added(
        None, ge=1, validate_default=True, description="how many images the file has; only with labels"
    )

    @field_validator("factor_names")
    @classmethod
    def _named(cls, names: list[str]) -> list[str]:
        if not all(name.strip() for name in names) or len(set(names)) < len(names):
            raise ValueError(f"must be different and not empty, but are {names}")
        return names

    @field_validator("factor_sizes")
    @classmethod
    def _sized(cls, sizes: list[int], others: ValidationInfo) -> list[int]:
        names = others.data.get("factor_names")
        if names is not None and len(sizes) != len(names):
            raise ValueError(f"must be one for each of the {len(names)} factor_names, but are {len(sizes)}: {sizes}")
        if math.prod(sizes) >= 2**63:
            raise ValueError(f"must have fewer than 2**63 combinations, but {sizes} have more")
        return sizes

    @field_validator("categorical")
    @classmethod
    def _known(cls, categorical: list[str], others: ValidationInfo) -> list[str]:
        names = others.data.get("factor_names")
        if names is not None and not set(categorical) <= set(names):
            raise ValueError(f"must be among factor_names ({', '.join(names)}), but is {categorical}")
        return categorical

    @field_validator("count")
    @classmethod
    def _counted(cls, count: int | None, others: ValidationInfo) -> int | None:
        if (count is None) == ("labels" in others.data and others.data["labels"] is not None):
            raise ValueError("must be set with labels, and only then: a full grid has an image for each combination")
        return count


def shape(params: Params) -> Shape:
    return as_shape(params.image_shape)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(params.factor_sizes)


# ---- the prepared array


def source(params: Params) -> Source:
    return Source(
        name="grid_file",
        files=(File(params.path),),
        read=partial(_images, params),
        shape=shape(params),
        count=_count(params),
        variant=_variant(params),
        options=options(params, without=("categorical", "contents")),
        binary=params.binary,
    )


def label_source(params: Params) -> Source:
    """The values of each image's factors, stored as if each were a channel of four pixels: the bytes of an int32."""
    return replace(
        source(params),
        read=partial(_labels, params),
        shape=(len(params.factor_sizes), 1, 4),
        variant=f"{_variant(params)}_labels",
        binary=False,
    )


def sources(params: Params) -> tuple[Source, ...]:
    return (source(params),) if params.labels is None else (source(params), label_source(params))


def _count(params: Params) -> int:
    return math.prod(params.factor_sizes) if params.count is None else params.count


def _variant(params: Params) -> str:
    """A hash of all that the array depends on, so that the user's path does not become part of ours."""
    made_of = params.model_dump(include={"path", "images", "factor_sizes", "image_shape", "binary", "labels", "count"})
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


class GridFile(OwnImages):
    """`factor_rows` are the factors of each image where the file has labels, else None."""

    factor_rows: np.ndarray | None = None

    def __init__(self, params: Params):
        factors = dict(zip(params.factor_names, params.factor_sizes, strict=True))
        super().__init__(source(params), {} if params.labels else factors, tuple(params.categorical))
        self._params = params
        self.assert_contents(params.path, params.contents, source(params))
        if params.labels:
            self.factor_names, self.factor_sizes = tuple(factors), tuple(factors.values())
            stored = opened(label_source(params)).images(np.arange(len(self)))
            self.factor_rows = stored.view("<i4")[:, :, 0, 0].astype(np.int64)

    def __reduce__(self) -> tuple[type["GridFile"], tuple[Params]]:
        return GridFile, (self._params,)


# ---- reading the file


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """With one axis per factor, all images of one value of the first factor are held in memory."""
    (path,) = paths
    there = array_shape(path, params.images)
    arranged, leading = _arrangement(params, path, there)
    done = brightest = 0
    for chunk in array_chunks(path, params.images, rows_of(there, 8)):  # numbers may have 8 bytes
        pixels = as_pixels(chunk.reshape(-1, *there[leading:]), path, done)
        done, brightest = done + len(pixels), max(brightest, int(pixels.max(initial=0)))
        yield arranged(_whitened(pixels) if params.binary else pixels)
    if brightest == 1 and chunk.dtype.kind in "iu" and not params.binary:
        raise DataError(f"{path}: whole numbers must be pixels from 0 to 255, but are 0 and 1; set binary: true")


def _labels(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (m, k, 1, 4)"""
    (path,), key, sizes = paths, str(params.labels), np.array(params.factor_sizes)
    there, expected = array_shape(path, key), (params.count, len(sizes))
    if there != expected:
        raise DataError(f"{path}: '{key}' must be {expected}, a row for each image, but is {there}")
    done = 0
    for chunk in array_chunks(path, key, ROWS):
        wrong = ~((chunk >= 0) & (chunk < sizes) & (chunk == np.floor(chunk)))  # also of a NaN
        if wrong.any():
            row, factor = np.argwhere(wrong)[0]
            name = params.factor_names[factor]
            raise DataError(f"{path}: '{key}' must have whole numbers from 0 to {sizes[factor] - 1} for the factor "
                            f"'{name}', but image {done + row} has {chunk[row, factor]}")  # fmt: skip
        done += len(chunk)
        yield np.ascontiguousarray(chunk.astype("<i4"))[:, :, None].view(np.uint8).reshape(len(chunk), len(sizes), 1, 4)


def _whitened(pixels: np.ndarray) -> np.ndarray:
    return np.where(pixels == 1, np.uint8(255), pixels)


def _arrangement(params: Params, path: Path, there: tuple[int, ...]) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """The function that converts the file's images to (m, c, h, w), and how many axes come before those of an image."""
    (channels, height, width), sizes = params.image_shape, tuple(params.factor_sizes)
    layouts: list[tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = [
        ((height, width, channels), channels_first),  # first, so that it applies to a cube
        ((channels, height, width), np.ascontiguousarray),
    ]
    if channels == 1:
        layouts.append(((height, width), channels_first))
    for leading in ((_count(params),), *([] if params.labels else [sizes])):
        for layout, arranged in layouts:
            if there == leading + layout:
                return arranged, len(leading)
    known = " or ".join(str((_count(params), *layout)) for layout, _ in layouts)
    if params.labels:
        raise DataError(f"{path}: '{params.images}' must be {known} for count {params.count}, but is {there}")
    raise DataError(
        f"{path}: '{params.images}' must be {known} for factor_sizes {list(sizes)} and image_shape "
        f"{params.image_shape}, or have one axis per factor instead of the first, but is {there}"
    )


DATASET = Dataset(
    name="grid_file",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(params.factor_names),
    open=GridFile,
    sources=sources,
    count=lambda params: params.count,
)
