"""Shared by Falcor3D and Isaac3D: the format of their archives of 128 x 128 pixels.

A folder or ZIP file of images 000000.png and so on, numbered along the grid with the last factor fastest, and an array
of labels. Where the labels are, they must agree with the numbers.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from pydantic import Field

from disentune.data.prepared.formats import labels_span
from disentune.data.prepared.photographs import Wanted, collected, file_named, photographs
from disentune.data.prepared.resizing import Filter, made
from disentune.errors import DataError
from disentune.plugin import Count, File, Frozen, Shape, Source

ORIGINAL = 128


class Params(Frozen):
    image_size: Count = Field(64, ge=1, le=ORIGINAL, description="pixels along a side; 128 keeps the archive's size")
    resize: Filter = Field("bicubic", description="how images are made smaller; bicubic as in QLAE and Tripod")


def shape(params: Params) -> Shape:
    return 3, params.image_size, params.image_size


def source(name: str, file: File, labels: str, factors: Mapping[str, int], params: Params) -> Source:
    """`labels` is the name of the file of labels."""
    sizes = tuple(factors.values())
    return Source(
        name=name,
        files=(file,),
        read=partial(read, sizes, labels, params),
        shape=shape(params),
        count=math.prod(sizes),
        variant=made(params.image_size, ORIGINAL, params.resize),
        options=" ".join(f"--set {key}={value}" for key, value in params.model_dump(exclude_defaults=True).items()),
    )


def read(sizes: tuple[int, ...], labels: str, params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (m, 3, size, size), in the order of their numbers."""
    (path,), count = paths, math.prod(sizes)
    _assert_numbered(path, count)
    if (content := file_named(path, labels)) is not None:
        labels_span(_labels(content, f"{path}: {labels}", (count, len(sizes))), sizes, f"{path}: {labels}")
    wanted = Wanted("RGB", params.image_size, (ORIGINAL, ORIGINAL), filter_=params.resize)
    yield from photographs(path, count, wanted)


def _assert_numbered(path: Path, count: int) -> None:
    """Checks that the order of names is that of the grid: 10.png would come before 2.png."""
    with collected(path) as (names, _):
        for number, name in enumerate(names[:count]):
            if PurePosixPath(name).name != f"{number:06d}.png":
                raise DataError(
                    f"{path}: images must be named 000000.png to {count - 1:06d}.png, as in the archive, but "
                    f"{name} is in the place of {number:06d}.png"
                )


def _labels(content: bytes, where: str, expected: tuple[int, int]) -> np.ndarray:
    try:
        labels = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which can raise any error
        raise DataError(f"{where} cannot be read as an array ({error})") from None
    if not isinstance(labels, np.ndarray) or labels.shape != expected or labels.dtype.kind not in "iuf":
        found = f"{labels.shape} {labels.dtype}" if isinstance(labels, np.ndarray) else "several arrays"
        raise DataError(f"{where} must be numbers {expected}, but is {found}")
    return labels
