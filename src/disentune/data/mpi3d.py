"""Shared by the three MPI3D data sets: the factors, the file format and the download addresses."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from disentune.data.prepared.formats import as_pixels, assert_images, channels_first, npz_chunks, rows_of
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import File, Frozen, Shape, Source, Statistics

Objects = Literal[6, 4]
"""Numbers of colours and shapes that the object can have."""

_OTHERS = {"object_size": 2, "camera_height": 3, "background_color": 3, "first_dof": 40, "second_dof": 40}
FACTORS: dict[int, dict[str, int]] = {
    objects: {"object_color": objects, "object_shape": objects, **_OTHERS} for objects in (6, 4)
}
CATEGORICAL = ("object_shape",)
"""As in Klindt et al. (ICLR 2021), where pairs move along colours, although colours have no natural order."""
SHAPE: Shape = (3, 64, 64)
AUTHORS = "https://huggingface.co/datasets/waleedgondal/mpi3d/resolve/main"
BUCKETS = "https://storage.googleapis.com"


class Params(Frozen):
    """Object colours and shapes: 6 in the published files, 4 in those of the NeurIPS 2019 challenge."""

    objects: Objects = Field(
        6, description="object colours and shapes: 6 as published, 4 in the NeurIPS 2019 challenge"
    )


def complete(name: str, moved: str, md5: str) -> File:
    """All 6 colours and shapes, with the md5 of the file of 2019.

    The authors' current files may be different files with the same images, so these are checked by the published
    statistics. The bucket of 2024 comes last and must match the md5, because its `real.npz` was reported to be damaged.
    """
    present, bucket = f"{AUTHORS}/{name}", f"{BUCKETS}/mpi3d_disentanglement_dataset/data/{moved}"
    also = (moved,) if moved != name else ()
    return File(name=name, urls=(present, bucket), md5=md5, republished=(present,), also=also)


def of_the_challenge(part: str) -> File:
    """The 4 colours and shapes that disentanglement_lib reads; its address has not answered since 2023."""
    name = f"sim_{part}_64x_ordered_without_heldout_factors.npz"
    return File(name=name, urls=(f"{BUCKETS}/disentanglement_dataset/data_npz/{name}",))


def source(name: str, file: File, objects: Objects, published: Statistics | None) -> Source:
    sizes = tuple(FACTORS[objects].values())
    return Source(
        name=name,
        files=(file,),
        read=partial(read, sizes),
        shape=SHAPE,
        count=math.prod(sizes),
        variant="" if objects == 6 else f"{objects}_objects",
        options="" if objects == 6 else f"--set objects={objects}",
        published=published,
    )


def read(sizes: tuple[int, ...], paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (m, 3, 64, 64). The file has no labels; factors may be one axis or an axis each."""
    (path,) = paths
    image = (*SHAPE[1:], SHAPE[0])
    assert_images(path, "images", [(math.prod(sizes), *image), (*sizes, *image)])
    done = 0
    for chunk in npz_chunks(path, "images", rows_of((1, *image)), axes=3):
        yield channels_first(as_pixels(chunk, path, done))
        done += len(chunk)


def opened(source: Source, objects: Objects) -> StoredImages:
    return StoredImages(source, FACTORS[objects], CATEGORICAL)


def shape(params: Frozen) -> Shape:
    return SHAPE


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS[params.objects].values())
