"""Scream-dSprites: Locatello et al., ICML 2019: sprites that invert a tinted piece of Munch's painting.

The painting is shrunk to fit in 350 x 274 pixels; the paper's code names no filter, so Pillow's default, bicubic, is
used. A fourth channel marks where the painting is, because its height and width depend on the file.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from disentune.data import dsprites
from disentune.data.dsprites import Params, factor_sizes
from disentune.data.noise import fractions
from disentune.data.prepared import stored
from disentune.data.prepared.measuring import Measuring
from disentune.data.prepared.stored import StoredImages
from disentune.data.redrawn import SAMPLE, SHAPE, Paint, RedrawnSprites, shape, spread
from disentune.errors import DataError
from disentune.plugin import Dataset, File, Source, Statistics

WIDTH, HEIGHT, SIDE = 350, 274, SHAPE[1]
FILE = File(
    name="The_Scream.jpg",
    urls=("https://upload.wikimedia.org/wikipedia/commons/f/f4/The_Scream.jpg",),
    also=("scream.jpg",),
)
FORMATS = ("JPEG", "PNG")
"""Accepted formats: the file's own, and others that it may have been saved as; no other readers of Pillow are used."""


# ---- the painting


def painting() -> Source:
    return Source(
        name="scream_dsprites",
        variant="painting",
        files=(FILE,),
        read=read,
        shape=(4, HEIGHT, WIDTH),
        count=1,
    )


def read(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (1, 4, 274, 350): the painting in the corner, and 255 in the last channel where it is."""
    (path,) = paths
    picture = _shrunk(path)
    height, width = picture.shape[:2]
    if min(height, width) <= SIDE:
        raise DataError(f"{path}: must be larger than {SIDE} x {SIDE} when it fits {WIDTH} x {HEIGHT}, "
                        f"but is {width} x {height}")  # fmt: skip
    padded = np.zeros((1, 4, HEIGHT, WIDTH), np.uint8)
    padded[0, :3, :height, :width] = picture.transpose(2, 0, 1)
    padded[0, 3, :height, :width] = 255
    yield padded


def _shrunk(path: Path) -> np.ndarray:
    """(height, width, 3)"""
    try:
        with Image.open(path, formats=FORMATS) as file:
            picture = file.convert("RGB")
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        raise DataError(f"{path}: is not a picture, or is truncated or damaged ({error})") from None
    picture.thumbnail((WIDTH, HEIGHT), Image.Resampling.BICUBIC, reducing_gap=None)
    return np.asarray(picture)


def unpadded(padded: np.ndarray) -> np.ndarray:
    """(4, 274, 350) -> (3, height, width)"""
    height, width = (int(np.count_nonzero(edge)) for edge in (padded[3, :, 0], padded[3, 0]))
    return np.ascontiguousarray(padded[:3, :height, :width])


# ---- the data set


def sources(params: Params) -> tuple[Source, ...]:
    return (dsprites.source(), painting())


def paint(picture: np.ndarray, sprites: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(3, height, width), (n, 1, 64, 64) -> (n, 3, 64, 64): a piece averaged with a tint, inverted by the sprite.

    The average with a tint t rounds to floor((piece + t + 1) / 2), which can be computed with integers, using floor(t).
    """
    places, tints = np.split(fractions(keys, 5), [2], axis=1)
    rows, columns = (places * (np.array(picture.shape[1:]) - SIDE)).astype(int).T
    pieces = sliding_window_view(picture, (SIDE, SIDE), axis=(1, 2))[:, rows, columns].swapaxes(0, 1)
    sums = np.add(pieces, (255 * tints).astype(np.uint16)[:, :, None, None] + 1, dtype=np.uint16)
    found: np.ndarray = (sums >> 1).astype(np.uint8) ^ sprites  # x ^ 255 is 255 - x
    return found


def statistics(sprites: StoredImages, paint: Paint) -> Statistics:
    """Statistics of a fixed sample with fixed noise, within about 1 % of the expectation over all noise."""
    indices, measuring = np.resize(spread(len(sprites)), SAMPLE), Measuring()
    for part in np.array_split(np.arange(SAMPLE), 24):
        measuring.add(paint(sprites.images(indices[part]), part))
    return measuring.statistics()


def opened(params: Params) -> RedrawnSprites:
    sprites = dsprites.opened(params)
    picture = unpadded(stored.opened(painting()).images(np.array([0]))[0])
    on_picture = partial(paint, picture)
    return RedrawnSprites(sprites, on_picture, statistics(sprites, on_picture), (opened, params))


DATASET = Dataset(
    name="scream_dsprites",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(dsprites.FACTORS),
    open=opened,
    sources=sources,
    noisy=lambda params: True,
)
