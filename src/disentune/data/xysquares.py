"""XYSquares: Michlo et al., IJCAI 2023, section 5.1: squares on a grid whose spacing sets how much they overlap."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field, ValidationInfo, field_validator

from disentune.data.factors import FactorGrid
from disentune.data.union_areas import union_areas
from disentune.plugin import Count, Dataset, Frozen, Shape

FACTORS = ("x_R", "y_R", "x_G", "y_G", "x_B", "y_B")


class Params(Frozen):
    """Sizes in pixels; spacing defaults to square_size (no overlap), grid_size to as many places as fit."""

    image_size: Count = Field(64, ge=1, le=1024)  # 1024**6 combinations still have an int64 index
    square_size: Count = Field(8, ge=1, validate_default=True)
    spacing: Count | None = Field(None, ge=1)
    squares: Count = Field(3, ge=1, le=3)
    grid_size: Count | None = Field(None, ge=1, validate_default=True)
    rgb: bool = True

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
            return grid  # a wrong size has its own message
        image, square = others.data["image_size"], others.data["square_size"]
        spacing = others.data["spacing"] or square
        most = _most_places(image, square, spacing)
        if grid is None and most == 1 < image // square:
            raise ValueError(f"is not set, and spacing {spacing} leaves one place in {image} pixels: nothing can move")
        if grid is not None and grid > most:
            world = f"image_size {image}, square_size {square} and spacing {spacing}"
            raise ValueError(f"must be 1 to {most}, as many as fit with {world}, but is {grid}")
        return grid

    @property
    def step(self) -> int:
        """Pixels between neighbouring places."""
        return self.spacing or self.square_size

    @property
    def places(self) -> int:
        """Positions along one axis."""
        return self.grid_size or _most_places(self.image_size, self.square_size, self.step)


def _most_places(image: int, square: int, spacing: int) -> int:
    return (image - square) // spacing + 1


class XYSquares:
    """Square i is drawn in channel i; when grey, all share one channel and merge where they meet."""

    def __init__(self, params: Params):
        self.params = params
        self.factor_names = FACTORS[: 2 * params.squares]
        self.factor_sizes = factor_sizes(params)
        self.categorical: tuple[str, ...] = ()
        self.noisy = False
        self.shape = shape(params)
        self.mean, self.std = statistics(params)
        self._grid = FactorGrid(self.factor_names, self.factor_sizes)
        self._columns = _columns(params)
        self._starts = params.image_size - params.square_size - _corners(params)

    def __reduce__(self):
        return XYSquares, (self.params,)

    def __len__(self) -> int:
        return len(self._grid)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w), 0 or 255."""
        factors = self._grid.factors(indices)
        squares = self._columns[factors[:, ::2], self._starts[factors[:, 1::2]]]
        if not self.params.rgb:
            return squares.max(axis=1, keepdims=True)
        empty = self.shape[0] - self.params.squares
        return np.pad(squares, [(0, 0), (0, empty), (0, 0), (0, 0)]) if empty else squares


def shape(params: Params) -> Shape:
    return (3 if params.rgb else 1, params.image_size, params.image_size)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return (params.places,) * (2 * params.squares)


def _corners(params: Params) -> np.ndarray:
    """First pixel of each place along an axis: centred, an odd pixel left over goes to the far end."""
    extent = params.square_size + (params.places - 1) * params.step
    return (params.image_size - extent) // 2 + params.step * np.arange(params.places)


def _columns(params: Params) -> np.ndarray:
    """One square for each x, (places, starts, h, w): a window that starts lower shows the square higher.

    All windows are views of one tall picture for each x, so the table stays small at any spacing.
    """
    size, square = params.image_size, params.square_size
    tall = np.zeros((params.places, 2 * size - square, size), np.uint8)
    for picture, x in zip(tall, _corners(params), strict=True):
        picture[size - square : size, x : x + square] = 255
    return sliding_window_view(tall, size, axis=1).transpose(0, 1, 3, 2)


def statistics(params: Params) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means over all images of each channel's mean and unbiased standard deviation, in [0, 1]; exact.

    A channel that never changes has standard deviation 1, so that standardising leaves it finite.
    """
    if not params.rgb:
        areas = union_areas(params.squares, params.square_size, params.step, params.places)
        mean, std = _moments(params, *areas)
        return (mean,), (std,)
    filled = _moments(params, np.array([params.square_size**2]), np.ones(1))
    channels = [filled] * params.squares + [(0.0, 1.0)] * (3 - params.squares)
    return tuple(mean for mean, _ in channels), tuple(std for _, std in channels)


def _moments(params: Params, lit: np.ndarray, images: np.ndarray) -> tuple[float, float]:
    """Of binary images: how many pixels are lit, and in how many images."""
    pixels = params.image_size**2
    share = lit / pixels
    deviation = np.sqrt(share * (1 - share) * pixels / max(pixels - 1, 1))
    mean, std = np.average(share, weights=images), np.average(deviation, weights=images)
    return float(mean), float(std) or 1.0


DATASET = Dataset(name="xysquares", params=Params, shape=shape, factor_sizes=factor_sizes, open=XYSquares)
