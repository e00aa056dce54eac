"""Noise that belongs to an image: the same for the same key, however many images are drawn beside it."""

import numpy as np
import torch

from disentune.maths.randomness import scrambled

OWN = 1 << 62


def noise_keys(indices: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """A key (n,) for each image: fresh ones from `rng`, or without it the image's own.

    That is not its index, whose noise is that of `transforms.disturbed`: an image may have both.
    """
    return np.array(indices, np.int64) + OWN if rng is None else rng.integers(2**63, size=len(indices))


def octets(keys: np.ndarray, count: int) -> np.ndarray:
    """uint8 (n, count), uniform on 0 to 255."""
    words = scrambled(torch.from_numpy(keys), -(-count // 8))
    return words.view(torch.uint8).numpy()[:, :count]


def fractions(keys: np.ndarray, count: int) -> np.ndarray:
    """float64 (n, count), uniform on [0, 1)."""
    words = scrambled(torch.from_numpy(keys), count).numpy().view(np.uint64)
    return (words >> np.uint64(11)) * 2.0**-53
