"""SmallNORB: LeCun et al., CVPR 2004: 50 toys photographed under 6 lights from 18 sides and 9 heights.

Images of the first of two cameras. The files are in no useful order; their labels give the position of each image.
Lights have no meaningful order either, but published pairs of images move along them (Klindt et al., ICLR 2021), so
only category and instance are categorical here.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Literal

import numpy as np
from pydantic import Field

from disentune.data.factors import FactorGrid
from disentune.data.noise import fractions, noise_keys
from disentune.data.prepared.resizing import Filter, made, resized
from disentune.data.prepared.stored import StoredImages
from disentune.data.prepared.unpacking import unpacked
from disentune.errors import DataError
from disentune.plugin import Count, Dataset, FactorImages, File, Frozen, Shape, Source, Statistics

FACTORS = {"category": 5, "instance": 10, "elevation": 9, "azimuth": 18, "lighting": 6}
INSTANCES = {"training": (4, 6, 7, 8, 9), "testing": (0, 1, 2, 3, 5)}
"""The toys of each category in a split."""
CAMERAS, ORIGINAL = 2, 96
PUBLISHED: Statistics | None = Statistics((0.7520918401088603,), (0.09563879016827262,))
"""Statistics of the training split at 64 pixels, bilinear."""
PLACES = ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/", "https://cs.nyu.edu/~yann/data/norb-v1.0-small/")
MD5 = {
    "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz": "66054832f9accfe74a0f4c36a75bc0a2",
    "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat.gz": "23c8b86101fbf0904a000b43d3ed2fd9",
    "smallnorb-5x46789x9x18x6x2x96x96-training-info.mat.gz": "51dee1210a742582ff607dfd94e332e3",
    "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat.gz": "e4ad715691ed5a3a5f138751a4ceb071",
    "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat.gz": "5aa791cd7e6016cf957ce9bdb93b8603",
    "smallnorb-5x01235x9x18x6x2x96x96-testing-info.mat.gz": "a9454f3864d7fd4bb3ea7fc3eb84924e",
}
"""Images, categories and the other labels of each split, compressed."""
MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}
"""The first bytes of a file with numbers of this type."""
ROWS = 512
"""Pairs of images read at a time, 9 MB."""


class Params(Frozen):
    split: Literal["both", "training"] = Field(
        "both", description="training: only the training split, with 5 instances, as in disent"
    )
    image_size: Count = Field(64, ge=1, le=ORIGINAL, description="pixels along a side; 96 keeps the original size")
    resize: Filter = Field("bilinear", description="bilinear as in disent, lanczos as in disentanglement_lib")
    instance: Literal["factor", "nuisance"] = Field(
        "factor", description="nuisance, as in disentanglement_lib: not a factor, but drawn at random for each image"
    )

    @property
    def splits(self) -> tuple[str, ...]:
        return ("training",) if self.split == "training" else ("training", "testing")

    @property
    def instances(self) -> list[int]:
        """Instance numbers in the files; their ranks are the factor's values."""
        return sorted(number for split in self.splits for number in INSTANCES[split])


def shape(params: Params) -> Shape:
    return 1, params.image_size, params.image_size


def stored_factors(params: Params) -> dict[str, int]:
    """Factors of the prepared array, which is the same whether instance is a factor or not."""
    return FACTORS | {"instance": len(params.instances)}


def factors(params: Params) -> dict[str, int]:
    stored = stored_factors(params)
    return {name: size for name, size in stored.items() if name != "instance" or params.instance == "factor"}


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(factors(params).values())


def published(params: Params) -> Statistics | None:
    is_theirs = (params.split, params.image_size, params.resize) == ("training", 64, "bilinear")
    return PUBLISHED if is_theirs else None


def source(params: Params) -> Source:
    chosen = params.model_dump(exclude_defaults=True, exclude={"instance"})
    return Source(
        name="smallnorb",
        files=tuple(_file(name) for name in MD5 if any(split in name for split in params.splits)),
        read=partial(_images, params),
        shape=shape(params),
        count=math.prod(stored_factors(params).values()),
        variant=f"{params.split}_{made(params.image_size, ORIGINAL, params.resize)}",
        options=" ".join(f"--set {key}={value}" for key, value in chosen.items()),
        published=published(params),
        tolerance=1e-3,  # versions of Pillow round differently
    )


def _file(name: str) -> File:
    return File(name, tuple(place + name for place in PLACES), MD5[name], also=(name.removesuffix(".gz"),))


# ---- opened


def opened(params: Params) -> FactorImages:
    return DrawnInstances(params) if params.instance == "nuisance" else _stored(params)


def _stored(params: Params) -> StoredImages:
    return StoredImages(source(params), stored_factors(params), ("category", "instance"))


