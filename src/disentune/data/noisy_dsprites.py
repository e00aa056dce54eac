"""Noisy-dSprites: Locatello et al., ICML 2019: white sprites on uniform noise in every pixel and channel."""

import math

import numpy as np

from disentune.data import dsprites
from disentune.data.dsprites import Params, factor_sizes, sources
from disentune.data.noise import octets
from disentune.data.prepared.stored import StoredImages
from disentune.data.redrawn import SHAPE, RedrawnSprites, shape, spread
from disentune.plugin import Dataset, Statistics

VARIANCE = (256**2 - 1) / (12 * 255**2)
"""Moments of the noise: the levels 0 to 255 are equally likely, divided by 255."""


def paint(sprites: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(n, 1, 64, 64) -> (n, 3, 64, 64): white where the sprite is, noise elsewhere."""
    noise = octets(keys, math.prod(SHAPE)).reshape(-1, *SHAPE)
    found: np.ndarray = sprites | noise
    return found


def statistics(sprites: StoredImages) -> Statistics:
    """Expectations over the noise. The mean is exact; deviations come from a fixed sample of sprites."""
    lit = (sprites.images(spread(len(sprites))) > 0).mean(axis=(1, 2, 3))
    return Statistics(((1 + sprites.mean[0]) / 2,) * 3, (float(np.mean(_deviation(lit))),) * 3)


def _deviation(lit: np.ndarray) -> np.ndarray:
    """Deviation of images with this share of lit pixels: the root of the expected unbiased variance.

    It exceeds the expected root by a factor of 1 + 2e-5: with so many pixels the variance of an image hardly varies.
    """
    pixels = SHAPE[1] * SHAPE[2]
    noisy = 1 - lit
    mean, square = lit + noisy / 2, lit + noisy * (VARIANCE + 1 / 4)
    square_of_mean = mean**2 + noisy * VARIANCE / pixels
    return np.sqrt((square - square_of_mean) * pixels / (pixels - 1))


def opened(params: Params) -> RedrawnSprites:
    sprites = dsprites.opened(params)
    return RedrawnSprites(sprites, paint, statistics(sprites), (opened, params))


DATASET = Dataset(
    name="noisy_dsprites",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(dsprites.FACTORS),
    open=opened,
    sources=sources,
    noisy=lambda params: True,
)
