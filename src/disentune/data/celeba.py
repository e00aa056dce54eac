"""CelebA: Liu et al., ICCV 2015: 202,599 aligned faces, without known factors; from a folder or ZIP file of yours.

Its hosts ask for a visit by hand: put `img_align_celeba.zip`, or the folder of its images, into the data root. The
images are 178 pixels wide and 218 high. Published experiments cut out different squares before they shrink them, so
numbers of two crops do not compare; without one the whole image is squeezed into a square.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import Field

from disentune.data.prepared.photographs import Wanted, photographs
from disentune.data.prepared.resizing import Filter
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source

COUNT = 202_599
HEIGHT, WIDTH = 218, 178
FILE = File("img_align_celeba.zip", also=("img_align_celeba",), folder=True)


class Params(Frozen):
    image_size: Count = Field(64, ge=1, le=WIDTH, description="pixels along a side")
    crop: Count | None = Field(
        None,
        ge=1,
        le=WIDTH,
        description="side of the central square to keep; null: the whole image, squeezed to a square",
    )
    resize: Filter = Field("bilinear", description="filter that shrinks the images")


def shape(params: Params) -> Shape:
    return 3, params.image_size, params.image_size


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    wanted = Wanted("RGB", params.image_size, (HEIGHT, WIDTH), params.crop, params.resize)
    return photographs(paths[0], COUNT, wanted)


def source(params: Params) -> Source:
    return Source(
        name="celeba",
        files=(FILE,),
        read=partial(_images, params),
        shape=shape(params),
        count=COUNT,
        variant=f"{params.image_size}_{params.crop or 'whole'}_{params.resize}",
        options=" ".join(f"--set {key}={value}" for key, value in params.model_dump(exclude_defaults=True).items()),
    )


def opened(params: Params) -> StoredImages:
    return StoredImages(source(params), {})


DATASET = Dataset(
    name="celeba",
    params=Params,
    shape=shape,
    factor_sizes=lambda params: (),
    open=opened,
    sources=lambda params: (source(params),),
    count=lambda params: COUNT,
)