class DrawnInstances:
    """Every image shows a random instance of its category."""

    noisy = True
    categorical: tuple[str, ...] = ("category",)

    def __init__(self, params: Params):
        self._params, self._stored = params, _stored(params)
        self._grid = FactorGrid(tuple(factors(params)), factor_sizes(params))
        self._stored_grid = FactorGrid(self._stored.factor_names, self._stored.factor_sizes)
        self.factor_names, self.factor_sizes = self._grid.names, self._grid.sizes
        self.shape, self.mean, self.std = self._stored.shape, self._stored.mean, self._stored.std

    def __reduce__(self) -> tuple[type["DrawnInstances"], tuple[Params]]:
        return DrawnInstances, (self._params,)

    def __len__(self) -> int:
        return len(self._grid)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, 1, h, w)"""
        values = self._grid.factors(indices)
        place = self._stored_grid.names.index("instance")
        drawn = fractions(noise_keys(indices, rng), 1)[:, 0] * self._stored_grid.sizes[place]
        whole = np.insert(values, place, drawn.astype(np.int64), axis=1)
        return self._stored.images(self._stored_grid.index(whole))


# ---- reading the files


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """Images in grid order, category by category.

    The files have a different order, so all images are held in memory: 0.2 GB for both splits at 64 pixels.
    """
    sizes = tuple(stored_factors(params).values())
    images = np.empty((math.prod(sizes), *shape(params)), np.uint8)
    for split, dat, cat, info in zip(params.splits, paths[::3], paths[1::3], paths[2::3], strict=True):
        cells, done = _cells(params, split, cat, info), 0
        for pairs in _matrix(dat, "u1", (len(cells), CAMERAS, ORIGINAL, ORIGINAL)):
            images[cells[done : done + len(pairs)]] = resized(pairs[:, 0], params.image_size, params.resize)
            done += len(pairs)
    yield from images.reshape(sizes[0], -1, *shape(params))


def _cells(params: Params, split: str, cat: Path, info: Path) -> np.ndarray:
    """The grid position of each image of a split; each cell of the split occurs exactly once."""
    stored = stored_factors(params)
    count = math.prod(stored.values()) // stored["instance"] * len(INSTANCES[split])
    category = _whole(cat, (count,))
    instance, elevation, azimuth, lighting = _whole(info, (count, 4)).T
    _assert_among(cat, "category", category, range(stored["category"]))
    _assert_among(info, "instance", instance, INSTANCES[split])
    _assert_among(info, "elevation", elevation, range(stored["elevation"]))
    _assert_among(info, "azimuth", azimuth, range(0, 2 * stored["azimuth"], 2))
    _assert_among(info, "lighting", lighting, range(stored["lighting"]))
    rank = np.searchsorted(params.instances, instance)
    cells = np.ravel_multi_index((category, rank, elevation, azimuth // 2, lighting), tuple(stored.values()))
    values, images = np.unique(cells, return_counts=True)
    if len(values) < len(cells):
        twice = np.flatnonzero(cells == values[images > 1][0])[:2]
        raise DataError(
            f"{info}: with {cat.name} there must be one image per combination of factors, but images {twice[0]} and "
            f"{twice[1]} have the same"
        )
    return cells


def _assert_among(path: Path, name: str, codes: np.ndarray, known: Sequence[int]) -> None:
    wrong = ~np.isin(codes, known)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{path}: {name} must be one of {', '.join(map(str, known))}, but image {row} has {codes[row]}")


def _whole(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(list(_matrix(path, "<i4", shape)))


def _matrix(path: Path, kind: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """A binary matrix, some rows at a time; raises DataError unless it has this type and shape.

    File format: an int32 for the type, an int32 number of axes, their sizes as int32 (at least three, padded with 1),
    then the numbers in row-major order; all little-endian.
    """
    with unpacked(path) as file:
        _assert_header(path, file, kind, shape)
        row_bytes = math.prod(shape[1:]) * np.dtype(kind).itemsize
        for start in range(0, shape[0], ROWS):
            rows = min(ROWS, shape[0] - start)
            content = file.read(rows * row_bytes)
            if len(content) != rows * row_bytes:
                raise DataError(
                    f"{path}: must have {shape[0]} rows, but ends in row {start + len(content) // row_bytes}"
                )
            yield np.frombuffer(content, kind).reshape(rows, *shape[1:])
        if file.read(1):
            raise DataError(f"{path}: must have {shape[0]} rows, but has more")


def _assert_header(path: Path, file: IO[bytes], kind: str, shape: tuple[int, ...]) -> None:
    content = file.read(4 * (2 + max(3, len(shape))))
    numbers = [number for (number,) in struct.iter_unpack("<I", content[: len(content) // 4 * 4])]
    wanted = [MAGIC[kind], len(shape), *shape]
    if numbers[: len(wanted)] != wanted:
        raise DataError(f"{path}: must be a NORB matrix whose header is {_header(wanted)}, but has {_header(numbers)}")


def _header(numbers: Sequence[int]) -> str:
    """`0x1e3d4c54, 2 axes, 24300 x 4`"""
    match numbers:
        case [magic, axes, *sizes]:
            return f"{magic:#010x}, {axes} axes, {' x '.join(map(str, sizes[:axes]))}"
    return "none"


DATASET = Dataset(
    name="smallnorb",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(factors(params)),
    open=opened,
    sources=lambda params: (source(params),),
    published=published,
    noisy=lambda params: params.instance == "nuisance",
)
