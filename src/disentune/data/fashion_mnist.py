"""Fashion-MNIST: Xiao et al., arXiv 2017: 70,000 grey images of clothes, 28 x 28, without known factors.

Mathieu et al., ICML 2019, released their experiment on sparsity with it, enlarged to 32 x 32 pixels. The class of a
piece of clothing is not read: it is one label, not the factors of an image.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Literal

import numpy as np
from pydantic import Field

from disentune.data.prepared.resizing import Filter, made, resized
from disentune.data.prepared.stored import StoredImages
from disentune.data.prepared.unpacking import unpacked
from disentune.errors import DataError
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source

ORIGINAL = 28
COUNTS = {"train": 60_000, "t10k": 10_000}
MD5 = {"train": "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "t10k": "bef4ecab320f06d8554ea6380940ec79"}
PLACES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
UNSIGNED = 0x08
"""The third byte of an IDX file of bytes."""
ROWS = 4096


class Params(Frozen):
    split: Literal["train", "test", "both"] = Field("train", description="60,000 images, 10,000, or both in this order")
    image_size: Count = Field(32, ge=1, le=128, description="pixels along a side; 28 keeps the images as they are")
    resize: Filter = Field("bilinear", description="filter that resizes the images")

    @property
    def parts(self) -> tuple[str, ...]:
        """The splits as the files name them."""
        return {"train": ("train",), "test": ("t10k",), "both": ("train", "t10k")}[self.split]


def shape(params: Params) -> Shape:
    return 1, params.image_size, params.image_size


def count(params: Params) -> int:
    return sum(COUNTS[part] for part in params.parts)


def source(params: Params) -> Source:
    return Source(
        name="fashion_mnist",
        files=tuple(_file(part) for part in params.parts),
        read=partial(_images, params),
        shape=shape(params),
        count=count(params),
        variant=f"{params.split}_{made(params.image_size, ORIGINAL, params.resize)}",
        options=" ".join(f"--set {key}={value}" for key, value in params.model_dump(exclude_defaults=True).items()),
    )


def _file(part: str) -> File:
    name = f"{part}-images-idx3-ubyte.gz"
    return File(name, tuple(place + name for place in PLACES), MD5[part], also=(name.removesuffix(".gz"),))


def opened(params: Params) -> StoredImages:
    return StoredImages(source(params), {})


# ---- reading the files


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    for part, path in zip(params.parts, paths, strict=True):
        for chunk in idx_chunks(path, (COUNTS[part], ORIGINAL, ORIGINAL)):
            yield resized(chunk, params.image_size, params.resize)


def idx_chunks(path: Path, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """A file of bytes along its first axis, packed or not; DataError unless it has this type and shape.

    The format: two zeros, the type, the number of axes, their sizes as big-endian int32, then the numbers, the last
    axis fastest.
    """
    with unpacked(path) as file:
        _assert_header(path, file, shape)
        row_bytes = math.prod(shape[1:])
        for start in range(0, shape[0], ROWS):
            rows = min(ROWS, shape[0] - start)
            content = file.read(rows * row_bytes)
            if len(content) != rows * row_bytes:
                ends = start + len(content) // row_bytes
                raise DataError(f"{path}: must have {shape[0]} images, but is cut off in image {ends}")
            yield np.frombuffer(content, np.uint8).reshape(rows, *shape[1:])
        if file.read(1):
            raise DataError(f"{path}: must have {shape[0]} images, but has more")


def _assert_header(path: Path, file: IO[bytes], shape: tuple[int, ...]) -> None:
    wanted = bytes([0, 0, UNSIGNED, len(shape)]) + struct.pack(f">{len(shape)}i", *shape)
    found = file.read(len(wanted))
    if found != wanted:
        raise DataError(f"{path}: must be an IDX file of {_header(wanted)}, but {_described(found)}")


def _described(found: bytes) -> str:
    if len(found) < 4 or found[:2] != b"\0\0":
        return f"begins with {found[:8]!r}" if found else "is empty"
    return f"has {_header(found)}"


def _header(header: bytes) -> str:
    """`type 0x08 (bytes), 60000 x 28 x 28`"""
    kind, sizes = header[2], header[4:]
    axes = [str(size) for (size,) in struct.iter_unpack(">i", sizes[: len(sizes) // 4 * 4])][: header[3]]
    return f"type {kind:#04x}{' (bytes)' if kind == UNSIGNED else ''}, {' x '.join(axes)}"


DATASET = Dataset(
    name="fashion_mnist",
    params=Params,
    shape=shape,
    factor_sizes=lambda params: (),
    open=opened,
    sources=lambda params: (source(params),),
    count=count,
)
