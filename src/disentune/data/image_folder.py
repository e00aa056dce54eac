"""Image folder: your own JPEG, PNG or BMP images without known factors, in a folder or a ZIP file.

Images are taken in the order of their names, also from folders below, and must all have one size. `count` is part of a
trial's identity: a folder that grew is another data set.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from disentune.data.own_files import Contents, OwnImages, OwnPath, Sides, as_shape
from disentune.data.prepared.photographs import Wanted, photographs
from disentune.data.prepared.spelling import options
from disentune.plugin import Count, Dataset, File, Frozen, Shape, Source


def _grey_or_colour(shape: list[int]) -> list[int]:
    if shape[0] not in (1, 3):
        raise ValueError(f"must have 1 channel (grey) or 3 (red, green, blue), but is {shape}")
    return shape


class Params(Frozen):
    path: OwnPath = Field(description="the folder or ZIP file: absolute, or below the data root or the working folder")
    count: Count = Field(ge=1, description="how many images there are")
    image_shape: Annotated[Sides, AfterValidator(_grey_or_colour)] = Field(
        description="channels, height, width: 1 channel makes colours grey, 3 make grey images coloured"
    )
    resize: Literal["none", "bilinear", "lanczos"] = Field(
        "none", description="filter that resizes images of one size to height x width; none: they must have it already"
    )
    contents: Contents = Field(
        None, description="first 12 or more digits of the sha256 in about.json: other contents are refused"
    )


def shape(params: Params) -> Shape:
    return as_shape(params.image_shape)


def _images(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    channels, height, width = params.image_shape
    mode: Literal["L", "RGB"] = "L" if channels == 1 else "RGB"
    if params.resize == "none":
        wanted = Wanted(mode, (height, width), (height, width))
    else:
        wanted = Wanted(mode, (height, width), filter_=params.resize)
    return photographs(paths[0], params.count, wanted)


def source(params: Params) -> Source:
    return Source(
        name="image_folder",
        files=(File(params.path, folder=True),),
        read=partial(_images, params),
        shape=shape(params),
        count=params.count,
        variant=_variant(params),
        options=options(params, without=("contents",)),
    )


def _variant(params: Params) -> str:
    """A hash of everything that the array depends on, so that no part of the user's path becomes part of ours."""
    made_of = params.model_dump(exclude={"contents"})
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


class ImageFolder(OwnImages):
    def __init__(self, params: Params):
        super().__init__(source(params), {})
        self._params = params
        self.assert_contents(params.path, params.contents, source(params))

    def __reduce__(self) -> tuple[type["ImageFolder"], tuple[Params]]:
        return ImageFolder, (self._params,)


DATASET = Dataset(
    name="image_folder",
    params=Params,
    shape=shape,
    factor_sizes=lambda params: (),
    open=ImageFolder,
    sources=lambda params: (source(params),),
    count=lambda params: params.count,
)
