"""Grid file: your own HDF5 or NPZ file, with one image for each combination of its factors.

The images must be in the order of the grid, the last factor fastest: (n, h, w), (n, h, w, c) or (n, c, h, w), or with
one axis for each factor instead of n. Pixels: bytes, whole numbers from 0 to 255, numbers from 0 to 1, or booleans.
"""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.prepared.formats import (
    array_chunks,
    array_shape,
    as_pixels,
    channels_first,
    rows_of,
)
from disentune.data.prepared.stored import StoredImages
from disentune.errors import ConfigError, DataError
from disentune.files import documents
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source

Size = Annotated[Count, Field(ge=1)]
Side = Annotated[Count, Field(ge=1, le=2048)]


class Params(Frozen):
    path: str = Field(description="of the HDF5 or NPZ file: absolute, or below the data root")
    images: str = Field("images", min_length=1, description="name of the array in the file")
    factor_names: list[str] = Field(min_length=1)
    factor_sizes: list[Size] = Field(description="how many values each factor has; the last one varies fastest")
    image_shape: list[Side] = Field(min_length=3, max_length=3, description="channels, height, width")
    categorical: list[str] = Field([], description="factors whose values have no order")
    binary: bool = Field(False, description="whether pixels are black (0) or white (1 or 255): stored as bits")
    contents: str | None = Field(
        None, description="first 12 or more digits of the sha256 in about.json: other contents are refused"
    )

    @field_validator("path")
    @classmethod
    def _findable(cls, path: str) -> str:
        is_below = not path.startswith("~") and ".." not in PurePath(path).parts
        if not path.strip() or not (PurePath(path).is_absolute() or is_below) or "\0" in path:
            raise ValueError(f"must be absolute, or below the data root without '..' or '~', but is {path!r}")
        return path

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

    @field_validator("image_shape")
    @classmethod
    def _channels_first(cls, shape: list[int]) -> list[int]:
        if shape[0] > 4 >= shape[2]:
            meant = shape[2:] + shape[:2]
            raise ValueError(f"must be [channels, height, width], but is {shape}; did you mean {meant}?")
        return shape

    @field_validator("categorical")
    @classmethod
    def _known(cls, categorical: list[str], others: ValidationInfo) -> list[str]:
        names = others.data.get("factor_names")
        if names is not None and not set(categorical) <= set(names):
            raise ValueError(f"must be among factor_names ({', '.join(names)}), but is {categorical}")
        return categorical

    @field_validator("contents")
    @classmethod
    def _hash(cls, contents: str | None) -> str | None:
        if contents is not None and not re.fullmatch("[0-9a-f]{12,64}", contents):
            raise ValueError(f"must be 12 to 64 of the digits 0-9 and a-f, but is '{contents}'")
        return contents


def shape(params: Params) -> Shape:
    channels, height, width = params.image_shape
    return channels, height, width


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(params.factor_sizes)


# ---- the prepared array


def source(params: Params) -> Source:
    return Source(
        name="grid_file",
        files=(File(params.path),),
        read=partial(_images, params),
        shape=shape(params),
        count=math.prod(params.factor_sizes),
        variant=_variant(params),
        options=_options(params),
        binary=params.binary,
    )


def _variant(params: Params) -> str:
    """Of all that the array depends on; a hash, so no part of the user's path becomes part of ours."""
    made_of = params.model_dump(include={"path", "images", "factor_sizes", "image_shape", "binary"})
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _options(params: Params) -> str:
    """All that the array depends on and that is not as usual, so that the command is complete."""
    chosen = params.model_dump(exclude_defaults=True, exclude={"categorical", "contents"})
    return " ".join(f"--set {shlex.quote(f'{key}={_spelled(value)}')}" for key, value in chosen.items())


def _spelled(value: Any) -> str:
    """As YAML, which --set reads: the plainest text that means the value."""
    compact = partial(json.dumps, value, separators=(",", ":"))
    texts = [value] if isinstance(value, str) else []
    texts += [compact(ensure_ascii=False), compact()]  # JSON's escapes cover control characters, but no emoji
    return next((text for text in texts if _means(text, value)), texts[-1])


def _means(text: str, value: Any) -> bool:
    try:
        return bool(documents.parse(text, "").value == value)
    except ConfigError:
        return False


class GridFile(StoredImages):
    """Also where it is unpickled, on another node perhaps, only the contents that were asked for are taken."""

    def __init__(self, params: Params):
        factors = dict(zip(params.factor_names, params.factor_sizes, strict=True))
        super().__init__(source(params), factors, tuple(params.categorical))
        self._params = params
        found = self._prepared.about.sha256
        if not found.startswith(params.contents or ""):
            raise DataError(
                f"{params.path}: its images must have the sha256 {params.contents}, but have {found}; put the right "
                f"file there and run: {source(params).command} --again, or change `contents` if these are meant"
            )

    def __reduce__(self) -> tuple[type["GridFile"], tuple[Params]]:
        return GridFile, (self._params,)


# ---- reading the file


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """With one axis for each factor, the images of one value of the first factor are in memory at once."""
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


def _whitened(pixels: np.ndarray) -> np.ndarray:
    return np.where(pixels == 1, np.uint8(255), pixels)


def _arrangement(params: Params, path: Path, there: tuple[int, ...]) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """What makes the file's images (m, c, h, w), and how many axes come before those of an image."""
    (channels, height, width), sizes = params.image_shape, tuple(params.factor_sizes)
    layouts: list[tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = [
        ((height, width, channels), channels_first),  # first, so it is what a cube means
        ((channels, height, width), np.ascontiguousarray),
    ]
    if channels == 1:
        layouts.append(((height, width), channels_first))
    for leading in ((math.prod(sizes),), sizes):
        for layout, arranged in layouts:
            if there == leading + layout:
                return arranged, len(leading)
    known = " or ".join(str((math.prod(sizes), *layout)) for layout, _ in layouts)
    raise DataError(
        f"{path}: '{params.images}' must be {known} for factor_sizes {list(sizes)} and image_shape "
        f"{params.image_shape}, or have one axis for each factor instead of the first, but is {there}"
    )


DATASET = Dataset(
    name="grid_file",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    open=GridFile,
    sources=lambda params: (source(params),),
)
