"""Positions of squares along an axis, as in Michlo et al., IJCAI 2023, section 5.1: evenly spaced and centred."""

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.moving import shifted
from disentune.plugin import Count, Frozen


class Placement(Frozen):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many positions as fit."""

    image_size: Count = Field(
        64, ge=1, le=1024, description="pixels along a side of the image"
    )  # 1024**6 combinations still have an int64 index
    square_size: Count = Field(
        8, ge=1, validate_default=True, description="pixels along a side of a square, or the width of a column"
    )
    spacing: Count | None = Field(
        None,
        ge=1,
        description="pixels between neighbouring positions; null: square_size, so that squares do not overlap",
    )
    grid_size: Count | None = Field(
        None, ge=1, validate_default=True, description="positions along an axis; null: as many as fit"
    )

    @field_validator("square_size")
    @classmethod
    def _inside(cls, square: int, others: ValidationInfo) -> int:
        image = others.data.get("image_size", square)
        if square > image:
            raise ValueError(f"must be 1 to {image}, the image_size, but is {square}")
        return square

    @field_validator("grid_size")
    @classmethod
    def _fits(cls, grid: int | None, others: ValidationInfo) -> int | None:
        if not {"image_size", "square_size", "spacing"} <= set(others.data):
            return grid  # a wrong size is reported separately
        image, square = others.data["image_size"], others.data["square_size"]
        spacing = others.data["spacing"] or square
        most = most_places(image, square, spacing)
        if grid is None and most == 1 < image // square:
            raise ValueError(
                f"is not set, and with spacing {spacing} only one position fits in {image} pixels, so nothing can move"
            )
        if grid is not None and grid > most:
            world = f"image_size {image}, square_size {square} and spacing {spacing}"
            raise ValueError(f"must be 1 to {most}, as many as fit with {world}, but is {grid}")
        return grid

    @property
    def step(self) -> int:
        """Pixels between neighbouring positions."""
        return self.spacing or self.square_size

    @property
    def places(self) -> int:
        """Positions along one axis."""
        return self.grid_size or most_places(self.image_size, self.square_size, self.step)

    @property
    def corners(self) -> np.ndarray:
        """First pixel of each position along an axis."""
        return corners(self.image_size, self.square_size, self.step, self.places)


def most_places(image: int, square: int, step: int) -> int:
    return (image - square) // step + 1


def corners(image: int, square: int, step: int, places: int) -> np.ndarray:
    """First pixel of each position (places,), centred; an odd remaining pixel goes to the far end."""
    extent = square + (places - 1) * step
    return (image - extent) // 2 + step * np.arange(places)


def placed(params: Placement, rows: int) -> np.ndarray:
    """A white block, square_size wide and `rows` high, at each corner y * w + x: uint8 (corners, h * w)."""
    size, last = params.image_size, params.corners[-1]
    picture = np.zeros((1, size, size), np.uint8)
    picture[0, :rows, : params.square_size] = 255
    found: np.ndarray = shifted(picture, min(last, size - rows) * size + last)[0]
    return found


def in_channels(blocks: np.ndarray, rgb: bool) -> np.ndarray:
    """Up to 3 blocks (n, m, h, w) -> (n, 3 or 1, h, w): each in its own channel, or all merged into one."""
    if not rgb:
        found: np.ndarray = blocks.max(axis=1, keepdims=True)
        return found
    empty = 3 - blocks.shape[1]
    return np.pad(blocks, [(0, 0), (0, empty), (0, 0), (0, 0)]) if empty else blocks
