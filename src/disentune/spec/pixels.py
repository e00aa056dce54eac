"""The keys of a trial's `dataset` section that every data set shares."""

from typing import Literal

from pydantic import Field

from disentune.maths.laws import HeldOut, Law
from disentune.plugin import Frozen, added


class Pixels(Frozen):
    """How the images of a data set are transformed and how often each is drawn; part of a trial's `dataset` section."""

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
    law: Law | None = added(
        None, description="how often training draws each combination of factors; null: all equally often"
    )
    held_out: HeldOut | None = added(
        None,
        description="what training never sees: a formula of the factors, such as shape == 1 and colour >= 0.5, or a "
        "split by name; a factor beside a whole number is the index of its value, else its place from 0.0 to 1.0",
    )
