"""Color-dSprites: Locatello et al., ICML 2019: dSprites in a random colour, each channel uniform on [0.5, 1]."""

import numpy as np

from disentune.data import dsprites
from disentune.data.dsprites import Params, factor_sizes, sources
from disentune.data.noise import fractions
from disentune.data.prepared.stored import StoredImages
from disentune.data.redrawn import RedrawnSprites, shape
from disentune.plugin import Dataset, Statistics

LEVELS = np.arange(128, 256)
"""The rounded values of 255 u for u in [0.5, 1]; 255 is half as likely as the others, whose intervals have length 1."""
BRIGHTNESS = float(np.average(LEVELS, weights=np.where(LEVELS < 255, 1.0, 0.5))) / 255


def paint(sprites: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(n, 1, 64, 64) -> (n, 3, 64, 64): the colour where the sprite is, black elsewhere."""
    colours = np.rint(127.5 * (1 + fractions(keys, 3))).astype(np.uint8)
    return sprites & colours[:, :, None, None]


def statistics(sprites: StoredImages) -> Statistics:
    """Expectations over colours; exact, because mean and deviation of an image are those of its sprite times
    brightness."""
    return Statistics((sprites.mean[0] * BRIGHTNESS,) * 3, (sprites.std[0] * BRIGHTNESS,) * 3)


def opened(params: Params) -> RedrawnSprites:
    sprites = dsprites.opened(params)
    return RedrawnSprites(sprites, paint, statistics(sprites), (opened, params))


DATASET = Dataset(
    name="color_dsprites",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(dsprites.FACTORS),
    open=opened,
    sources=sources,
    noisy=lambda params: True,
)
