"""Sprites2D: our substitute for dSprites: a white square, ellipse or heart with smooth edges; needs no download.

The factors are those of dSprites (Matthey et al., 2017). All shapes touch the same circle, around whose centre they
turn; its diameter at the largest scale is half the image. Scales grow evenly from 0.5 to 1; a single one is 0.5.
Orientation k of n is k / n of a full turn anticlockwise, so unlike in dSprites none comes twice; a square looks the
same after each quarter turn, an ellipse after each half. Positions are whole pixels apart, evenly spaced and centred, x
to the right and y downwards. A pixel is the share of its 8 x 8 sample points that lie inside the shape.
"""

from collections.abc import Callable

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.drawn import DrawnImages
from disentune.data.moments import Moments, statistics
from disentune.data.moving import shifted
from disentune.data.positions import corners, most_places
from disentune.plugin import Count, Dataset, Frozen, Shape, Statistics

FACTORS: tuple[str, ...] = ("shape", "scale", "orientation", "position_x", "position_y")
SMALLEST = 0.5
"""The first scale; the last is 1."""
SAMPLES = 8
"""Sample points along a side of a pixel."""
INSIDE = 1 - 1e-9
"""Shapes are smaller by this, so that a point exactly on the edge is outside, however a machine rounds."""


class Params(Frozen):
    """Image size in pixels, and the numbers of scales, orientations and positions along each axis."""

    image_size: Count = Field(64, ge=8, le=128, description="pixels along a side of the image")
    scales: Count = Field(6, ge=1, validate_default=True, description="number of scales")
    orientations: Count = Field(40, ge=1, le=360, description="number of orientations")
    positions: Count = Field(32, ge=1, validate_default=True, description="number of positions along each axis")

    @field_validator("scales")
    @classmethod
    def _differ(cls, scales: int, others: ValidationInfo) -> int:
        """Neighbouring scales are at least a quarter of a pixel apart in radius."""
        image = others.data.get("image_size", 2 * scales)
        if scales > image // 2:
            raise ValueError(
                f"must be 1 to {image // 2}, half the image_size, so that scales look different, but is {scales}"
            )
        return scales

    @field_validator("positions")
    @classmethod
    def _fit(cls, positions: int, others: ValidationInfo) -> int:
        if "image_size" not in others.data:
            return positions  # a wrong size is reported separately
        image = others.data["image_size"]
        most = most_places(image, image // 2, 1)
        if positions > most:
            raise ValueError(f"must be 1 to {most}, whole pixels apart with image_size {image}, but is {positions}")
        return positions

    @property
    def box(self) -> int:
        """Side of the square that contains a sprite at any orientation."""
        return self.image_size // 2

    @property
    def corners(self) -> np.ndarray:
        """First pixel of the box at each position along an axis."""
        step = (self.image_size - self.box) // max(self.positions - 1, 1)
        return corners(self.image_size, self.box, step, self.positions)


def opened(params: Params) -> DrawnImages:
    size, corners, sprites = params.image_size, params.corners, drawn(params)
    room = size - params.box
    pictures = np.pad(sprites, [(0, 0), (0, room), (0, room)])
    table = shifted(pictures, corners[-1] * size + corners[-1])
    sizes = factor_sizes(params)

    def draw(factors: np.ndarray) -> np.ndarray:
        *sprite, x, y = factors.T
        which = np.ravel_multi_index(tuple(sprite), sizes[:3])
        found: np.ndarray = table[which, corners[y] * size + corners[x]].reshape(-1, 1, size, size)
        return found

    factors = dict(zip(FACTORS, sizes, strict=True))
    return DrawnImages((opened, params), factors, shape(params), _measured(sprites, size**2), draw, ("shape",))


def shape(params: Params) -> Shape:
    return (1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (len(SHAPES), params.scales, params.orientations, params.positions, params.positions)


# ---- shapes inside the unit circle: coordinates x (to the right) and y (upwards) -> whether they lie inside


def _square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.maximum(np.abs(x), np.abs(y)) <= np.sqrt(0.5)
    return found


def _ellipse(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x**2 + (y / 0.6) ** 2 <= 1


def _heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A square on its corner with a half disc on each upper side; both discs and the lower corner touch the circle.

    With sides of 2, let the square's axes be u and v, its centre 0, its lower corner (-1, -1) and the discs' centres
    (1, 0) and (0, 1). A circle around (t, t) touches all three when its radius is sqrt(2) * (t + 1) and also
    1 + sqrt(t**2 + (1 - t)**2), so t = (sqrt(2) - 1) / (3 - sqrt(2)).
    """
    t = (np.sqrt(2) - 1) / (3 - np.sqrt(2))
    radius = np.sqrt(2) * (t + 1)
    u, v = t + radius * np.sqrt(0.5) * (y + x), t + radius * np.sqrt(0.5) * (y - x)
    square = np.maximum(np.abs(u), np.abs(v)) <= 1
    found: np.ndarray = square | ((u - 1) ** 2 + v**2 <= 1) | (u**2 + (v - 1) ** 2 <= 1)
    return found


SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "square": _square,
    "ellipse": _ellipse,
    "heart": _heart,
}


# ---- drawing


def drawn(params: Params) -> np.ndarray:
    """Sprites in their boxes, uint8 (shapes * scales * orientations, box, box).

    Every shape is its own mirror image, so turning it the other way mirrors it: half the orientations give the rest.
    """
    n, box = params.orientations, params.box
    radii = np.linspace(SMALLEST, 1, params.scales) * box / 2
    angles = 2 * np.pi * np.arange(n // 2 + 1) / n
    sprites = [_sprite(inside, box, r, angle) for inside in SHAPES.values() for r in radii for angle in angles]
    half = np.stack(sprites).reshape(-1, len(angles), box, box)
    other = half[:, (n - 1) // 2 : 0 : -1, :, ::-1]
    return np.concatenate([half, other], axis=1).reshape(-1, box, box)


def _sprite(inside: Callable[..., np.ndarray], box: int, radius: float, angle: float) -> np.ndarray:
    """uint8 (box, box)"""
    margin = int(box / 2 - radius)
    side = box - 2 * margin
    x = ((np.arange(side * SAMPLES) + 0.5) / SAMPLES - side / 2) / (INSIDE * radius)
    y = -x[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    covered = inside(x * cos + y * sin, y * cos - x * sin)
    counts = covered.reshape(side, SAMPLES, -1).sum(axis=1, dtype=np.uint8).reshape(side, side, SAMPLES).sum(axis=2)
    return np.pad(np.rint(counts * (255 / SAMPLES**2)).astype(np.uint8), margin)


def _measured(sprites: np.ndarray, pixels: int) -> Statistics:
    """Exact, because every sprite occurs at every position without being cropped, and sums are of integers."""
    flat = sprites.reshape(len(sprites), -1).astype(np.int64)
    sums, squares = flat.sum(axis=1), (flat**2).sum(axis=1)
    deviations = np.sqrt((pixels * squares - sums**2) / (pixels * (pixels - 1))) / 255
    return statistics([Moments(float((sums / (255 * pixels)).mean()), float(deviations.mean()))])


DATASET = Dataset(name="sprites2d", params=Params, shape=shape, factor_sizes=factor_sizes, open=opened)
