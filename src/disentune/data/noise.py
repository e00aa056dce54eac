"""Noise of an image: the same for the same key, whatever other images are drawn in the batch."""

import numpy as np
import torch

from disentune.maths.randomness import scrambled

OWN = 1 << 62


class Recalled(np.random.Generator):
    """Replaces a generator that drew these keys (n,) before, to get the same images again in any batch."""

    def __init__(self, keys: np.ndarray):
        super().__init__(np.random.PCG64(np.asarray(keys, np.uint64)))
        self.keys = keys


def noise_keys(indices: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """A key for each image (n,): new ones from `rng`, recalled ones, or without `rng` the image's own.

    The image's own key is not its index, which gives the noise of `transforms.disturbed`: an image may have both.
    """
    if isinstance(rng, Recalled):
        return rng.keys
    return np.array(indices, np.int64) + OWN if rng is None else rng.integers(2**63, size=len(indices))


def octets(keys: np.ndarray, count: int) -> np.ndarray:
    """uint8 (n, count), uniform on 0 to 255."""
    words = scrambled(torch.from_numpy(keys), -(-count // 8))
    return words.view(torch.uint8).numpy()[:, :count]


def fractions(keys: np.ndarray, count: int) -> np.ndarray:
    """float64 (n, count), uniform on [0, 1)."""
    words = scrambled(torch.from_numpy(keys), count).numpy().view(np.uint64)
    return (words >> np.uint64(11)) * 2.0**-53
