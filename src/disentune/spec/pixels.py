"""The keys of a trial's `dataset` section that every data set shares."""

from typing import Literal

from pydantic import Field

from disentune.plugin import Frozen


class Pixels(Frozen):
    """How the images of a data set are transformed; part of a trial's `dataset` section."""

    transform: Literal["standardise", "unit"] = Field(
        "standardise", description="unit: pixels in [0, 1]; standardise: mean 0 and standard deviation 1"
    )
    statistics: Literal["computed", "published"] = Field(
        "computed", description="standardise with statistics computed from the images, or with the published constants"
    )
    noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="amplitude of uniform noise on pixels in [0, 1], fixed for each image (Zietlow et al. 2021)",
    )
