"""XYObject: Michlo et al., IJCAI 2023, their code: one square of several sizes and colours at every position of a grid.

A palette `NAME_LEVELS` has the colours of NAME at LEVELS brightnesses, darkest first; level i has the brightness
255 * i // LEVELS. The colours, in this order: `greys` white; `rgb` red, green, blue; `rainbow` red, yellow, green,
cyan, blue, magenta; `colors` red, green, blue, yellow, cyan, magenta, white.
"""

from typing import Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.drawn import DrawnImages
from disentune.data.moments import Moments, of_binary, statistics
from disentune.data.moving import shifted
from disentune.data.positions import Placement
from disentune.plugin import Count, Dataset, Shape, Statistics, added

FACTORS: tuple[str, ...] = ("x", "y", "scale", "colour")
PUBLISHED = Statistics((0.009818761549013288,) * 3, (0.05263236372524584,) * 3)
COLOURS = {"greys": "W", "rgb": "RGB", "rainbow": "RYGCBM", "colors": "RGBYCMW"}
CHANNELS = {
    "R": (1, 0, 0), "G": (0, 1, 0), "B": (0, 0, 1), "Y": (1, 1, 0), "C": (0, 1, 1), "M": (1, 0, 1), "W": (1, 1, 1),
}  # fmt: skip
Palette = Literal[
    "greys_1", "greys_2", "greys_4", "rgb_1", "rgb_2", "rgb_4",
    "rainbow_1", "rainbow_2", "rainbow_4", "colors_1", "colors_2", "colors_4",
]  # fmt: skip


class Params(Placement):
    """Sizes in pixels. square_size is the size of the largest square, which sets the positions as in XYSquares. Smaller
    squares, each by scale_spacing, are centred in it. In disent positions are not centred: the first one is at the
    first pixel."""

    square_size: Count = Field(15, ge=1, validate_default=True, description="pixels along a side of the largest square")
    spacing: Count | None = Field(2, ge=1, description="pixels between neighbouring positions; null: square_size")
    scales: Count = Field(5, ge=1, description="number of sizes")
    scale_spacing: Count = Field(
        2, ge=1, validate_default=True, description="difference in pixels between neighbouring sizes"
    )
    palette: Palette = Field(
        "rainbow_4", description="colours and number of brightness levels: rgb_4 has red, green and blue in 4 levels"
    )
    centred: bool = added(
        True, description="centre the positions in the image; false: start at the first pixel, as in disent"
    )

    @field_validator("scale_spacing")
    @classmethod
    def _leaves_a_square(cls, spacing: int, others: ValidationInfo) -> int:
        if not {"square_size", "scales"} <= set(others.data):
            return spacing  # a wrong size is reported separately
        square, scales = others.data["square_size"], others.data["scales"]
        smallest = square - (scales - 1) * spacing
        if smallest < 1:
            raise ValueError(
                f"{scales} scales that shrink by {spacing} from square_size {square} end at {smallest} pixels, but "
                f"the smallest must have 1 or more"
            )
        return spacing

    @property
    def corners(self) -> np.ndarray:
        """First pixel of each position along an axis."""
        return super().corners if self.centred else self.step * np.arange(self.places)

    @property
    def sizes(self) -> np.ndarray:
        """Sides of the squares in increasing order."""
        return self.square_size - self.scale_spacing * np.arange(self.scales)[::-1]

    @property
    def levels(self) -> int:
        """Brightnesses of each colour."""
        return int(self.palette.split("_")[1])

    @property
    def colours(self) -> np.ndarray:
        """uint8 (levels * colours, 3)"""
        bright = np.array([CHANNELS[colour] for colour in COLOURS[self.palette.split("_")[0]]])
        levels = 255 * np.arange(1, self.levels + 1) // self.levels
        found: np.ndarray = (levels[:, None, None] * bright).reshape(-1, 3).astype(np.uint8)
        return found


def opened(params: Params) -> DrawnImages:
    size, corners, colours, table = params.image_size, params.corners, params.colours, _placed(params)

    def draw(factors: np.ndarray) -> np.ndarray:
        x, y, scale, colour = factors.T
        masks = table[scale, corners[y] * size + corners[x]]
        found: np.ndarray = (masks[:, None] * colours[colour][:, :, None]).reshape(-1, 3, size, size)
        return found

    factors = dict(zip(FACTORS, factor_sizes(params), strict=True))
    categorical = () if params.palette.startswith("greys") else ("colour",)  # a grey is an intensity
    return DrawnImages((opened, params), factors, shape(params), measured(params), draw, categorical)


def shape(params: Params) -> Shape:
    return (3, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places, params.places, params.scales, len(params.colours))


def _placed(params: Params) -> np.ndarray:
    """Ones where a square is, for each scale at each corner y * w + x: uint8 (scales, corners, h * w)."""
    pictures = np.zeros((params.scales, params.image_size, params.image_size), np.uint8)
    for picture, size in zip(pictures, params.sizes, strict=True):
        margin = (params.square_size - size) // 2
        picture[margin : margin + size, margin : margin + size] = 1
    last = params.corners[-1]
    return shifted(pictures, last * params.image_size + last)


def measured(params: Params) -> Statistics:
    """Every size occurs in every colour, so a channel is the white square times its mean brightness."""
    white = of_binary(params.image_size**2, params.sizes**2)
    brightness = (params.colours / 255).mean(axis=0)
    return statistics(Moments(float(share * white.mean), float(share * white.std)) for share in brightness)


def published(params: Params) -> Statistics | None:
    """Moments that do not depend on the positions of the squares."""
    return PUBLISHED if params.model_copy(update={"centred": True}) == Params() else None


DATASET = Dataset(
    name="xy_object", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened, published=published
)
